// The request target (RFC 9112 §3.2): every form that a client may send, as the one that routes know.

/**
 * The target as a path that begins with a slash, query included; null where there is none to be had.
 * `http://any.host/v1/models` is `/v1/models`: this server is the authority, whatever name it was called by.
 * `*` is the server itself, for OPTIONS alone.
 */
export function originForm(method: string, target: string): string | null {
  if (target.startsWith('/')) return target;
  if (target === '*') return method === 'OPTIONS' ? '/' : null;
  // A user name in it is an error (RFC 9110 §4.2.4).
  const rest = /^https?:\/\/[^/?#@\\]+(?=[/?#]|$)(.*)$/i.exec(target)?.[1];
  if (rest === undefined) return null;
  return rest.startsWith('/') ? rest : `/${rest}`;
}

/** The path as clients mean it: `/%7Esev_gpu%401.0/verify` is the same place. A slash that was escaped stays escaped. */
export function decodedPath(target: string): string {
  const query = target.indexOf('?');
  const path = query < 0 ? target : target.slice(0, query);
  if (!path.includes('%')) return path;
  return path.replace(/%(?!2[fF])[0-9A-Fa-f]{2}/g, (escaped) => {
    const char = String.fromCharCode(Number.parseInt(escaped.slice(1), 16));
    return /[!-~]/.test(char) && char !== '%' ? char : escaped;
  });
}

/** A `host` that names a host and perhaps a port (RFC 9112 §3.2): nothing that a URL would read as more. */
export function isHost(host: string): boolean {
  return /^(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:\d{1,5})?$/.test(host);
}

// Which web pages may use the gateway. Without API keys only those of this machine: any other page that its user visits could.

/**
 * Addresses, and names that nobody on the web can have: any other could be made to mean this machine by whoever owns it (DNS
 * rebinding), and a page of that name asks with no `Origin` at all.
 */
const OWN_HOST = /^(\[[0-9a-f:.]+\]|[\d.]+|[^.:]+|.*\.(localhost|internal))(:\d{1,5})?$/i;

/** A scheme, a host and perhaps a port, after the URL parser has written them as a browser does. */
const ORIGIN = /^[a-z][a-z\d+.-]*:\/\/([\w.-]+|\[[\da-f:.]+\])(:\d+)?$/;

/** As a browser sends it in `Origin` (RFC 6454 §6.2): lower case, without a default port and without a path; null for anything else. */
export function originOf(text: string): string | null {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || !/^\/?$/.test(url.pathname) || /[?#@]/.test(text)) return null;
  const origin = `${url.protocol}//${url.host}`;
  return ORIGIN.test(origin) ? origin : null;
}

export const hostOf = (origin: string) => origin.replace(/^https?:\/\//, '');

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
