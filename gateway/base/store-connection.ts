// A connection to Valkey or Redis with a timeout for each command, so that no caller waits longer for a server that is down or hangs.
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createClient, createCluster, createSentinel, type RedisClientOptions } from '@redis/client';
import { ConfigError } from '../../node/settings.ts';
import { delayAfter } from './backoff.ts';
import { type StoreAddress, storeAddress } from './store-url.ts';

interface ConnectionOptions {
  /** ATTESTATION_STORE_URL. */
  readonly url: string;
  /** The timeout of one command. */
  readonly timeout_ms: number;
  /** Reports for the log whether the server is connected, and the error code. Never the URL. */
  readonly onState?: (connected: boolean, reason: string) => void;
}

export interface Connection {
  readonly isReady: boolean;
  /** The servers are a cluster, in which the keys of one command must have the same hash tag. */
  readonly isCluster: boolean;
  /** @throws {Error} at once when the server is down, or after the timeout when it hangs. */
  run<T>(command: (client: Client) => Promise<T>): Promise<T>;
  /** Waits for open commands, up to the timeout. */
  close(): Promise<void>;
}

/** How long a request waits for the store before it is admitted without it. */
const ADMISSION_MS = 150;
/** Late answers in a row after which the store is not asked for a while. */
const MAX_LATE = 3;
const BREAK = { min_ms: 1_000, max_ms: 15_000 };

const CONNECT_TIMEOUT_MS = 2_000;
const RECONNECT = { min_ms: 25, max_ms: 1_000 };
const MAX_COMMANDS = 10_000;
/** How often a cluster, or the server behind sentinels, is asked whether it is there, and how long that may take. */
const LOOK = { every_ms: 500, timeout_ms: 2_000 };

const make = (options: RedisClientOptions) => createClient(options);
type OneClient = ReturnType<typeof make>;
/** The commands that are used here, which a cluster and sentinels have too. */
export type Client = Pick<OneClient, 'set' | 'get' | 'del' | 'eval' | 'hGetAll' | 'hDel' | 'ping' | 'withTypeMapping'>;

/** A client that connects by itself, again and again, until it is destroyed. */
interface Opened {
  readonly client: Client;
  readonly isReady: boolean;
  destroy(): void;
}

type Report = (connected: boolean, reason: string) => void;

const codeOf = (error: unknown) => (error as NodeJS.ErrnoException).code ?? (error as Error).name;

/** @throws {ConfigError} for a file that cannot be read. */
function nodeOptions(address: StoreAddress) {
  const { tls, ca_file, username, password, password_file } = address;
  const ca = ca_file === null ? undefined : readable(ca_file);
  return {
    ...authOf(username, password, password_file),
    // A command fails at once when it cannot be sent.
    disableOfflineQueue: true,
    commandsQueueMaxLength: MAX_COMMANDS,
    socket: {
      connectTimeout: CONNECT_TIMEOUT_MS,
      reconnectStrategy: (retries: number) => delayAfter(retries + 1, RECONNECT),
      ...(tls ? { tls: true as const, ...(ca === undefined ? {} : { ca }) } : {}),
    },
  };
}

/** A password in a file is read at each connection, so that it may change. @throws {ConfigError} */
function authOf(username: string | undefined, password: string | undefined, password_file: string | null) {
  if (password_file === null)
    return { ...(username === undefined ? {} : { username }), ...(password === undefined ? {} : { password }) };
  readable(password_file);
  const credentials = async () => ({
    ...(username === undefined ? {} : { username }),
    password: firstLine(await readFile(password_file, 'utf8')),
  });
  return { credentialsProvider: { type: 'async-credentials-provider', credentials } as const };
}

const firstLine = (text: string): string => text.split(/\r?\n/, 1)[0] ?? '';

function readable(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (cause) {
    throw new ConfigError(`ATTESTATION_STORE_URL: a file that it names cannot be read: ${codeOf(cause)}`, { cause });
  }
}

function openSingle(address: StoreAddress, report: Report): Opened {
  const [node] = address.nodes;
  const options = nodeOptions(address);
  const { database } = address;
  const client = make({ ...options, database, socket: { ...options.socket, ...node } });
  client.on('error', (error) => report(false, codeOf(error)));
  client.on('ready', () => report(true, 'ready'));
  // The client reconnects by itself until it is destroyed, which rejects this promise.
  client.connect().catch(() => {});
  return {
    client,
    get isReady() {
      return client.isReady;
    },
    destroy: () => client.destroy(),
  };
}

