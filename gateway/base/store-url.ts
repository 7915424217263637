// ATTESTATION_STORE_URL: one server, several of a cluster, or the sentinels that know the server, with TLS and a password in a file.
// `rediss://USER@HOST:PORT,HOST:PORT/DATABASE?cluster&ca_file=…&password_file=…`.

export interface StoreAddress {
  /** A single server, nodes of a cluster, or sentinels. */
  readonly kind: 'single' | 'cluster' | 'sentinel';
  readonly nodes: readonly { readonly host: string; readonly port: number }[];
  /** What the sentinels call the server; empty without sentinels. */
  readonly name: string;
  readonly tls: boolean;
  /** PEM certificates that sign those of the servers; null: those that Node trusts. */
  readonly ca_file: string | null;
  readonly username: string | undefined;
  readonly password: string | undefined;
  /** Its first line is the password, read at each connection. */
  readonly password_file: string | null;
  /** The sentinels' own password; null: they have none. */
  readonly sentinel_password_file: string | null;
  readonly database: number;
}

const FORM = /^(redis|valkey)(s?):\/\/(?:([^@/?#]*)@)?([^@/?#]+)(?:\/(\d{0,3}))?(?:\?([^#]*))?$/;
const PARAMETERS = new Set(['cluster', 'sentinel', 'ca_file', 'password_file', 'sentinel_password_file']);
const PORTS = { single: 6379, cluster: 6379, sentinel: 26379 };

/** Returns null for a text that is no such URL. */
export function storeAddress(url: string): StoreAddress | null {
  const [form, , tls = '', user = '', hosts = '', database = '', query = ''] = FORM.exec(url) ?? [];
  if (form === undefined) return null;
  const parameters = new URLSearchParams(query);
  const names = [...parameters.keys()];
  const unknown = names.some((name) => !PARAMETERS.has(name)) || new Set(names).size < names.length;
  const kind = parameters.has('sentinel') ? 'sentinel' : parameters.has('cluster') ? 'cluster' : 'single';
  const nodes = hosts.split(',').map((host) => nodeOf(host, PORTS[kind]));
  const [username, password] = user.split(/:(.*)/s).map(decoded);
  const address = {
    kind,
    nodes: nodes.filter((node) => node !== null),
    name: parameters.get('sentinel') ?? '',
    tls: tls === 's',
    ca_file: parameters.get('ca_file'),
    username: username || undefined,
    password: password || undefined,
    password_file: parameters.get('password_file'),
    sentinel_password_file: parameters.get('sentinel_password_file'),
    database: Number(database),
  } as const;
  const wrong =
    unknown ||
    nodes.includes(null) ||
    username === null ||
    password === null ||
    (parameters.has('cluster') && (parameters.has('sentinel') || parameters.get('cluster') !== '')) ||
    (kind === 'single' && nodes.length > 1) ||
    (kind === 'cluster' && address.database !== 0) ||
    (kind === 'sentinel') !== (address.name !== '') ||
    (kind !== 'sentinel' && address.sentinel_password_file !== null) ||
    (address.ca_file !== null && !address.tls) ||
    (address.password_file !== null && address.password !== undefined);
  return wrong ? null : address;
}

function nodeOf(host: string, port: number): StoreAddress['nodes'][number] | null {
  const url = URL.canParse(`redis://${host}`) ? new URL(`redis://${host}`) : null;
  if (url === null || url.hostname === '' || url.host !== host.toLowerCase()) return null;
  return { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port || port) };
}

/** Returns null for a broken escape. */
function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}
