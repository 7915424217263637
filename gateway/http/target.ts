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
