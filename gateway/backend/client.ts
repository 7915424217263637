// The backend client: sends a request over a pooled connection and passes the response to a handler as it arrives.
import { asProblem, Problem } from '../base/problem.ts';
import type { Owner } from '../keys/keys.ts';
import type { Backend, BackendCall, BackendRequest, ResponseHandler, ResponseHead } from './backend.ts';
import { Connection, type ConnectionHandler, type Origin } from './connection.ts';
import { BackendFault } from './errors.ts';
import { writeRequest } from './headers.ts';
import { HeadCache, type ResponseLimits, ResponseMeter } from './response.ts';

const DISCONNECT_CODES = new Set(['ECONNRESET', 'EPIPE']);
const DISCONNECT_WITHIN_MS = 500;

interface BackendOptions extends ResponseLimits {
  readonly backend_url: string;
  /** The longest time for which the backend may send nothing. */
  readonly backend_timeout_ms: number;
}

/** The client of one backend. */
export interface Client extends Backend {
  /** Closes idle connections, and resolves when the running requests have ended too. There must be no new requests after it. */
  retire(): Promise<void>;
}

export function createBackend(options: BackendOptions): Client {
  // The limit on silence is never longer than the limit on a whole response.
  const silence_ms = Math.min(options.backend_timeout_ms, options.max_answer_ms);
  const base = new URL(options.backend_url);
  const secure = base.protocol === 'https:';
  const origin: Origin = {
    secure,
    host: base.hostname.replace(/^\[|\]$/g, ''),
    port: Number(base.port) || (secure ? 443 : 80),
  };
  const pool = new Pool(origin, silence_ms);
  const prefix = base.pathname.replace(/\/+$/, '');
  return {
    call(request, handler) {
      const parts = writeRequest(request, prefix, base.host);
      const call = new Call(pool, request, parts, silence_ms, new ResponseMeter(options), handler);
      call.send(pool.acquire(request.owner));
      return call;
    },
    async close() {
      pool.close();
    },
    retire: () => pool.retire(),
  };
}

const NO_PARTS: readonly Buffer[] = [];

class Call implements ConnectionHandler, BackendCall {
  readonly #pool: Pool;
  /** The request's bytes. They are kept until the response begins, because the request may be sent again. */
  #parts: readonly Buffer[];
  readonly #repeatable: boolean;
  readonly #owner: Owner | null;
  readonly #silence_ms: number;
  readonly #meter: ResponseMeter;
  readonly #handler: ResponseHandler;
  readonly #sent_ms = performance.now();
  #connection: Connection | null = null;
  #reused = false;
  #repeated = false;
  #hasHead = false;
  #ended = false;

  constructor(
    pool: Pool,
    { repeatable, owner }: BackendRequest,
    parts: readonly Buffer[],
    silence_ms: number,
    meter: ResponseMeter,
    handler: ResponseHandler,
  ) {
    this.#pool = pool;
    this.#repeatable = repeatable;
    this.#owner = owner;
    this.#parts = parts;
    this.#silence_ms = silence_ms;
    this.#meter = meter;
    this.#handler = handler;
  }

