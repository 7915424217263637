// Which headers cross the gateway, in each direction. Hop-by-hop ones never do (RFC 9110 §7.6.1).
import type { IncomingHttpHeaders } from 'node:http';

const HOP_BY_HOP = [
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];

/** Ours to set, or none of the backend's business: the client's key opens this gateway and nothing behind it. */
const KEPT_FROM_BACKEND = new Set([
  ...HOP_BY_HOP,
  'host',
  'content-length',
  'authorization',
  'cookie',
  'accept-encoding',
  'expect',
  'x-tee',
  'origin',
  'referer',
  'http2-settings',
  // Nothing is kept that a 304 could be about. Other conditions stay: without `if-range`, a `range` would be of any version.
  'if-none-match',
  'if-modified-since',
]);

/** Ours to set, or the backend's own affair. */
const KEPT_FROM_CLIENT = new Set([
  ...HOP_BY_HOP,
  'content-length',
  'date',
  'server',
  'set-cookie',
  'x-request-id',
  'x-attestation-id',
  'strict-transport-security',
  'alt-svc',
  'cache-control',
  'content-security-policy',
  'x-content-type-options',
  'referrer-policy',
  'vary',
  // A proxy in front would take these as orders.
  'x-accel-redirect',
  'x-accel-expires',
  'x-accel-limit-rate',
  'x-sendfile',
]);

export type Headers = Record<string, string | string[]>;

/** What the backend is asked with. Compression is not asked for: what is attested are the bytes of the answer. */
export function toBackend(headers: IncomingHttpHeaders, apiKey: string | null): Headers {
  const listed = connectionListed(headers.connection);
  const out: Headers = {};
  for (const name in headers) {
    const value = headers[name];
    if (value !== undefined && !KEPT_FROM_BACKEND.has(name) && !listed?.has(name)) out[name] = value;
  }
  out['accept-encoding'] = 'identity';
  if (apiKey !== null) out.authorization = `Bearer ${apiKey}`;
  return out;
}

/** What the client sees of the backend's headers; lengths are set by whoever writes the body. */
export function toClient(headers: IncomingHttpHeaders): Headers {
  const listed = connectionListed(headers.connection);
  const out: Headers = {};
  for (const name in headers) {
    const value = headers[name];
    if (value === undefined || KEPT_FROM_CLIENT.has(name) || name.startsWith('access-control-') || listed?.has(name))
      continue;
    out[name] = value;
  }
  return out;
}

function connectionListed(connection: string | undefined): Set<string> | null {
  if (connection === undefined || /^(keep-alive|close)$/i.test(connection)) return null;
  return new Set(
    connection
      .toLowerCase()
      .split(',')
      .map((name) => name.trim()),
  );
}
