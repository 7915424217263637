// Documents that are the same for all clients: gzipped once, with an ETag by which clients revalidate their copy.
import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import type { Context } from 'hono';

export interface SharedDocument {
  /** The media type, with its charset where it has one. */
  readonly type: string;
  readonly body: Uint8Array<ArrayBuffer>;
  readonly gzipped: Uint8Array<ArrayBuffer>;
  /** With quotes, as in the header. */
  readonly etag: string;
}

export function sharedDocument(type: string, content: string | Uint8Array): SharedDocument {
  const body = typeof content === 'string' ? new TextEncoder().encode(content) : new Uint8Array(content);
  const etag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`;
  return { type, body, gzipped: new Uint8Array(gzipSync(body, { level: 9 })), etag };
}

/** `headers`: further headers. Without `cache-control` among them, the client revalidates the document at each use. */
export function sendDocument(c: Context, document: SharedDocument, headers: Record<string, string> = {}): Response {
  const { type, body, gzipped, etag } = document;
  // The middleware's `vary` is replaced by this one.
  const common = { 'cache-control': 'no-cache', ...headers, vary: 'origin, accept-encoding', etag };
  if (c.req.header('if-none-match')?.includes(etag)) return c.body(null, 304, common);
  const zip = /\bgzip\b/.test(c.req.header('accept-encoding') ?? '');
  return c.body(zip ? gzipped : body, 200, {
    ...common,
    'content-type': type,
    ...(zip ? { 'content-encoding': 'gzip' } : {}),
  });
}
