// Keeps attestations in Valkey or Redis beside this process's own memory: any gateway finds what any of them made.
import { hash } from 'node:crypto';
import { createClient, RESP_TYPES, type RedisClientOptions } from '@redis/client';
import type { Logger } from 'pino';
import { RateLimiterRedis } from 'rate-limiter-flexible';
import type { Member } from '../cluster/member.ts';
import type { GatewayConfig } from '../config.ts';
import { Problem } from '../http/problem.ts';
import type { Owner } from '../keys/keys.ts';
import { delayAfter } from '../limits/backoff.ts';
import { createRates, inMemory, type MakeLimiter, type Rates } from '../limits/rates.ts';
import { createMemoryStore, type Kept, type MemoryStore, type Store } from './store-memory.ts';

// A connection to Valkey or Redis that answers within a time or fails: nothing waits for a server that is away or hangs.

interface ConnectionOptions {
  /** `redis:`, `rediss:`, `valkey:` or `valkeys:`; may hold a user name and a password. */
  readonly url: string;
  /** For one command, from the asking to the answer. */
  readonly timeout_ms: number;
  /** For the log: whether it is there, and the code of what went wrong. Never the URL. */
  readonly onState?: (connected: boolean, reason: string) => void;
}

export interface Connection {
  readonly isReady: boolean;
  /** @throws {Error} at once when the server is away, after the time when it hangs. */
  run<T>(command: (client: Client) => Promise<T>): Promise<T>;
  /** After what was sent is answered, or its time is over. */
  close(): Promise<void>;
}

const CONNECT_TIMEOUT_MS = 2_000;
const RECONNECT = { min_ms: 25, max_ms: 1_000 };
const MAX_COMMANDS = 10_000;

const make = (options: RedisClientOptions) => createClient(options);
export type Client = ReturnType<typeof make>;

export function openConnection({ url, timeout_ms, onState }: ConnectionOptions): Connection {
  let connected: boolean | null = null;
  let closed = false;
  let client = connect();

  function setConnected(now: boolean, reason: string): void {
    if (connected === now || closed) return;
    connected = now;
    onState?.(now, reason);
  }

  function connect(): Client {
    const created = make({
      url: url.replace(/^valkey/, 'redis'),
      // A command that cannot go out now fails now.
      disableOfflineQueue: true,
      commandsQueueMaxLength: MAX_COMMANDS,
      socket: {
        connectTimeout: CONNECT_TIMEOUT_MS,
        reconnectStrategy: (retries) => delayAfter(retries + 1, RECONNECT),
      },
    });
    created.on('error', (error: NodeJS.ErrnoException) => setConnected(false, error.code ?? error.name));
    created.on('ready', () => setConnected(true, 'ready'));
    // It goes on trying by itself until it is destroyed, which is what rejects this.
    created.connect().catch(() => {});
    return created;
  }

  /** What a hanging server was asked would be kept until it answers: a new connection forgets it. */
  function renew(hanging: Client): void {
    if (closed || hanging !== client) return;
    setConnected(false, 'no answer in time');
    client.destroy();
    client = connect();
  }

  function run<T>(command: (client: Client) => Promise<T>): Promise<T> {
    const current = client;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        renew(current);
        reject(new Error('no answer in time'));
      }, timeout_ms);
      command(current)
        .finally(() => clearTimeout(timer))
        .then(resolve, reject);
    });
  }

  return {
    get isReady() {
      return client.isReady;
    },
    run,
    async close() {
      closed = true;
      // Answers come in the order of what was asked.
      await run((last) => last.ping()).catch(() => {});
      client.destroy();
    },
  };
}

interface SharedOptions {
  readonly attestation_ttl_ms: number;
  /** The longest that an answer may run, and so be known by its completion's id. */
  readonly max_answer_ms: number;
  readonly attest_timeout_ms: number;
}

const PENDING = 'pending';
/** A gateway that is killed drops nothing: what nobody renews is over after this. */
const PENDING_MS = 60_000;
const RENEW_MS = 20_000;
/** Before the name of the entry that holds the attestation, which itself begins with a brace. */
const ALIAS = '=';
const AS_BYTES = { [RESP_TYPES.BLOB_STRING]: Buffer };
/** On their way to the server; past it an attestation is kept here alone. */
const MAX_IN_FLIGHT_BYTES = 64 * 1024 * 1024;
const BRACE = 0x7b;
const RETRY_SECONDS = 2;
/** The connection's own state is in the log; the answer carries its attestation whether it was kept or not. */
const ignore = () => {};

