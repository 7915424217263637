// The engine client: sends a request to the backend and hands its answer on as it arrives, over undici's dispatcher.
import type { IncomingHttpHeaders } from 'node:http';
import { Agent, type Dispatcher } from 'undici';
import { Problem } from '../problem.ts';
import type { Headers } from './headers.ts';

export interface EngineRequest {
  readonly method: string;
  /** Begins with a slash and stands after BACKEND_URL: `/chat/completions`. Query included. */
  readonly path: string;
  readonly headers: Headers;
  readonly body: Buffer | string | null;
  /** Asking twice does no harm: it may be sent again when the backend hung up. */
  readonly repeatable: boolean;
}

/** Called in this order: head once, data any number of times, then end or fail, once. */
export interface EngineHandler {
  head(status: number, headers: IncomingHttpHeaders): void;
  data(chunk: Buffer): void;
  end(): void;
  fail(problem: Problem): void;
}

/** The reader's end of an answer. */
export interface EngineCall {
  /** Stops reading: the backend feels it as back-pressure. */
  pause(): void;
  resume(): void;
  /** Ends the backend's request. No handler method is called after it. */
  cancel(): void;
}

export interface Engine {
  call(request: EngineRequest, handler: EngineHandler): EngineCall;
  close(): Promise<void>;
}

/** Idle connections go before a backend closes them: uvicorn does after 5 s, and a request may be on its way then. */
const KEEP_ALIVE_MS = 4_000;
const CONNECT_TIMEOUT_MS = 5_000;
const HUNG_UP = new Set(['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE']);
const HUNG_UP_WITHIN_MS = 500;
const MAX_HEADER_BYTES = 64 * 1024;

export function createEngine(options: { backend_url: string; backend_timeout_ms: number }): Engine {
  const base = new URL(options.backend_url);
  const prefix = base.pathname.replace(/\/+$/, '');
  const agent = new Agent({
    headersTimeout: options.backend_timeout_ms,
    bodyTimeout: options.backend_timeout_ms,
    connect: { timeout: CONNECT_TIMEOUT_MS },
    keepAliveTimeout: KEEP_ALIVE_MS,
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
    maxHeaderSize: MAX_HEADER_BYTES,
    pipelining: 1,
  });
  const pool = { answered_ms: Number.NEGATIVE_INFINITY };
  function dispatch({ path, method, headers, body }: EngineRequest, call: Call): void {
    const options = {
      origin: base.origin,
      path: prefix + path,
      method: method as Dispatcher.HttpMethod,
      headers,
      body,
    };
    agent.dispatch(options, call);
  }
  return {
    call(request, handler) {
      const send = () => dispatch(request, call);
      const call = new Call(handler, pool, request.repeatable ? send : null);
      // The caller holds the call before anything can happen to it, a refusal of its own headers included.
      queueMicrotask(() => {
        if (!call.over) send();
      });
      return call;
    },
    close: () => agent.destroy(),
  };
}

class Call implements Dispatcher.DispatchHandler, EngineCall {
  readonly #handler: EngineHandler;
  readonly #pool: { answered_ms: number };
  readonly #sendAgain: (() => void) | null;
  readonly #sent_ms = performance.now();
  #repeated = false;
  #controller: Dispatcher.DispatchController | null = null;
  #headed = false;
  #over = false;

  constructor(handler: EngineHandler, pool: { answered_ms: number }, sendAgain: (() => void) | null) {
    this.#handler = handler;
    this.#pool = pool;
    this.#sendAgain = sendAgain;
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#over) controller.abort(new Error('cancelled'));
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (this.#over || status < 200) return;
    this.#headed = true;
    this.#handler.head(status, headers);
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#over) this.#handler.data(chunk);
  }

  onResponseEnd(): void {
    if (this.#over) return;
    this.#over = true;
    this.#pool.answered_ms = performance.now();
    this.#handler.end();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#over) return;
    if (this.#sendAgain !== null && !this.#repeated && !this.#headed && this.#wasHungUp(error)) {
      this.#repeated = true;
      this.#controller = null;
      return this.#sendAgain();
    }
    this.#over = true;
    // What a delivery refused is its own problem, not the backend's.
    this.#handler.fail(error instanceof Problem ? error : problemOf(error, this.#headed));
  }

  /**
   * A backend may hang up on an idle connection just as a request goes out on it (llama-server does after every stream).
   * A request that may be repeated is sent once more, if it went out on a connection that had carried an answer, and that
   * broke at once and without a byte of this one.
   */
  #wasHungUp(error: Error): boolean {
    const { code = '', socket } = error as NodeJS.ErrnoException & { socket?: { bytesRead?: number } };
    const used =
      socket?.bytesRead === undefined ? this.#sent_ms - this.#pool.answered_ms < KEEP_ALIVE_MS : socket.bytesRead > 0;
    return HUNG_UP.has(code) && used && performance.now() - this.#sent_ms < HUNG_UP_WITHIN_MS;
  }

  get over(): boolean {
    return this.#over;
  }

  pause(): void {
    if (!this.#over) this.#controller?.pause();
  }

  resume(): void {
    if (!this.#over) this.#controller?.resume();
  }

  cancel(): void {
    if (this.#over) return;
    this.#over = true;
    this.#controller?.abort(new Error('cancelled'));
  }
}

/** Backend internals (addresses, parser texts) stay in `cause`; the client reads what it can act on. */
function problemOf(cause: Error, headed: boolean): Problem {
  const code = (cause as NodeJS.ErrnoException).code ?? '';
  if (code === 'UND_ERR_HEADERS_TIMEOUT' || code === 'UND_ERR_BODY_TIMEOUT')
    return new Problem('backend_timeout', 'The backend stayed silent for too long.', { cause });
  if (headed)
    return new Problem('backend_bad_response', 'The backend broke off in the middle of its answer.', { cause });
  if (code.startsWith('HPE_') || code === 'UND_ERR_HEADERS_OVERFLOW')
    return new Problem('backend_bad_response', 'The backend did not answer in HTTP.', { cause });
  return new Problem('backend_unreachable', 'The backend cannot be reached.', { cause, retryAfterSeconds: 1 });
}
