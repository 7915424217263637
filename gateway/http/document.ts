// Documents that are the same for all clients: gzipped once, with an ETag by which clients revalidate their copy.
import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import type { Context } from 'hono';
import { isObject } from '../../proto/json.ts';

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

/** A signed release and its newest status, {"bundle":…,"status":…}; null: the text is none. */
export function releaseDocument(text: string): SharedDocument | null {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) && isObject(value.bundle) ? sharedDocument('application/json', text) : null;
  } catch {
    return null;
  }
}

/** The headers by which a browser lets a document load what `sources` allow, and nothing else. Text in it cannot become markup or script. */
export function documentSecurity(sources: readonly string[]) {
  const policy = [
    "default-src 'none'",
    ...sources,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ];
  return {
    'content-security-policy': policy.join('; '),
    'x-content-type-options': 'nosniff',
    'referrer-policy': 'no-referrer',
    'cross-origin-opener-policy': 'same-origin',
    'cross-origin-resource-policy': 'same-origin',
  };
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
