// Decides which headers cross the gateway, in each direction. Hop-by-hop headers never do (RFC 9110 §7.6.1).
import type { IncomingHttpHeaders } from 'node:http';
import { type Caller, keyIn } from '../keys/keys.ts';
import { mayForward } from '../keys/models.ts';
import type { Headers } from './backend.ts';

export const HOP_BY_HOP = [
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

/** Headers that the gateway sets itself, or that do not concern the backend. */
const WITHHELD_FROM_BACKEND = new Set([
  ...HOP_BY_HOP,
  'host',
  'content-length',
  'accept-encoding',
  'expect',
  'x-tee',
  'origin',
  'referer',
  'http2-settings',
  // The gateway keeps no copy that a 304 could confirm. Other conditions are kept: without `if-range`, a `range` could match any version.
  'if-none-match',
  'if-modified-since',
  // These headers name another method or target than the one that the gateway checked.
  'x-http-method',
  'x-original-url',
  'x-original-uri',
  'x-rewrite-url',
  'x-sendfile-type',
  // A client could forge its address in these headers.
  'forwarded',
  'via',
  'x-real-ip',
  'x-client-ip',
  'x-cluster-client-ip',
  'true-client-ip',
  'cf-connecting-ip',
]);

/** A name with one of these words carries a credential. The client's credentials are for this gateway and never reach the backend. */
const CREDENTIAL =
  /(^|-)(authorization|auth|oauth2?|cookie2?|(api|access|auth|secret|private)?keys?|(access|auth|id|api|bearer)?tokens?|secrets?|passw(or)?d|credentials?|jwt|assertion)(-|$)/;
const NO_CREDENTIAL = /(^|-)(idempotency|routing|cache)-key$/;
const BACKEND_CONTROL =
  /^(x-(forwarded|accel|envoy|middleware|remote|authenticated|webauth|ssl|client-cert)|remote|ssl|proxy)(-|$)|-method-override$/;

/** Headers that the gateway sets itself, or that concern only the backend. */
const WITHHELD_FROM_CLIENT = new Set([
  ...HOP_BY_HOP,
  'content-length',
  'date',
  'server',
  'via',
  'x-powered-by',
  'x-request-id',
  'x-attestation-id',
  'x-tee',
  'x-tee-batch',
  'strict-transport-security',
  'expect-ct',
  'public-key-pins',
  'alt-svc',
  'vary',
  'age',
  'expires',
  'pragma',
  'cache-tag',
  'x-content-type-options',
  'x-frame-options',
  'referrer-policy',
  // A browser would ask its user for the backend's password, or learn that it was right (RFC 9110 §11).
  'www-authenticate',
  'optional-www-authenticate',
  'authentication-info',
  'authentication-control',
  // These headers instruct a browser beyond this one response.
  'accept-ch',
  'activate-storage-access',
  'clear-site-data',
  'critical-ch',
  'integrity-policy',
  'link',
  'nel',
  'origin-agent-cluster',
  'refresh',
  'report-to',
  'reporting-endpoints',
  'service-worker-allowed',
  'shared-storage-write',
  'sourcemap',
  'speculation-rules',
  'supports-loading-mode',
  'timing-allow-origin',
  'use-as-dictionary',
  'x-sourcemap',
]);
/** Cookies, logins, instructions to a proxy in front, and page policies. */
const CLIENT_CONTROL =
  /^(set-(cookie2?|login)|(x-)?(proxy|surrogate)|x-(accel|envoy|forwarded|lighttpd|litespeed|middleware|reproxy|sendfile)|access-control|attribution-reporting|content-security-policy|cross-origin|(document|feature|permissions)-policy|sec)(-|$)|(^|-)cache-control$/;

const PLAIN = /^[a-z0-9-]+$/;

/** Normalizes a name: some servers read `transfer_encoding` and `x.api.key` as the names with hyphens. */
const normalized = (name: string): string => (PLAIN.test(name) ? name : name.replace(/[^a-z0-9]/g, '-'));

function isWithheldFromBackend(name: string): boolean {
  const as = normalized(name);
  return WITHHELD_FROM_BACKEND.has(as) || BACKEND_CONTROL.test(as) || (CREDENTIAL.test(as) && !NO_CREDENTIAL.test(as));
}

function isWithheldFromClient(name: string): boolean {
  const as = normalized(name);
  return WITHHELD_FROM_CLIENT.has(as) || CLIENT_CONTROL.test(as);
}

/** A shorter key may occur in any value by chance. */
const MIN_KEY_CHARACTERS = 8;

/** Whether a value contains the client's API key, under any header name. */
function holdsKey(value: string | string[], key: string | undefined): boolean {
  if (key === undefined) return false;
  const values = typeof value === 'string' ? [value] : value;
  return values.some((one) => one === key || (key.length >= MIN_KEY_CHARACTERS && one.includes(key)));
}

/** The headers of the backend's request. The gateway asks for no compression, because it attests the bytes of the response. */
export function toBackend(headers: IncomingHttpHeaders, apiKey: string | null, caller: Caller): Headers {
  const listed = connectionListed(headers.connection);
  const key = /^\S+ +(\S+)$/.exec(headers.authorization ?? '')?.[1] ?? keyIn(headers);
  const out: Headers = {};
  for (const name in headers) {
    const value = headers[name];
    if (value === undefined || isWithheldFromBackend(name) || listed?.has(name) || holdsKey(value, key)) continue;
    if (mayForward(caller, name)) out[name] = value;
  }
  out['accept-encoding'] = 'identity';
  if (apiKey !== null) out.authorization = `Bearer ${apiKey}`;
  return out;
}

/** The headers that the client receives from the backend. The code that writes the body sets the length. */
export function toClient(headers: IncomingHttpHeaders): Headers {
  const listed = connectionListed(headers.connection);
  const out: Headers = {};
  for (const name in headers) {
    const value = headers[name];
    if (value !== undefined && !isWithheldFromClient(name) && !listed?.has(name)) out[name] = value;
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
