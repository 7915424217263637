// The backend client: sends a request to the backend over a kept connection and hands its answer on as it arrives.

import { asProblem, Problem } from '../http/problem.ts';
import type { Owner } from '../keys/caller.ts';
import type { Backend, BackendCall, BackendRequest, ResponseHandler, ResponseHead } from './backend.ts';
import type { Connection, Origin, Taker } from './connection.ts';
import { BackendFault } from './errors.ts';
import { Pool } from './pool.ts';
import { writeRequest } from './request.ts';

const HUNG_UP = new Set(['ECONNRESET', 'EPIPE']);
const HUNG_UP_WITHIN_MS = 500;

export function createBackend(options: { backend_url: string; backend_timeout_ms: number }): Backend {
  const base = new URL(options.backend_url);
  const secure = base.protocol === 'https:';
  const origin: Origin = {
    secure,
    host: base.hostname.replace(/^\[|\]$/g, ''),
    port: Number(base.port) || (secure ? 443 : 80),
  };
  const pool = new Pool(origin, options.backend_timeout_ms);
  const prefix = base.pathname.replace(/\/+$/, '');
  return {
    call(request, handler) {
      const parts = writeRequest(request, prefix, base.host);
      const call = new Call(pool, request, parts, options.backend_timeout_ms, handler);
      call.send(pool.take(request.owner));
      return call;
    },
    async close() {
      pool.close();
    },
  };
}

const NO_PARTS: readonly Buffer[] = [];

class Call implements Taker, BackendCall {
  readonly #pool: Pool;
  /** Until the answer begins: it may have to be sent again. */
  #parts: readonly Buffer[];
  readonly #repeatable: boolean;
  readonly #owner: Owner | null;
  readonly #silence_ms: number;
  readonly #handler: ResponseHandler;
  readonly #sent_ms = performance.now();
  #connection: Connection | null = null;
  #carried = false;
  #repeated = false;
  #headed = false;
  #over = false;

  constructor(
    pool: Pool,
    { repeatable, owner }: BackendRequest,
    parts: readonly Buffer[],
    silence_ms: number,
    handler: ResponseHandler,
  ) {
    this.#pool = pool;
    this.#repeatable = repeatable;
    this.#owner = owner;
    this.#parts = parts;
    this.#silence_ms = silence_ms;
    this.#handler = handler;
  }

  send(connection: Connection): void {
    this.#connection = connection;
    this.#carried = connection.carried;
    connection.ask(this.#parts, this.#silence_ms, this);
  }

  head(head: ResponseHead): void {
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
    if (this.#repeatable && !this.#repeated && !this.#headed && this.#mayRepeat(cause)) {
      this.#repeated = true;
      return this.send(this.#pool.fresh(this.#owner));
    }
    this.#over = true;
    // What a delivery refused is its own problem, not the backend's.
    this.#handler.fail(cause instanceof Problem ? cause : problemOf(cause, this.#headed));
  }

  /**
   * A backend may hang up on an idle connection just as a request goes out on it (llama-server does after every stream), or
   * say first that its patience with it is over. A request that may be repeated is sent once more, on a fresh connection, if
   * it went out on one that had carried an answer, and that said so or broke at once and without a head.
   */
  #mayRepeat(cause: unknown): boolean {
    const kind = cause instanceof BackendFault ? cause.kind : null;
    const hungUp = kind === 'hung_up' || HUNG_UP.has((cause as NodeJS.ErrnoException)?.code ?? '');
    return this.#carried && (kind === 'not_asked' || (hungUp && performance.now() - this.#sent_ms < HUNG_UP_WITHIN_MS));
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
