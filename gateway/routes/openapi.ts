// GET /openapi.json: the service's own description.
import type { Context } from '../context.ts';
import { openapiDocument } from '../openapi/document.ts';

export function openapi(c: Context): Response {
  return c.body(openapiDocument(), 200, { 'content-type': 'application/json' });
}
