// Which web pages may use the gateway. Without API keys only those of this machine: any other page that its user visits could.
import type { Deps, Step } from './context.ts';
import { Problem } from './problem.ts';

const EXPOSED =
  'x-request-id, x-attestation-id, retry-after, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests';
/**
 * Addresses, and names that nobody on the web can have: any other could be made to mean this machine by whoever owns it (DNS
 * rebinding), and a page of that name asks with no `Origin` at all.
 */
const OWN_HOST = /^(\[[0-9a-f:.]+\]|[\d.]+|[^.:]+|.*\.(localhost|internal))(:\d{1,5})?$/i;
const LOOPBACK_ORIGIN = /^https?:\/\/(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/;

/** A scheme, a host and perhaps a port, after the URL parser has written them as a browser does. */
const ORIGIN = /^[a-z][a-z\d+.-]*:\/\/([\w.-]+|\[[\da-f:.]+\])(:\d+)?$/;

/** As a browser sends it in `Origin` (RFC 6454 §6.2): lower case, without a default port and without a path; null for anything else. */
export function originOf(text: string): string | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^\/?$/.test(url.pathname) || /[?#@]/.test(text)) return null;
  const origin = `${url.protocol}//${url.host}`;
  return ORIGIN.test(origin) ? origin : null;
}

/** The origins from configuration, or a default: every one where a key is asked for, this machine's where none is. */
function allows({ cors_origins, api_keys_file }: Deps['config'], origin: string, host: string | undefined): boolean {
  const keys = api_keys_file !== null;
  if (cors_origins === null) return keys || LOOPBACK_ORIGIN.test(origin);
  // The gateway's own page too. Without keys the name by which it was asked proves nothing.
  return cors_origins.includes('*') || cors_origins.includes(origin) || (keys && hostOf(origin) === host);
}

const hostOf = (origin: string) => origin.replace(/^https?:\/\//, '');

/** Whether this is a name by which something that asks for no key may be called. */
export function createOwnHosts(cors_origins: readonly string[] | null): (host: string | undefined) => boolean {
  if (cors_origins?.includes('*')) return () => true;
  const named = new Set(cors_origins?.map(hostOf));
  let known: string | undefined;
  return (host) => {
    if (host === known) return true;
    if (host !== undefined && !OWN_HOST.test(host) && !named.has(host.toLowerCase())) return false;
    known = host;
    return true;
  };
}

/** CORS (Fetch §3.3). A page that is not allowed is refused before anything is done for it: 403 `origin_not_allowed`. */
export function origins({ config }: Deps): Step {
  const ownHost = config.api_keys_file === null ? createOwnHosts(config.cors_origins) : () => true;
  return (c) => {
    const { incoming, outgoing } = c.env;
    const { origin, host } = incoming.headers;
    outgoing.setHeader('vary', 'origin');
    if (!ownHost(host))
      throw new Problem(
        'origin_not_allowed',
        'Without API keys this gateway has no such name (CORS_ORIGINS names more).',
      );
    if (origin !== undefined) {
      if (!allows(config, origin, host))
        throw new Problem('origin_not_allowed', 'Web pages of this origin may not use this gateway (CORS_ORIGINS).');
      outgoing.setHeader('access-control-allow-origin', origin);
      outgoing.setHeader('access-control-expose-headers', EXPOSED);
    }
  };
}
