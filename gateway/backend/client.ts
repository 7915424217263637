// The backend client: sends a request over one of undici's clients, each of which is one connection, and passes the response to a handler as
// it arrives.
import type { IncomingHttpHeaders } from 'node:http';
import { Readable } from 'node:stream';
import { buildConnector, Client as Connection, type Dispatcher, errors } from 'undici';
import { EventScanner } from '../../proto/stream/sse.ts';
import { asProblem, Problem } from '../base/problem.ts';
import type { Owner } from '../keys/keys.ts';
import type { Backend, BackendCall, BackendRequest, Headers, ResponseHandler, ResponseHead } from './backend.ts';
import { BackendFault, faultOf } from './errors.ts';

const DISCONNECT_WITHIN_MS = 500;
const CONNECT_TIMEOUT_MS = 5_000;
/** Limit for the head of a response, and for its trailers. */
const MAX_HEAD_BYTES = 64 * 1024;

interface ResponseLimits {
  readonly max_stream_bytes: number;
  readonly max_stream_events: number;
  /** The time from the request to the last byte. */
  readonly max_answer_ms: number;
}

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
  const pool = new ConnectionPool(base.origin, silence_ms);
  const prefix = base.pathname.replace(/\/+$/, '');
  return {
    call(request, handler) {
      const call = new Call(pool, request, prefix, silence_ms, new ResponseMeter(options), handler);
      call.send(pool.acquire(request.owner));
      return call;
    },
    close: () => pool.close(),
    retire: () => pool.retire(),
  };
}

class Call implements Dispatcher.DispatchHandler, BackendCall {
  readonly #pool: ConnectionPool;
  /** Kept until the response begins, because the request may be sent again. */
  #request: Dispatcher.DispatchOptions | null;
  readonly #repeatable: boolean;
  readonly #owner: Owner | null;
  readonly #silence_ms: number;
  readonly #meter: ResponseMeter;
  readonly #handler: ResponseHandler;
  readonly #sent_ms = performance.now();
  #connection: Connection | null = null;
  #controller: Dispatcher.DispatchController | null = null;
  /** The connection has carried a response before, so the backend may have closed it by now. */
  #reused = false;
  #repeated = false;
  #hasHead = false;
  /** The connection may carry another request after this response. */
  #reusable = true;
  #ended = false;

