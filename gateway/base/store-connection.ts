// A connection to Valkey or Redis with a timeout for each command, so that no caller waits longer for a server that is down or hangs.
import { createClient, type RedisClientOptions } from '@redis/client';
import { delayAfter } from './backoff.ts';

interface ConnectionOptions {
  /** `redis:`, `rediss:`, `valkey:` or `valkeys:`. The URL may contain a user name and a password. */
  readonly url: string;
  /** The timeout of one command. */
  readonly timeout_ms: number;
  /** Reports for the log whether the server is connected, and the error code. Never the URL. */
  readonly onState?: (connected: boolean, reason: string) => void;
}

export interface Connection {
  readonly isReady: boolean;
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
      // A command fails at once when it cannot be sent.
      disableOfflineQueue: true,
      commandsQueueMaxLength: MAX_COMMANDS,
      socket: {
        connectTimeout: CONNECT_TIMEOUT_MS,
        reconnectStrategy: (retries) => delayAfter(retries + 1, RECONNECT),
      },
    });
    created.on('error', (error: NodeJS.ErrnoException) => setConnected(false, error.code ?? error.name));
    created.on('ready', () => setConnected(true, 'ready'));
    // The client reconnects by itself until it is destroyed, which rejects this promise.
    created.connect().catch(() => {});
    return created;
  }

  /** Replaces the client, which would keep open commands until a hanging server responds. A new connection drops them. */
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
      // The server responds in order, so the response to this ping comes last.
      await run((last) => last.ping()).catch(() => {});
      client.destroy();
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
      let timer: NodeJS.Timeout | undefined;
      const tooLate = new Promise<never>((_resolve, reject) => {
        timer = setTimeout(() => reject(new Error('the store is late')), ADMISSION_MS);
      });
      try {
        const result = await Promise.race([connection.run(command), tooLate]);
        late = 0;
        until_ms = 0;
        return result;
      } catch (error) {
        // A limiter rejects with what it counted.
        if (error instanceof Error) failed();
        else [late, until_ms] = [0, 0];
        throw error;
      } finally {
        clearTimeout(timer);
      }
    },
  };
}
