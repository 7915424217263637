// The engine client: sends a request to the backend over a kept connection and hands its answer on as it arrives.
import { asProblem, Problem } from '../problem.ts';
import { Connection, type Origin, type Taker } from './connection.ts';
import type { AnswerHead, Engine, EngineCall, EngineHandler } from './engine.ts';
import { BackendFault } from './fault.ts';
import { Heads } from './heads.ts';
import { writeRequest } from './request.ts';

const HUNG_UP = new Set(['ECONNRESET', 'EPIPE']);
const HUNG_UP_WITHIN_MS = 500;

export function createEngine(options: { backend_url: string; backend_timeout_ms: number }): Engine {
  const base = new URL(options.backend_url);
  const secure = base.protocol === 'https:';
  const origin: Origin = {
    secure,
    host: base.hostname.replace(/^\[|\]$/g, ''),
    port: Number(base.port) || (secure ? 443 : 80),
  };
  const pool = new Pool(origin, Math.min(MAX_LOOK_MS, Math.ceil(options.backend_timeout_ms / LOOKS_IN_SILENCE)));
  const prefix = base.pathname.replace(/\/+$/, '');
  return {
    call(request, handler) {
      const parts = writeRequest(request, prefix, base.host);
      const call = new Call(pool, parts, request.repeatable, options.backend_timeout_ms, handler);
      call.send(pool.take());
      return call;
    },
    async close() {
      pool.close();
    },
  };
}

/** Idle connections go before a backend closes them: uvicorn does after 5 s, and a request may be on its way then. */
const KEEP_ALIVE_MS = 4_000;
const MAX_LOOK_MS = 250;
const LOOKS_IN_SILENCE = 8;

/** Idle connections, the last one used first: the others may rest until they are closed. */
class Pool {
  readonly #origin: Origin;
  readonly #heads = new Heads();
  readonly #all = new Set<Connection>();
  /** The one that has been idle for longest stands first. */
  readonly #idle: Connection[] = [];
  /** One look at all of them: a timer of its own for each would be set with every request. */
  readonly #looking: NodeJS.Timeout;

  constructor(origin: Origin, look_ms: number) {
    this.#origin = origin;
    this.#looking = setInterval(() => this.#look(), look_ms).unref();
  }

  take(): Connection {
    const last = this.#idle.pop();
    if (last === undefined || !old(last)) return last ?? this.fresh();
    // Nobody looked for a while: the process stood still.
    last.destroy();
    this.#endOld();
    return this.fresh();
  }

  #look(): void {
    const now_ms = performance.now();
    for (const connection of this.#all) connection.look(now_ms);
    this.#endOld();
  }

  #endOld(): void {
    for (let first = this.#idle[0]; first !== undefined && old(first); first = this.#idle[0]) first.destroy();
  }

  fresh(): Connection {
    const connection = new Connection(this.#origin, this.#heads, {
      idle: (one) => this.#idle.push(one),
      gone: (one) => {
        this.#all.delete(one);
        const at = this.#idle.lastIndexOf(one);
        if (at >= 0) this.#idle.splice(at, 1);
      },
    });
    this.#all.add(connection);
    return connection;
  }

  close(): void {
    clearInterval(this.#looking);
    for (const connection of [...this.#all]) connection.cut();
  }
}

const old = (connection: Connection): boolean => performance.now() - connection.idle_since_ms > KEEP_ALIVE_MS;

const NO_PARTS: readonly Buffer[] = [];

class Call implements Taker, EngineCall {
  readonly #pool: Pool;
  /** Until the answer begins: it may have to be sent again. */
  #parts: readonly Buffer[];
  readonly #repeatable: boolean;
  readonly #silence_ms: number;
  readonly #handler: EngineHandler;
  readonly #sent_ms = performance.now();
  #connection: Connection | null = null;
  #carried = false;
  #repeated = false;
  #headed = false;
  #over = false;

  constructor(pool: Pool, parts: readonly Buffer[], repeatable: boolean, silence_ms: number, handler: EngineHandler) {
    this.#pool = pool;
    this.#parts = parts;
    this.#repeatable = repeatable;
    this.#silence_ms = silence_ms;
    this.#handler = handler;
  }

  send(connection: Connection): void {
    this.#connection = connection;
    this.#carried = connection.carried;
    connection.ask(this.#parts, this.#silence_ms, this);
  }

  head(head: AnswerHead): void {
    this.#headed = true;
    this.#parts = NO_PARTS;
    this.#handler.head(head);
  }

  data(chunk: Buffer): void {
    if (!this.#over) this.#handler.data(chunk);
  }

  end(): void {
    if (this.#over) return;
    this.#over = true;
    try {
      this.#handler.end();
    } catch (error) {
      this.#handler.fail(asProblem(error));
    }
  }

  broken(cause: unknown): void {
    if (this.#over) return;
    if (this.#repeatable && !this.#repeated && !this.#headed && this.#wasHungUp(cause)) {
      this.#repeated = true;
      return this.send(this.#pool.fresh());
    }
    this.#over = true;
    // What a delivery refused is its own problem, not the backend's.
    this.#handler.fail(cause instanceof Problem ? cause : problemOf(cause, this.#headed));
  }

  /**
   * A backend may hang up on an idle connection just as a request goes out on it (llama-server does after every stream).
   * A request that may be repeated is sent once more, on a connection of its own, if it went out on one that had carried
   * an answer, and that broke at once and without a head.
   */
  #wasHungUp(cause: unknown): boolean {
    const hungUp =
      cause instanceof BackendFault
        ? cause.kind === 'hung_up'
        : HUNG_UP.has((cause as NodeJS.ErrnoException)?.code ?? '');
    return hungUp && this.#carried && performance.now() - this.#sent_ms < HUNG_UP_WITHIN_MS;
  }

  pause(): void {
    if (!this.#over) this.#connection?.pause();
  }

  resume(): void {
    if (!this.#over) this.#connection?.resume();
  }

  cancel(): void {
    if (this.#over) return;
    this.#over = true;
    this.#connection?.destroy();
  }
}

/** The client reads what it can act on; the rest stays in `cause`. */
function problemOf(cause: unknown, headed: boolean): Problem {
  const kind = cause instanceof BackendFault ? cause.kind : null;
  if (kind === 'stopped')
    return new Problem('overloaded', 'The gateway was told to stop before the answer ended.', { retryAfterSeconds: 1 });
  if (kind === 'silent') return new Problem('backend_timeout', 'The backend stayed silent for too long.', { cause });
  if (headed)
    return new Problem('backend_bad_response', 'The backend broke off in the middle of its answer.', { cause });
  if (kind === 'not_http') return new Problem('backend_bad_response', 'The backend did not answer in HTTP.', { cause });
  return new Problem('backend_unreachable', 'The backend cannot be reached.', { cause, retryAfterSeconds: 1 });
}
