// A connection to Valkey or Redis that answers within a time or fails: nothing waits for a server that is away or hangs.
import { createClient, type RedisClientOptions } from '@redis/client';

export interface ConnectionOptions {
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
const RECONNECT_MAX_MS = 1_000;
const MAX_COMMANDS = 10_000;

const make = (options: RedisClientOptions) => createClient(options);
export type Client = ReturnType<typeof make>;

export function openConnection({ url, timeout_ms, onState }: ConnectionOptions): Connection {
  let connected: boolean | null = null;
  let closed = false;
  let client = connect();

  function become(now: boolean, reason: string): void {
    if (connected === now || closed) return;
    connected = now;
    onState?.(now, reason);
  }

  function connect(): Client {
    const made = make({
      url: url.replace(/^valkey/, 'redis'),
      // A command that cannot go out now fails now.
      disableOfflineQueue: true,
      commandsQueueMaxLength: MAX_COMMANDS,
      socket: {
        connectTimeout: CONNECT_TIMEOUT_MS,
        reconnectStrategy: (retries) => Math.min(RECONNECT_MAX_MS, 25 * 2 ** Math.min(retries, 10)),
      },
    });
    made.on('error', (error: NodeJS.ErrnoException) => become(false, error.code ?? error.name));
    made.on('ready', () => become(true, 'ready'));
    // It goes on trying by itself until it is destroyed, which is what rejects this.
    made.connect().catch(() => {});
    return made;
  }

  /** What a hanging server was asked would be kept until it answers: a new connection forgets it. */
  function renew(hanging: Client): void {
    if (closed || hanging !== client) return;
    become(false, 'no answer in time');
    client.destroy();
    client = connect();
  }

  function run<T>(command: (client: Client) => Promise<T>): Promise<T> {
    const asked = client;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        renew(asked);
        reject(new Error('no answer in time'));
      }, timeout_ms);
      command(asked)
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
