// A client's connection while its requests have the plain form. The first other request passes it to Node's parser for good.

import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Logger } from 'pino';
import { where } from '../../../node/log.ts';
import { GrowingBuffer } from '../../base/bytes.ts';
import { interceptConnections, linger, schedule, Unserved } from '../connections.ts';
import type { Bindings, ExchangeContext, HttpBindings } from '../context.ts';
import { HeadCache, MAX_PLAIN_BYTES, type PlainRequest, type PlainTarget, Progress, readRequest } from './request.ts';
import { PlainResponse } from './response.ts';

interface PlainOptions {
  serve(request: PlainRequest, response: PlainResponse): void;
  /** Hands the connection to Node's parser. The bytes that were read from it have been put back. */
  handOver(socket: Socket): void;
  /** The time for the first byte. A connection that sends nothing is closed after it. */
  readonly first_byte_ms: number;
  readonly keep_alive_ms: number;
}

/** The time for a request that arrives in several chunks. A slower one goes to Node's parser, which has limits of its own for it. */
const PARTIAL_REQUEST_MS = 1_000;
/** The speed at which a pipelining client must read its responses: 8 MiB a second. A slower client is disconnected. */
const MIN_BYTES_PER_MS = 8 * 1024;

export class PlainConnection {
  readonly #socket: Socket;
  readonly #options: PlainOptions;
  readonly #headCache = new HeadCache();
  readonly #unserved: Unserved;
  #pending: Buffer | null = null;
  /** The storage behind `#pending`, once a request arrives in several chunks. */
  #growing: GrowingBuffer | null = null;
  #progress = new Progress();
  #partialTimer: NodeJS.Timeout | null = null;
  #stallTimer: NodeJS.Timeout | null = null;
  #response: PlainResponse | null = null;
  /** A response has just ended, and the bytes that arrived meanwhile are scheduled for a later turn. */
  #nextScheduled = false;
  #stopping = false;
  /** The current or previous response is the last one; further input is discarded. */
  #closing = false;
  /** The connection is idle, and ends when the socket's timeout passes. */
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

  /** Accepts no further request. A response in progress goes on, and Node serves a request that has begun to arrive. */
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
    // Bytes that arrive before the response is delivered wait.
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
   * Starts a timer for a client that sends but does not read, because its bytes restart the socket's own timeout. Node does not report how
   * much of a write was sent, so a large write has more time.
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

  /** Ends a connection whose client has pipelined too much. Reading goes on, because only a read shows that a client has left. */
  #endAfterResponse(): void {
    this.#pending = null;
    if (this.#response === null) return this.#end();
    this.#closing = true;
    this.#response.last = true;
  }

  /**
   * Ends the connection and reads on for a while: a client that still sends could lose its response if cut at once (RFC 9112 §9.6).
   */
  #end(): void {
    this.#closing = true;
    this.#pending = null;
    // `writableNeedDrain` is false once a socket is ending, so this waits for `drain` first.
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
    // The storage is not used again: the body of the request is a view of it.
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
    // The timeout of the response stays until the client has received the whole response.
    const { timeout = 0, writableNeedDrain } = this.#socket;
    if ((timeout === 0 || timeout > this.#options.keep_alive_ms) && !writableNeedDrain)
      this.#socket.setTimeout(this.#options.keep_alive_ms);
    this.#next();
  }

  /**
   * Handles the next pipelined request, once the client has received its response. It runs in a later turn: the code that ended the
   * response is still on the stack, and a single request must not wait for all pipelined requests of other clients.
   */
  #next(): void {
    if (this.#pending === null || this.#nextScheduled || this.#socket.writableNeedDrain) return;
    this.#nextScheduled = true;
    schedule(() => {
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

  /** The client has ended its side, so we end ours. A response in progress is lost. */
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
    // An incomplete request is slow, so it goes to Node's parser.
    if (this.#pending !== null) return this.#handOver();
    // The timeout that passed may be the response's, which is shorter. The rest of the connection's own timeout follows.
    const rest_ms = this.#options.keep_alive_ms - (this.#socket.timeout ?? 0);
    if (this.#idle || rest_ms <= 0) this.#destroyUnlessRead();
    else this.#socket.setTimeout(rest_ms);
    this.#idle = true;
  };

  /** After a long turn of the event loop the timer fires before a request that came in time is read. */
  #destroyUnlessRead(): void {
    const socket = this.#socket;
    const { bytesRead } = socket;
    setImmediate(() => socket.bytesRead === bytesRead && socket.destroy());
  }

  /** The socket emits `close` next. */
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

// Puts the plain path in front of Node's HTTP server: plain requests go straight to their routes, all others to Node and Hono. It saves most
// of a request's cost in Node; docs/performance.md has the figures.

/** Serves a plain request, and writes the response itself. */
type PlainRoute = (c: ExchangeContext) => Promise<unknown>;
/** The two routes that take plain requests. */
export type PlainRoutes = Readonly<Record<PlainTarget, PlainRoute>>;

export interface PlainPath {
  /** Responses in progress. */
  readonly running: number;
  /** Accepts nothing new. Responses in progress go on, and their connections end with them. */
  stop(): void;
  /** Closes every connection, with or without a response in progress. */
  destroy(): void;
}

/** Takes every connection of `server`, and hands it back with all its bytes at the first request that is not plain. */
export function takeConnections(server: Server, routes: PlainRoutes, log: Logger): PlainPath {
  const connections = new Map<Socket, PlainConnection>();
  interceptConnections(server, (socket, giveToNode) => {
    const forget = () => void connections.delete(socket);
    const connection = new PlainConnection(socket, {
      first_byte_ms: server.headersTimeout,
      keep_alive_ms: server.keepAliveTimeout,
      serve: (request, response) => void serve(routes[request.url], request, response, log),
      handOver() {
        socket.off('close', forget);
        forget();
        giveToNode(socket);
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

async function serve(route: PlainRoute, incoming: PlainRequest, outgoing: PlainResponse, log: Logger): Promise<void> {
  try {
    // The middleware sets the other members.
    const bindings: HttpBindings = { incoming, outgoing };
    await route({ env: bindings as Bindings });
  } catch (error) {
    // The route handles its own errors. An error that gets here has no response, and the client must not wait for one.
    log.error(where(error), 'internal error');
    outgoing.destroy();
  }
}
