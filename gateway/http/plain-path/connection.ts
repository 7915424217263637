// One client's connection while its requests are of the plain form; at the first that is not, Node's parser has it for good.

import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Logger } from 'pino';
import { where } from '../../../proto/log.ts';
import { GrowingBuffer } from '../bytes.ts';
import type { Bindings, HttpBindings } from '../context.ts';
import { Unserved } from '../paced-connection.ts';
import { linger } from '../refusal.ts';
import { HeadCache, MAX_PLAIN_BYTES, type PlainRequest, Progress, readRequest } from './request.ts';
import { PlainResponse } from './response.ts';

interface PlainOptions {
  serve(request: PlainRequest, response: PlainResponse): void;
  /** Takes the connection over, with the bytes that were read from it put back. */
  handOver(socket: Socket): void;
  /** For the first byte: a connection that never speaks is let go. */
  readonly first_byte_ms: number;
  readonly keep_alive_ms: number;
}

/** A request in several pieces is waited for this long; a slower one is Node's, which has its own limits for those. */
const PARTIAL_REQUEST_MS = 1_000;
/** A client that sends ahead of its turn takes its responses at least so fast, or is let go: 8 MiB a second. */
const MIN_BYTES_PER_MS = 8 * 1024;

export class PlainConnection {
  readonly #socket: Socket;
  readonly #options: PlainOptions;
  readonly #headCache = new HeadCache();
  readonly #unserved: Unserved;
  #pending: Buffer | null = null;
  /** What `#pending` is a view of, once it came in pieces. */
  #growing: GrowingBuffer | null = null;
  #progress = new Progress();
  #partialTimer: NodeJS.Timeout | null = null;
  #stallTimer: NodeJS.Timeout | null = null;
  #response: PlainResponse | null = null;
  /** An answer just ended, and what came meanwhile is about to be looked at. */
  #nextScheduled = false;
  #stopping = false;
  /** The answer that runs, or ran, is the last: what still comes is nobody's request. */
  #closing = false;
  /** Idle, and the socket's timeout is the last one: when it has passed, the connection ends. */
  #idle = true;