  constructor(
    pool: ConnectionPool,
    { method, path, headers, body, owner, repeatable }: BackendRequest,
    prefix: string,
    silence_ms: number,
    meter: ResponseMeter,
    handler: ResponseHandler,
  ) {
    this.#pool = pool;
    // `reset`: "connection: close", for a connection that carries this request only.
    this.#request = {
      method: method as Dispatcher.HttpMethod,
      path: `${prefix}${path}`,
      headers,
      body: typeof body === 'string' ? Buffer.from(body) : body,
      ...(owner === null ? { reset: true } : {}),
    };
    this.#repeatable = repeatable;
    this.#owner = owner;
    this.#silence_ms = silence_ms;
    this.#meter = meter;
    this.#handler = handler;
  }

  send({ connection, used }: { readonly connection: Connection; readonly used: boolean }): void {
    this.#connection = connection;
    this.#reused = used;
    connection.dispatch(releasing(this.#request as Dispatcher.DispatchOptions), this);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: ReceivedHeaders): void {
    if (status < 200) return this.#interim();
    const { head, reusable } = headOf(status, headers);
    // A server may send 408 as it closes an idle connection (RFC 9110 §15.5.9); it crosses a request that is on its way.
    if (status === 408 && this.#reused && /\bclose\b/i.test(head.headers.connection ?? ''))
      throw new BackendFault('unsolicited', 'the end of an idle connection');
    this.#hasHead = true;
    this.#request = null;
    this.#reusable = reusable;
    this.#meter.head(head);
    this.#handler.head(head);
  }

  /** undici starts its timer anew with each interim response, and they could arrive without end. */
  #interim(): void {
    if (performance.now() - this.#sent_ms > this.#silence_ms)
      throw new BackendFault('timeout', 'nothing but interim responses');
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#ended) return;
    this.#handler.data(chunk);
    const exceeded = this.#meter.exceeds(chunk);
    if (exceeded === null) return;
    this.cancel();
    this.#handler.fail(exceeded);
  }

  onResponseEnd(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#pool.release(this.#connection as Connection, this.#reusable ? this.#owner : null);
    try {
      this.#handler.end();
    } catch (error) {
      this.#handler.fail(asProblem(error));
    }
  }

  onResponseError(_controller: Dispatcher.DispatchController | null, cause: Error): void {
    if (this.#ended) return;
    this.#pool.drop(this.#connection as Connection);
    if (this.#mayRepeat(cause)) {
      this.#repeated = true;
      this.#controller = null;
      return this.send(this.#pool.open());
    }
    this.#ended = true;
    // A Problem comes from the delivery; any other cause is a fault of the backend, or of the request's own headers.
    const problem = cause instanceof Problem ? cause : problemOf(cause, this.#hasHead);
    this.#handler.fail(problem, this.#controller === null);
  }

  /**
   * Decides whether the request is sent once more, on a new connection. A backend may close an idle connection just as a request goes out
   * on it (llama-server does after every stream), or send a 408 as it closes. The first connection must have carried a response before, and
   * must have failed that way: before the request was sent, with a 408, or at once and before a head.
   */
  #mayRepeat(cause: Error): boolean {
    if (this.#repeated || this.#hasHead || !this.#reused) return false;
    if (this.#controller === null) return true;
    if (!this.#repeatable) return false;
    const kind = faultOf(cause);
    return (
      kind === 'unsolicited' || (kind === 'disconnected' && performance.now() - this.#sent_ms < DISCONNECT_WITHIN_MS)
    );
  }

  pause(): void {
    if (!this.#ended) this.#controller?.pause();
  }

  resume(): void {
    if (!this.#ended) this.#controller?.resume();
  }

  cancel(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#pool.drop(this.#connection as Connection);
  }
}

/** undici keeps the body of a request until its response has ended. A shorter one may stay. */
const MAX_KEPT_BYTES = 32 * 1024;

/** Returns the request with a body that can be read once, and is not kept when it was sent. */
function releasing(request: Dispatcher.DispatchOptions): Dispatcher.DispatchOptions {
  const { body } = request;
  if (!Buffer.isBuffer(body) || body.length <= MAX_KEPT_BYTES) return request;
  const headers = { ...(request.headers as Headers), 'content-length': String(body.length) };
  let rest: Buffer | null = body;
  const reading = new Readable({
    read() {
      this.push(rest);
      if (rest !== null) this.push(null);
      rest = null;
    },
  });
  return { ...request, headers, body: reading };
}

type ReceivedHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** @throws {BackendFault} not_http for a framing that other parsers may read in another way. */
function headOf(
  status: number,
  { 'content-length': length, date: _, ...received }: ReceivedHeaders,
): { readonly head: ResponseHead; readonly reusable: boolean } {
  const headers: IncomingHttpHeaders = {};
  for (const [name, value] of Object.entries(received)) headers[name] = trimmed(value);
  const coding = headers['transfer-encoding'];
  if (coding !== undefined && coding.toLowerCase() !== 'chunked')
    throw new BackendFault('not_http', 'a transfer coding other than chunked');
  // These have no content, whatever their headers say (RFC 9112 §6.3).
  const empty = status === 204 || status === 304;
  return {
    head: { status, headers, length: length === undefined || empty ? null : Number(length) },
    // The bytes after a 204 that announces chunks may be that content and not the next response.
    reusable: status !== 204 || coding === undefined,
  };
}

/** Joins the values of one name, without the white space at the end (RFC 9112 §5). */
const trimmed = (value: string | readonly string[] = ''): string =>
  (typeof value === 'string' ? value : value.join(', ')).replace(/[ \t]+$/, '');

/** Tells the client only what it can act on. The details stay in `cause`. */
function problemOf(cause: Error, hasHead: boolean): Problem {
  if (cause instanceof errors.InvalidArgumentError)
    return new Problem('invalid_request', 'The request has a path or a header that cannot be sent on.', { cause });
  const kind = faultOf(cause);
  if (kind === 'stopped')
    return new Problem('overloaded', 'The gateway was told to stop before the answer ended.', { retryAfterSeconds: 1 });
  if (kind === 'timeout')
    return new Problem('backend_timeout', 'The backend stayed silent for too long (BACKEND_TIMEOUT_MS).', { cause });
  if (hasHead)
    return new Problem('backend_bad_response', 'The backend broke off in the middle of its answer.', { cause });
  if (kind === 'not_http') return new Problem('backend_bad_response', 'The backend did not answer in HTTP.', { cause });
  return new Problem('backend_unreachable', 'The backend cannot be reached.', { cause, retryAfterSeconds: 1 });
}

// Limits of one response.

/** Counts one response against its limits. The time is checked when a chunk arrives; between chunks the limit on silence applies. */
export class ResponseMeter {
  readonly #limits: ResponseLimits;
  readonly #began_ms = performance.now();
  #stream = false;
  #bytes = 0;
  readonly #scanner = new EventScanner();

  constructor(limits: ResponseLimits) {
    this.#limits = limits;
  }

  head({ headers }: ResponseHead): void {
    this.#stream = /^text\/event-stream\b/i.test(headers['content-type'] ?? '');
  }

  /** Returns the limit that the response exceeds with this chunk, or null. */
  exceeds(chunk: Buffer): Problem | null {
    const { max_answer_ms, max_stream_bytes, max_stream_events } = this.#limits;
    if (performance.now() - this.#began_ms > max_answer_ms)
      return new Problem('backend_timeout', `The answer was not complete within ${max_answer_ms} ms.`);
    if (!this.#stream) return null;
    this.#bytes += chunk.length;
    this.#scanner.scan(chunk);
    if (this.#bytes > max_stream_bytes)
      return new Problem('backend_bad_response', `The stream is longer than ${max_stream_bytes} bytes.`);
    if (this.#scanner.events > max_stream_events)
      return new Problem('backend_bad_response', `The stream has more than ${max_stream_events} events.`);
    return null;
  }
}

// The connections to the backend. An idle connection is reused by its owner only, and rests before it is reused. undici's own pool has no
// such rest, and gives a request the connection whose response ended last.

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

class ConnectionPool {
  readonly #origin: string;
  readonly #options: Connection.Options;
  readonly #all = new Set<Connection>();
  /** The idle connections with their owners, in the order in which they became idle. */
  readonly #idle = new Map<Connection, Owner>();
  /** The connections of each owner that have rested. The last is used first. The others may stay idle until they are closed. */
  readonly #rested = new Map<Owner, Connection[]>();
  /** Idle connections that still rest, in the order in which they became idle. */
  readonly #resting: { readonly connection: Connection; readonly owner: Owner; readonly until_ms: number }[] = [];
  #retired: (() => void) | null = null;

  /** `silence_ms`: the longest time for which a connection may receive nothing while it carries a request. */
  constructor(origin: string, silence_ms: number) {
    this.#origin = origin;
    this.#options = {
      connect: buildConnector({ timeout: CONNECT_TIMEOUT_MS, allowH2: false }),
      keepAliveTimeout: KEEP_ALIVE_MS,
      keepAliveMaxTimeout: KEEP_ALIVE_MS,
      headersTimeout: silence_ms,
      bodyTimeout: silence_ms,
      maxHeaderSize: MAX_HEAD_BYTES,
    };
  }

  /** Returns a connection for one request. `owner` null: a new connection that carries this request only. */
  acquire(owner: Owner | null): { readonly connection: Connection; readonly used: boolean } {
    const connection = owner === null ? undefined : this.#rested.get(owner)?.pop();
    if (connection === undefined) return this.open();
    this.#idle.delete(connection);
    return { connection, used: true };
  }

  open(): { readonly connection: Connection; readonly used: boolean } {
    const connection = new Connection(this.#origin, this.#options);
    this.#all.add(connection);
    // It would connect again with its next request.
    connection.on('disconnect', () => this.drop(connection));
    return { connection, used: false };
  }

  /** The connection has carried its response. `owner` null: it carries no other. */
  release(connection: Connection, owner: Owner | null): void {
    if (owner === null || this.#retired !== null) return this.drop(connection);
    this.#idle.set(connection, owner);
    if (this.#idle.size > MAX_IDLE) this.#dropOldest(null);
    else if (this.#idle.size > MAX_IDLE_OF_OWNER) this.#limitOwner(owner);
    this.#resting.push({ connection, owner, until_ms: performance.now() + REST_MS });
    if (this.#resting.length === 1) this.#scheduleRest(REST_MS);
  }

  #scheduleRest(after_ms: number): void {
    setTimeout(() => {
      const now_ms = performance.now();
      // After the process was blocked, pending bytes are read before an immediate runs. They must be seen before the rest ends.
      setImmediate(() => this.#finishRest(now_ms));
    }, after_ms).unref();
  }

  #finishRest(now_ms: number): void {
    let count = 0;
    for (const { connection, owner, until_ms } of this.#resting) {
      if (until_ms > now_ms) break;
      count++;
      if (!this.#idle.has(connection)) continue;
      const rested = this.#rested.get(owner);
      if (rested === undefined) this.#rested.set(owner, [connection]);
      else rested.push(connection);
    }
    this.#resting.splice(0, count);
    const [first] = this.#resting;
    if (first !== undefined) this.#scheduleRest(Math.max(REST_CHECK_MS, Math.ceil(first.until_ms - now_ms)));
  }

  /** Closes the connection, and ends its request. */
  drop(connection: Connection): void {
    if (!this.#all.delete(connection)) return;
    const owner = this.#idle.get(connection);
    this.#idle.delete(connection);
    const rested = (owner === undefined ? undefined : this.#rested.get(owner)) ?? [];
    const others = rested.filter((one) => one !== connection);
    if (owner !== undefined && others.length === 0) this.#rested.delete(owner);
    else if (owner !== undefined) this.#rested.set(owner, others);
    void connection.destroy();
    if (this.#all.size === 0) this.#retired?.();
  }

  /** Ends all requests. */
  async close(): Promise<void> {
    const stopped = new BackendFault('stopped', 'the gateway stops');
    await Promise.all([...this.#all].map((connection) => connection.destroy(stopped)));
  }

  retire(): Promise<void> {
    return new Promise((resolve) => {
      this.#retired = resolve;
      for (const connection of [...this.#idle.keys()]) this.drop(connection);
      if (this.#all.size === 0) resolve();
    });
  }

  #limitOwner(owner: Owner): void {
    let count = 0;
    for (const one of this.#idle.values()) if (one === owner) count++;
    if (count > MAX_IDLE_OF_OWNER) this.#dropOldest(owner);
  }

  /** Closes the connection of `owner`, or of any owner, that has been idle longest. */
  #dropOldest(owner: Owner | null): void {
    for (const [connection, of] of this.#idle) if (owner === null || of === owner) return this.drop(connection);
  }
}