  send(connection: Connection): void {
    this.#connection = connection;
    this.#reused = connection.used;
    connection.send(this.#parts, this.#silence_ms, this);
  }

  head(head: ResponseHead): void {
    this.#hasHead = true;
    this.#parts = NO_PARTS;
    this.#meter.head(head);
    this.#handler.head(head);
  }

  data(chunk: Buffer): void {
    if (this.#ended) return;
    this.#handler.data(chunk);
    const exceeded = this.#meter.exceeds(chunk);
    if (exceeded === null) return;
    this.cancel();
    this.#handler.fail(exceeded);
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    try {
      this.#handler.end();
    } catch (error) {
      this.#handler.fail(asProblem(error));
    }
  }

  failed(cause: unknown, unsent: boolean): void {
    if (this.#ended) return;
    if (this.#repeatable && !this.#repeated && !this.#hasHead && this.#mayRepeat(cause)) {
      this.#repeated = true;
      return this.send(this.#pool.open(this.#owner));
    }
    this.#ended = true;
    // A Problem comes from the delivery; any other cause is a fault of the backend.
    this.#handler.fail(cause instanceof Problem ? cause : problemOf(cause, this.#hasHead), unsent);
  }

  /**
   * Decides whether the request is sent once more, on a new connection. A backend may close an idle connection just as a request goes out
   * on it (llama-server does after every stream), or send a 408 as it closes. The first connection must have carried a response before, and
   * must have failed that way: with a 408, or at once and before a head.
   */
  #mayRepeat(cause: unknown): boolean {
    const kind = cause instanceof BackendFault ? cause.kind : null;
    const disconnected = kind === 'disconnected' || DISCONNECT_CODES.has((cause as NodeJS.ErrnoException)?.code ?? '');
    return (
      this.#reused &&
      (kind === 'unsolicited' || (disconnected && performance.now() - this.#sent_ms < DISCONNECT_WITHIN_MS))
    );
  }

  pause(): void {
    if (!this.#ended) this.#connection?.pause();
  }

  resume(): void {
    if (!this.#ended) this.#connection?.resume();
  }

  cancel(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#connection?.destroy();
  }
}

/** Tells the client only what it can act on. The details stay in `cause`. */
function problemOf(cause: unknown, hasHead: boolean): Problem {
  const kind = cause instanceof BackendFault ? cause.kind : null;
  if (kind === 'stopped')
    return new Problem('overloaded', 'The gateway was told to stop before the answer ended.', { retryAfterSeconds: 1 });
  if (kind === 'timeout')
    return new Problem('backend_timeout', 'The backend stayed silent for too long (BACKEND_TIMEOUT_MS).', { cause });
  if (hasHead)
    return new Problem('backend_bad_response', 'The backend broke off in the middle of its answer.', { cause });
  if (kind === 'not_http') return new Problem('backend_bad_response', 'The backend did not answer in HTTP.', { cause });
  return new Problem('backend_unreachable', 'The backend cannot be reached.', { cause, retryAfterSeconds: 1 });
}

// The connections to the backend. An idle connection is reused by its owner only, and rests before it is reused.

/**
 * How long a connection rests. HTTP/1.1 does not say which request a response belongs to: bytes that a backend sends after its response
 * would be read as the response to the next request. Bytes that arrive while a connection rests end it.
 */
const REST_MS = 25;
/** The shortest time between two checks for connections that have rested. */
const REST_CHECK_MS = 5;
/** Idle connections are closed before the backend closes them: uvicorn does after 5 s, when a request may already be on its way. */
const KEEP_ALIVE_MS = 4_000;
/**
 * Above this number the connection that has been idle longest is closed. 1,024 resting connections are enough for 30,000 requests a second.
 */
const MAX_IDLE = 2_048;
const MAX_IDLE_OF_OWNER = 1_024;
const MAX_CHECK_INTERVAL_MS = 250;
const CHECKS_PER_TIMEOUT = 8;

/** The idle connections of one owner, in the order in which they became idle. */
interface Idle {
  count: number;
  /** The last connection is used first. The others may stay idle until they are closed. */
  readonly rested: Connection[];
}

class Pool {
  readonly #origin: Origin;
  readonly #heads = new HeadCache();
  readonly #all = new Set<Connection>();
  /** All idle connections, in the order in which they became idle. */
  readonly #idle = new Set<Connection>();
  readonly #idleOf = new Map<Owner, Idle>();
  /** The idle connections that still rest. */
  readonly #resting: Connection[] = [];
  #restTimer: NodeJS.Timeout | null = null;
  /** One timer checks all connections. A timer for each would be set again with every request. */
  readonly #checkTimer: NodeJS.Timeout;
  /** Called when the last connection has closed; null while the pool is in use. */
  #retired: (() => void) | null = null;

  /** `silence_ms`: the longest time for which a connection may receive nothing while it carries a request. */
  constructor(origin: Origin, silence_ms: number) {
    this.#origin = origin;
    const interval_ms = Math.min(MAX_CHECK_INTERVAL_MS, Math.ceil(silence_ms / CHECKS_PER_TIMEOUT));
    this.#checkTimer = setInterval(() => this.#checkAll(), interval_ms).unref();
  }

  /** Returns a connection for one request. `owner` null: a new connection that carries this request only. */
  acquire(owner: Owner | null): Connection {
    const idle = owner === null ? undefined : this.#idleOf.get(owner);
    const taken = idle?.rested.pop();
    if (idle === undefined || taken === undefined) return this.open(owner);
    idle.count--;
    this.#idle.delete(taken);
    const now_ms = performance.now();
    if (!isExpired(taken, now_ms)) return taken;
    // The periodic check is overdue because the process was blocked.
    taken.destroy();
    this.#closeExpired(now_ms);
    return this.open(owner);
  }

  open(owner: Owner | null): Connection {
    const connection = new Connection(this.#origin, this.#heads, owner, {
      idle: (one) => this.#addIdle(one),
      closed: (one) => this.#remove(one),
    });
    this.#all.add(connection);
    return connection;
  }

  close(): void {
    clearInterval(this.#checkTimer);
    clearTimeout(this.#restTimer ?? undefined);
    for (const connection of [...this.#all]) connection.abort();
  }

  retire(): Promise<void> {
    return new Promise((resolve) => {
      this.#retired = resolve;
      for (const connection of [...this.#idle]) connection.destroy();
    });
  }

  #addIdle(connection: Connection): void {
    const { owner } = connection;
    if (owner === null || this.#retired !== null) return connection.destroy();
    let idle = this.#idleOf.get(owner);
    if (idle === undefined) {
      idle = { count: 0, rested: [] };
      this.#idleOf.set(owner, idle);
    }
    idle.count++;
    this.#idle.add(connection);
    if (this.#resting.push(connection) === 1) this.#scheduleRest(REST_MS);
    if (idle.count > MAX_IDLE_OF_OWNER) this.#closeOldest(owner);
    else if (this.#idle.size > MAX_IDLE) this.#closeOldest(null);
  }

  #remove(connection: Connection): void {
    this.#all.delete(connection);
    if (!this.#idle.delete(connection) || connection.owner === null) return;
    const idle = this.#idleOf.get(connection.owner);
    if (idle !== undefined) idle.count--;
    for (const list of [this.#resting, idle?.rested ?? []]) {
      const at = list.indexOf(connection);
      if (at >= 0) list.splice(at, 1);
    }
  }

  #scheduleRest(after_ms: number): void {
    this.#restTimer = setTimeout(() => {
      const now_ms = performance.now();
      // After the process was blocked, pending bytes are read before an immediate runs. They must be seen before the rest ends.
      setImmediate(() => this.#finishRest(now_ms));
    }, after_ms).unref();
  }

  #finishRest(now_ms: number): void {
    const resting = this.#resting;
    let rested = 0;
    while (rested < resting.length && now_ms - (resting[rested] as Connection).idle_since_ms >= REST_MS) rested++;
    for (const one of resting.splice(0, rested)) this.#idleOf.get(one.owner as Owner)?.rested.push(one);
    const first = resting[0];
    if (first !== undefined)
      this.#scheduleRest(Math.max(REST_CHECK_MS, Math.ceil(first.idle_since_ms + REST_MS - now_ms)));
  }

  /** Closes the connection of `owner`, or of any owner, that has been idle longest. */
  #closeOldest(owner: Owner | null): void {
    for (const one of this.#idle) if (owner === null || one.owner === owner) return one.destroy();
  }

  #checkAll(): void {
    const now_ms = performance.now();
    if (this.#retired !== null && this.#all.size === 0) {
      this.close();
      this.#retired();
    }
    for (const connection of this.#all) connection.checkTimeout(now_ms);
    this.#closeExpired(now_ms);
    for (const [owner, { count }] of this.#idleOf) if (count === 0) this.#idleOf.delete(owner);
  }

  #closeExpired(now_ms: number): void {
    for (const connection of this.#idle) {
      if (!isExpired(connection, now_ms)) return;
      connection.destroy();
    }
  }
}

const isExpired = (connection: Connection, now_ms: number): boolean =>
  now_ms - connection.idle_since_ms > KEEP_ALIVE_MS;