/** `own`: the store of this gateway, of which `memory` may be one worker's part. */
export function createSharedStore(
  connection: Connection,
  memory: MemoryStore,
  own: Store,
  options: SharedOptions,
): Store {
  let in_flight_bytes = 0;
  // Neither owners nor ids are to be read from the names of the entries.
  const keyOf = (owner: Owner, id: string) =>
    `countersign:attestation:${hash('sha256', `${owner} ${id}`, 'base64url')}`;

  async function set(
    key: string,
    value: string | Buffer,
    ttl_ms: number,
    more: { condition?: 'NX' } = {},
  ): Promise<void> {
    if (in_flight_bytes + value.length > MAX_IN_FLIGHT_BYTES) throw new Error('too much is on its way');
    in_flight_bytes += value.length;
    try {
      await connection.run((client) => client.set(key, value, { expiration: { type: 'PX', value: ttl_ms }, ...more }));
    } finally {
      in_flight_bytes -= value.length;
    }
  }

  const drop = (key: string) => void connection.run((client) => client.del(key)).catch(ignore);
  const markPending = (key: string) => void set(key, PENDING, PENDING_MS).catch(ignore);

  const running = new Set<string>();
  const renewing = setInterval(() => running.forEach(markPending), RENEW_MS).unref();

  async function fromServer(key: string): Promise<Kept | null> {
    const value = await connection.run((client) => client.withTypeMapping(AS_BYTES).get(key));
    if (value === null) return null;
    if (value[0] === BRACE) return { state: 'ready', json: Buffer.from(value) };
    const text = value.toString('latin1');
    return text.startsWith(ALIAS) ? fromServer(text.slice(ALIAS.length)) : { state: 'pending' };
  }

  async function findOnServer(owner: Owner, id: string): Promise<Kept | null> {
    try {
      const stored = await fromServer(keyOf(owner, id));
      if (stored !== null) return stored;
    } catch (cause) {
      const local = await own.find(owner, id);
      if (local !== null) return local;
      throw new Problem('store_unavailable', 'The store of attestations cannot be reached.', {
        cause,
        retryAfterSeconds: RETRY_SECONDS,
      });
    }
    // The server may have had no room for what another worker has.
    return own.find(owner, id);
  }

  return {
    begin(owner, id) {
      memory.begin(owner, id);
      const key = keyOf(owner, id);
      running.add(key);
      markPending(key);
    },
    name(owner, id, completionId) {
      memory.name(owner, id, completionId);
      const ttl_ms = options.max_answer_ms + options.attest_timeout_ms;
      set(keyOf(owner, completionId), ALIAS + keyOf(owner, id), ttl_ms, { condition: 'NX' }).catch(ignore);
    },
    keep(owner, id, completionId, json) {
      memory.keep(owner, id, completionId, json);
      const key = keyOf(owner, id);
      running.delete(key);
      const { attestation_ttl_ms } = options;
      // Where it cannot be kept, a full server for one, it is no longer pending either.
      set(key, json, attestation_ttl_ms).catch(() => drop(key));
      if (completionId !== null) set(keyOf(owner, completionId), ALIAS + key, attestation_ttl_ms).catch(ignore);
    },
    drop(owner, id) {
      memory.drop(owner, id);
      const key = keyOf(owner, id);
      running.delete(key);
      drop(key);
    },
    find: (owner, id) => memory.find(owner, id) ?? findOnServer(owner, id),
    get usage() {
      return memory.usage;
    },
    async close() {
      clearInterval(renewing);
      memory.close();
      await connection.close();
    },
  };
}

// Counts requests in Valkey or Redis, for all gateways together; while that is away, each gateway counts by itself.

/** `whileAway` counts for this gateway alone. */
function inStore(connection: Connection, fallback: MakeLimiter): MakeLimiter {
  // What the limiter uses of a client, over a connection that may be renewed under it.
  const client = {
    get isReady() {
      return connection.isReady;
    },
    eval: (script: string, options: { keys: string[]; arguments: string[] }) =>
      connection.run((current) => current.eval(script, options)),
  };
  return (options) =>
    new RateLimiterRedis({
      ...options,
      storeClient: client,
      useRedisPackage: true,
      rejectIfRedisNotReady: true,
      // Who is past the limit is refused here, without asking again, until the second is over.
      inMemoryBlockOnConsumed: options.points,
      insuranceLimiter: fallback(options),
    });
}

// The store that the configuration asks for, and what counts requests beside it: in memory, or shared by several gateways.

/** `member`: this process is one of several workers, and what they must share goes by their primary. */
export function createStoreAndRates(
  config: GatewayConfig,
  log: Logger,
  member: Member | null,
): { store: Store; rates: Rates } {
  const memory = createMemoryStore({
    ...config,
    attestation_store_bytes: Math.ceil(config.attestation_store_bytes / config.workers),
  });
  const own = member === null ? memory : member.store(memory);
  const limiter = member === null ? inMemory : member.limiter;
  if (config.attestation_store_url === null) return { store: own, rates: createRates(limiter) };
  const connection = openConnection({
    url: config.attestation_store_url,
    timeout_ms: config.attestation_store_timeout_ms,
    onState: (connected, reason) => log[connected ? 'info' : 'warn']({ connected, reason }, 'attestation store'),
  });
  return {
    store: createSharedStore(connection, memory, own, config),
    rates: createRates(inStore(connection, limiter)),
  };
}
