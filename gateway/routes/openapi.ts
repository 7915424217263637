// GET /openapi.json: the service's own description, made at the first request and kept.
import type { Context, Deps } from '../context.ts';
import { openapiDocument } from '../openapi/document.ts';

export function openapi({ version }: Deps) {
  let kept: string | null = null;
  return (c: Context): Response => {
    kept ??= openapiDocument(version);
    return c.body(kept, 200, { 'content-type': 'application/json' });
  };
}