/** Several servers in one: nodes of a cluster, or those that sentinels know. */
function createMany(address: StoreAddress) {
  const { kind, nodes, name, database, sentinel_password_file } = address;
  const options = nodeOptions(address);
  if (kind === 'cluster')
    return createCluster({
      rootNodes: nodes.map((node) => ({ ...options, socket: { ...options.socket, ...node } })),
      defaults: options,
      // One node that is away does not keep the others from being used.
      minimizeConnections: true,
    });
  const auth = authOf(undefined, undefined, sentinel_password_file);
  return createSentinel({
    name,
    sentinelRootNodes: [...nodes],
    nodeClientOptions: { ...options, database },
    sentinelClientOptions: { ...auth, socket: options.socket },
    scanInterval: LOOK.timeout_ms,
  });
}

/** These clients give up where their first connection fails, and do not say when they are away: they are replaced, and asked. */
function openMany(address: StoreAddress, report: Report): Opened {
  const create = () => {
    const created = createMany(address);
    // Its errors come with `look`.
    created.on('error', () => {});
    return created;
  };
  const destroy = (client: typeof many) => void Promise.resolve(client.destroy()).catch(() => {});
  let many = create();
  let isReady = false;
  let closed = false;
  let timer: NodeJS.Timeout | undefined;

  async function look(): Promise<void> {
    try {
      await within(connected(), LOOK.timeout_ms);
      await within(many.ping(), LOOK.timeout_ms);
      isReady = true;
      report(true, 'ready');
    } catch (error) {
      isReady = false;
      report(false, codeOf(error));
    }
    if (!closed) timer = setTimeout(() => void look(), LOOK.every_ms).unref();
  }

  async function connected(): Promise<void> {
    if (many.isOpen && many.isReady) return;
    destroy(many);
    many = create();
    await many.connect();
  }

  void look();
  return {
    get client() {
      if (!many.isReady) throw new Error('not connected');
      // Both have the commands of `Client`, under types of their own.
      return many as unknown as Client;
    },
    get isReady() {
      return isReady;
    },
    destroy() {
      closed = true;
      clearTimeout(timer);
      destroy(many);
    },
  };
}

/** @throws {Error} after the time. */
function within<T>(promise: Promise<T>, ms: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('no answer in time')), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** @throws {ConfigError} */
export function openConnection({ url, timeout_ms, onState }: ConnectionOptions): Connection {
  const address = storeAddress(url);
  if (address === null) throw new ConfigError('ATTESTATION_STORE_URL is no URL of a store');
  const isCluster = address.kind === 'cluster';
  const connect = (): Opened => (address.kind === 'single' ? openSingle : openMany)(address, setConnected);
  let connected: boolean | null = null;
  let closed = false;
  let opened = connect();

  function setConnected(now: boolean, reason: string): void {
    if (connected === now || closed) return;
    connected = now;
    onState?.(now, reason);
  }

  /** Replaces the client, which would keep open commands until a hanging server responds. A new connection drops them. */
  function renew(hanging: Opened): void {
    if (closed || hanging !== opened) return;
    setConnected(false, 'no answer in time');
    opened.destroy();
    opened = connect();
  }

  function run<T>(command: (client: Client) => Promise<T>): Promise<T> {
    const current = opened;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        renew(current);
        reject(new Error('no answer in time'));
      }, timeout_ms);
      const answered = async () => command(current.client);
      answered()
        .finally(() => clearTimeout(timer))
        .then(resolve, reject);
    });
  }

  return {
    get isReady() {
      return opened.isReady;
    },
    isCluster,
    run,
    async close() {
      closed = true;
      // The server responds in order, so the response to this ping comes last.
      await run((last) => last.ping()).catch(() => {});
      opened.destroy();
    },
  };
}

/**
 * A circuit breaker for commands that a request waits for. They are rejected after a short time, and at once for a while after some were
 * late: then one is tried.
 */
export function createBreaker(connection: Pick<Connection, 'run'>): Pick<Connection, 'run'> {
  let late = 0;
  let until_ms = 0;

  function failed(): void {
    // Others were on their way when the breaker opened: they are no further failure of a trial.
    if (Number.isFinite(until_ms) && performance.now() < until_ms) return;
    if (++late >= MAX_LATE) until_ms = performance.now() + delayAfter(late - MAX_LATE + 1, BREAK);
  }

  return {
    async run(command) {
      if (performance.now() < until_ms) throw new Error('the store was late');
      // While one is tried, the others are not.
      if (late >= MAX_LATE) until_ms = Number.POSITIVE_INFINITY;
      try {
        const result = await within(connection.run(command), ADMISSION_MS);
        late = 0;
        until_ms = 0;
        return result;
      } catch (error) {
        // A limiter rejects with what it counted.
        if (error instanceof Error) failed();
        else [late, until_ms] = [0, 0];
        throw error;
      }
    },
  };
}