  constructor(socket: Socket, options: PlainOptions) {
    this.#socket = socket;
    this.#options = options;
    this.#unserved = new Unserved(() => this.#socket.destroy());
    socket.on('data', this.#onData).on('end', this.#onEnd).on('close', this.#onClose);
    socket.on('drain', this.#onDrain).on('timeout', this.#onTimeout).on('error', this.#onError);
    socket.setTimeout(options.first_byte_ms);
  }

  get responding(): boolean {
    return this.#response !== null;
  }

  /** No request is taken after this; the one that runs is answered, and Node answers one that is on its way. */
  stop(): void {
    this.#stopping = true;
    if (this.#response !== null) this.#response.last = true;
    else if (this.#pending !== null) this.#handOver();
    else if (!this.#closing) {
      this.#closing = true;
      this.#socket.destroySoon();
    }
  }

  #onData = (bytes: Buffer): void => {
    const stalled = this.#socket.writableNeedDrain;
    if (stalled) this.#startStallTimer();
    if (this.#closing) return;
    if (this.#pending !== null) this.#growing ??= new GrowingBuffer(this.#pending);
    const all = this.#pending === null ? bytes : (this.#growing as GrowingBuffer).add(bytes);
    // Whatever comes before the client has its answer waits.
    if (this.#response === null && !this.#nextScheduled && !stalled) this.#take(all);
    else {
      this.#pending = all;
      if (all.length > MAX_PLAIN_BYTES) this.#endAfterResponse();
    }
    this.#updateUnserved();
  };

  #updateUnserved(): void {
    this.#unserved.set(this.#pending?.length ?? 0);
  }

  /**
   * The socket's own timeout begins anew with whatever the client sends, though it takes nothing: from here on a timer runs beside
   * it. Node does not tell how much of a write has gone out, so a large one has more time.
   */
  #startStallTimer(): void {
    const socket = this.#socket;
    const waiting = socket.writableLength;
    const stall_ms = (socket.timeout || this.#options.keep_alive_ms) + waiting / MIN_BYTES_PER_MS;
    this.#stallTimer ??= setTimeout(() => {
      this.#stallTimer = null;
      if (!socket.writableNeedDrain || socket.writableLength < waiting) return;
      if (this.#response !== null) this.#response.timedOut();
      else socket.destroy();
    }, stall_ms);
  }

  /** More came ahead than is kept. Reading goes on, for only who reads sees that a client has left. */
  #endAfterResponse(): void {
    this.#pending = null;
    if (this.#response === null) return this.#end();
    this.#closing = true;
    this.#response.last = true;
  }

  /** What still comes is read for a while: cut at once, a client that sends could lose its answer (RFC 9112 §9.6). */
  #end(): void {
    this.#closing = true;
    this.#pending = null;
    // A socket that ends says no more that its client takes nothing.
    if (!this.#socket.writableNeedDrain) this.#socket.end(() => linger(this.#socket));
  }

  #take(bytes: Buffer): void {
    const result = readRequest(bytes, this.#headCache, this.#progress);
    if (result === 'incomplete') {
      this.#pending = bytes;
      this.#partialTimer ??= setTimeout(() => this.#handOver(), PARTIAL_REQUEST_MS);
      return;
    }
    this.#pending = result === 'other' ? bytes : null;
    // A request's body is a part of it.
    this.#growing = null;
    this.#progress = new Progress();
    if (result === 'other') return this.#handOver();
    clearTimeout(this.#partialTimer ?? undefined);
    this.#partialTimer = null;
    this.#idle = false;
    this.#response = new PlainResponse(this.#socket, this.#options.keep_alive_ms, () => this.#responseEnded());
    this.#response.last = this.#stopping;
    this.#options.serve(result, this.#response);
  }

  #responseEnded(): void {
    const last = this.#response?.last === true;
    this.#response = null;
    if (last || this.#stopping) return this.#end();
    // What the client has not taken of the answer yet is still under the answer's own time.
    const { timeout = 0, writableNeedDrain } = this.#socket;
    if ((timeout === 0 || timeout > this.#options.keep_alive_ms) && !writableNeedDrain)
      this.#socket.setTimeout(this.#options.keep_alive_ms);
    this.#next();
  }

  /** Takes what came ahead, once the client has taken its answer; after this turn, for the answer that ends is on somebody's stack. */
  #next(): void {
    if (this.#pending === null || this.#nextScheduled || this.#socket.writableNeedDrain) return;
    this.#nextScheduled = true;
    setImmediate(() => {
      this.#nextScheduled = false;
      const pending = this.#pending;
      this.#pending = null;
      if (!this.#socket.destroyed && pending !== null) this.#take(pending);
      this.#updateUnserved();
    });
  }

  #handOver(): void {
    const socket = this.#socket;
    this.#detach();
    socket.setTimeout(0);
    socket.pause();
    if (this.#pending !== null) socket.unshift(this.#pending);
    this.#pending = null;
    this.#options.handOver(socket);
    process.nextTick(() => socket.resume());
  }

  /** The client has ended its side, and we end ours. An answer that still runs has lost its client. */
  #onEnd = (): void => void this.#socket.end(() => this.#socket.destroy());

  #onClose = (): void => {
    this.#detach();
    this.#response?.clientClosed();
  };

  #onDrain = (): void => {
    clearTimeout(this.#stallTimer ?? undefined);
    this.#stallTimer = null;
    if (this.#response !== null) return this.#response.drained();
    if (this.#closing) return this.#end();
    this.#socket.setTimeout(this.#options.keep_alive_ms);
    this.#next();
  };
  #onTimeout = (): void => {
    if (this.#response !== null) return this.#response.timedOut();
    if (this.#socket.writableNeedDrain) return void this.#socket.destroy();
    // A part of a request is a slow one.
    if (this.#pending !== null) return this.#handOver();
    // The timeout that has passed may have been an answer's, which is shorter: what is left of our own follows.
    const rest_ms = this.#options.keep_alive_ms - (this.#socket.timeout ?? 0);
    if (this.#idle || rest_ms <= 0) this.#socket.destroy();
    else this.#socket.setTimeout(rest_ms);
    this.#idle = true;
  };
  /** `close` follows. */
  #onError = (): void => {};

  #detach(): void {
    const socket = this.#socket;
    clearTimeout(this.#partialTimer ?? undefined);
    clearTimeout(this.#stallTimer ?? undefined);
    this.#unserved.set(0);
    socket.off('data', this.#onData).off('end', this.#onEnd).off('close', this.#onClose);
    socket.off('drain', this.#onDrain).off('timeout', this.#onTimeout).off('error', this.#onError);
  }
}

// Puts the plain path in front of Node's HTTP server: plain requests go to the app from here, everything else as ever.
// What it saves is most of what a request costs in Node; docs/performance.md has the figures.

/** Hono's `fetch`. */
export type Fetch = (request: Request, env: Bindings) => Response | Promise<Response>;

export interface PlainPath {
  /** Answers that are not out yet. */
  readonly running: number;
  /** Nothing new is taken; answers that run go on, and their connections end with them. */
  stop(): void;
  /** Ends every connection, whatever it carries. */
  destroy(): void;
}

/** Connections go back to `server` with all their bytes at the first request that is not plain. */
export function takeConnections(server: Server, fetch: Fetch, log: Logger): PlainPath {
  // Over TLS what is read here are the bytes inside of it.
  const event = server instanceof TlsServer ? 'secureConnection' : 'connection';
  const nodeListeners = server.listeners(event) as ((this: Server, socket: Socket) => void)[];
  const connections = new Map<Socket, PlainConnection>();
  server.removeAllListeners(event);
  server.on(event, (socket: Socket) => {
    const forget = () => void connections.delete(socket);
    const connection = new PlainConnection(socket, {
      first_byte_ms: server.headersTimeout,
      keep_alive_ms: server.keepAliveTimeout,
      serve: (request, response) => void serve(fetch, request, response, log),
      handOver() {
        socket.off('close', forget);
        forget();
        for (const listener of nodeListeners) listener.call(server, socket);
      },
    });
    connections.set(socket, connection);
    socket.once('close', forget);
  });
  return {
    get running() {
      return [...connections.values()].filter((connection) => connection.responding).length;
    },
    stop() {
      for (const connection of connections.values()) connection.stop();
    },
    destroy() {
      for (const socket of connections.keys()) socket.destroy();
    },
  };
}

async function serve(fetch: Fetch, request: PlainRequest, outgoing: PlainResponse, log: Logger): Promise<void> {
  try {
    // The middleware sets the rest.
    const bindings: HttpBindings = { incoming: request, outgoing: outgoing };
    const response = await fetch(new FetchRequest(request) as unknown as Request, bindings as Bindings);
    if (outgoing.headersSent || outgoing.destroyed) return;
    const body = Buffer.from(await response.arrayBuffer());
    outgoing.writeHead(response.status, { ...Object.fromEntries(response.headers), 'content-length': body.length });
    outgoing.end(body);
  } catch (error) {
    // The app answers its errors itself. What gets here has no answer, and the client must not wait for one.
    log.error(where(error), 'internal error');
    outgoing.destroy();
  }
}

/** As much of Fetch's Request as Hono asks of one whose body is read elsewhere. */
class FetchRequest {
  readonly method: string;
  readonly #request: PlainRequest;
  #headers: Headers | null = null;

  constructor(request: PlainRequest) {
    this.method = request.method;
    this.#request = request;
  }

  get url(): string {
    return `http://${this.#request.headers.host}${this.#request.url}`;
  }

  get headers(): Headers {
    this.#headers ??= new Headers(this.#request.headers as Record<string, string>);
    return this.#headers;
  }
}
