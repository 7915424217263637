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
