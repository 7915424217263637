// The method, and the request target (RFC 9112 §3.2): turns every form that a client may send into the one that routes know.

/** The methods of RFC 9110 §9 and RFC 5789 that a client may send. */
export const METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** The route of verification, which a sealed request may name too. */
export const VERIFY_PATH = '/~sev_gpu@1.0/verify';

/**
 * Returns the target as a path that begins with a slash, query included; null where it is not valid.
 * `http://any.host/v1/models` becomes `/v1/models`: this server is the authority under every name.
 * `*` names the server itself, only for OPTIONS.
 */
export function originForm(method: string, target: string): string | null {
  if (target.startsWith('/')) return target;
  if (target === '*') return method === 'OPTIONS' ? '/' : null;
  // A user name in the target is an error (RFC 9110 §4.2.4).
  const rest = /^https?:\/\/[^/?#@\\]+(?=[/?#]|$)(.*)$/i.exec(target)?.[1];
  if (rest === undefined) return null;
  return rest.startsWith('/') ? rest : `/${rest}`;
}

/** Returns the path by which Hono routes a request: from Node's own target, because Fetch's URL has already resolved dots and escapes. */
export function pathOf(request: Request, options?: { env?: { incoming: { url?: string | undefined } } }): string {
  return decodedPath(options?.env?.incoming.url ?? new URL(request.url).pathname);
}

export const withoutQuery = (target: string): string => target.split('?', 1)[0] ?? '';

/** Decodes the path: `/%7Esev_gpu%401.0/verify` names the route `/~sev_gpu@1.0/verify`. An escaped slash stays escaped. */
export function decodedPath(target: string): string {
  const path = withoutQuery(target);
  if (!path.includes('%')) return path;
  return path.replace(/%(?!2[fF])[0-9A-Fa-f]{2}/g, (escaped) => {
    const char = String.fromCharCode(Number.parseInt(escaped.slice(1), 16));
    return /[!-~]/.test(char) && char !== '%' ? char : escaped;
  });
}

/** Whether `host` is a host and perhaps a port (RFC 9112 §3.2), with nothing that a URL parser would read as more. */
export function isHost(host: string): boolean {
  return /^(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?$/.test(host);
}

// Origins: which web pages may use the gateway. Without API keys these are only this machine's; otherwise every page that its user opens
// could use the gateway.

/**
 * Addresses, and names that cannot be registered on the web. The owner of any other name can point it at this machine (DNS rebinding), and
 * a page of that name sends no `Origin` at all.
 */
const OWN_HOST = /^(\[[0-9a-f:.]+\]|[\d.]+|[^.:]+|.*\.(localhost|internal))(:\d{1,5})?$/i;

/** A scheme, a host and perhaps a port, as the URL parser and browsers write them. */
const ORIGIN = /^[a-z][a-z\d+.-]*:\/\/([\w.-]+|\[[\da-f:.]+\])(:\d+)?$/;

/** Returns an origin as a browser sends it (RFC 6454 §6.2): lower case, no default port, no path; null for anything else. */
export function originOf(text: string): string | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^\/?$/.test(url.pathname) || /[?#@]/.test(text)) return null;
  const origin = `${url.protocol}//${url.host}`;
  return ORIGIN.test(origin) ? origin : null;
}

export const hostOf = (origin: string) => origin.replace(/^https?:\/\//, '');

/** Returns a check of the host header for a gateway without API keys: whether the gateway may be reached by that name. */
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
