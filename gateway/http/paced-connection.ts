// A client's connection as Node's HTTP server sees it. Node gets the client's bytes in small chunks, and the next chunk only when the
// client has received the responses to all requests in the last one. Without this, Node would parse all requests of one read, and keep a
// response to each for a client that reads none.
import { IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { cutSoon, linger, schedule, Unserved } from './connections.ts';

type WriteCallback = (error?: Error | null) => void;

/** A request and its response. Exchanges are served in order. */
interface Exchange {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly serve: () => void;
  /** The connection ends with this exchange. */
  readonly last: boolean;
}

/** Bytes given to Node's parser at once. The shortest request has 26 bytes, so a chunk holds at most forty requests. */
const CHUNK_BYTES = 1024;
/** The same inside a body of known length: the size of one read. */
const BODY_CHUNK_BYTES = 64 * 1024;
/** A read of this size shows that more has arrived. Node would read up to 32 times before it reads from another connection. */
const FULL_READ_BYTES = 64 * 1024;
/** Chunks of one read that are given to Node without a pause; further ones are scheduled among those of all connections. */
const CHUNKS_AT_ONCE = 4;
/** A response is written in parts of this size. The client must take each part within the timeout of the socket. */
const PART_BYTES = 64 * 1024;
/** The memory that Node keeps for a waiting request, and for each byte of an incomplete head. */
const WAITING_COST_BYTES = 4 * 1024;
const HEAD_COST = 4;
/** Reading pauses at this many bytes read ahead. Below it reading goes on, because only a read shows that a client has left. */
const READ_AHEAD_BYTES = 4 * 1024;

/** A request that notifies its connection when more of its body is needed. Node does this only for its own sockets. */
export class PacedRequest extends IncomingMessage {
  override _read(size: number): void {
    super._read(size);
    if (this.socket instanceof PacedConnection) this.socket.bodyWanted();
  }
}

export class PacedConnection extends Duplex {
  readonly #socket: Socket;
  readonly #unserved = new Unserved(() => this.destroy());
  /** Bytes that were read and not yet given to Node. */
  #readAhead: Buffer[] = [];
  #readAheadBytes = 0;
  /** Bytes of an incomplete head that Node already has. */
  #headBytes = 0;
  /** The latest request that Node has parsed. */
  #last: IncomingMessage | null = null;
  #chunks = 0;
  /** Node has consumed the last chunk and requests the next. */
  #wanted = false;
  #bodyWanted = false;
  /** The number of further bytes that certainly belong to the body of the latest request. */
  #bodyBytes = 0;
  #chunkBytes = 0;
  /** The exchange that is being served; those behind it wait in order. */
  #current: Exchange | null = null;
  #waiting: Exchange[] = [];
  #nextScheduled = false;
  /** Reading pauses until this connection is scheduled again, so that others are read and accepted. */
  #readPaused = false;
  /** The connection takes no further request, and discards what still arrives. */
  #closing = false;
  #sendFinalResponse: (() => void) | null = null;

  /** `socket`: TCP, or the decrypted side of TLS. */
  constructor(socket: Socket) {
    // With the smallest high-water mark, Node requests more only when it has consumed everything.
    super({ readableHighWaterMark: 1 });
    this.#socket = socket;
    socket.on('data', this.#onData).on('end', this.#onEnd).on('drain', this.#onDrain);
    socket.on('timeout', () => this.emit('timeout')).on('close', () => this.destroy());
    // The socket emits `close` next.
    socket.on('error', () => {});
  }

  get remoteAddress(): string | undefined {
    return this.#socket.remoteAddress;
  }

  /** A request has not had its whole response yet. */
  get busy(): boolean {
    return this.#current !== null || this.#waiting.length > 0;
  }

  /** Emits `timeout` whenever nothing has moved on the connection for `ms`. */
  setTimeout(ms: number, listener?: () => void): this {
    this.#socket.setTimeout(ms);
    if (listener !== undefined) this.once('timeout', listener);
    return this;
  }

  /** Node calls this after the last response. */
  destroySoon(): void {
    this.#stopFeeding();
    linger(this);
  }

  /**
   * Serves a request once those before it have their responses. `last`: the connection ends with its response, which is written at once.
   */
  enqueue(incoming: IncomingMessage, outgoing: ServerResponse, serve: () => void, last: boolean): void {
    if (this.#closing) return;
    // A part of the body may have arrived with the head, in this chunk.
    this.#bodyBytes = Math.max(0, Number(incoming.headers['content-length'] ?? 0) - this.#chunkBytes);
    this.#headBytes = 0;
    this.#last = incoming;
    this.#waiting.push({ incoming, outgoing, serve, last });
    if (last) {
      this.#stopFeeding();
      outgoing.setHeader('connection', 'close');
    }
    if (this.#current === null && !this.#nextScheduled) this.#serve();
  }

  /**
   * Ends the connection with a final response, once all earlier requests have theirs: the next request cannot be parsed, or did not arrive
   * in time. A request whose own body is at fault gets no other response.
   */
  endWith(sendFinalResponse: () => void): void {
    if (this.#closing) return;
    this.#stopFeeding();
    this.#sendFinalResponse = sendFinalResponse;
    if (this.#waiting.at(-1)?.incoming.complete === false) this.#waiting.pop();
    if (this.#current?.incoming.complete === false) {
      // The response has begun, so no other can be sent. The bytes of one that is complete may still be on their way.
      if (this.#current.outgoing.headersSent)
        return void (this.#current.outgoing.writableEnded ? linger(this) : this.destroy());
      this.#current = null;
    }
    if (this.#current === null && this.#waiting.length === 0) this.#end();
  }

  /** Does the same as `endWith`, but sends nothing after a response that is in progress. */
  endWithUnlessBusy(sendFinalResponse: () => void): void {
    const last = this.#waiting.at(-1) ?? this.#current;
    if (!last?.incoming.complete) return this.endWith(sendFinalResponse);
    if (!last.outgoing.headersSent) last.outgoing.setHeader('connection', 'close');
    this.endWith(() => linger(this));
  }

  /** The body that is being read needs more bytes, although its buffer may still hold earlier ones. */
  bodyWanted(): void {
    this.#bodyWanted = true;
    this.#feed();
  }

  /** Gives Node the next chunk, if it may have one. */
  #feed(): void {
    if (!this.#wanted || this.#closing || this.destroyed || !this.#mayFeed()) return;
    const next = this.#readAhead[0];
    if (next === undefined) return;
    const chunk = next.subarray(0, Math.max(CHUNK_BYTES, Math.min(BODY_CHUNK_BYTES, this.#bodyBytes)));
    if (chunk.length === next.length) this.#readAhead.shift();
    else this.#readAhead[0] = next.subarray(chunk.length);
    this.#readAheadBytes -= chunk.length;
    if (this.#last === null || this.#last.complete) this.#headBytes += chunk.length;
    this.#bodyBytes = Math.max(0, this.#bodyBytes - chunk.length);
    this.#chunkBytes = chunk.length;
    this.#wanted = false;
    this.#bodyWanted = false;
    this.push(chunk);
    this.#updateReading();
    this.#updateUnserved();
  }

  /** Counts the memory of this connection's unserved input. */
  #updateUnserved(): void {
    const bytes = this.#readAheadBytes + HEAD_COST * this.#headBytes + WAITING_COST_BYTES * this.#waiting.length;
    this.#unserved.set(this.destroyed ? 0 : bytes);
  }

  /** True while no request waits for its response, or while the current one is still reading its body. */
  #mayFeed(): boolean {
    if (this.#waiting.length > 0 || this.#nextScheduled) return false;
    if (this.#current === null) return true;
    const { complete, readableLength, readableHighWaterMark } = this.#current.incoming;
    return !complete && (this.#bodyWanted || readableLength < readableHighWaterMark);
  }

  #serve(): void {
    const exchange = this.#waiting.shift();
    if (exchange === undefined) return;
    this.#current = exchange;
    exchange.outgoing.once('close', () => this.#responseClosed(exchange));
    exchange.serve();
    if (exchange.last) cutSoon(this);
  }

  #responseClosed(exchange: Exchange): void {
    if (this.#current !== exchange) return;
    this.#current = null;
    if (this.destroyed || this.writableEnded) return;
    if (this.#closing && this.#waiting.length === 0) return this.#end();
    this.#nextScheduled = true;
    schedule(() => {
      this.#nextScheduled = false;
      if (this.destroyed || this.writableEnded) return;
      if (this.#waiting.length > 0) this.#serve();
      else this.#feed();
    });
  }

  #end(): void {
    if (this.writableEnded) return;
    if (this.#sendFinalResponse !== null) this.#sendFinalResponse();
    else linger(this);
  }

  #stopFeeding(): void {
    this.#closing = true;
    this.#readAhead = [];
    this.#readAheadBytes = 0;
    this.#updateReading();
  }

  readonly #onData = (bytes: Buffer): void => {
    if (bytes.length >= FULL_READ_BYTES) this.#pauseReading();
    if (this.#closing) return;
    this.#readAhead.push(bytes);
    this.#readAheadBytes += bytes.length;
    this.#chunks = 0;
    this.#feed();
    this.#updateReading();
    this.#updateUnserved();
  };

  #pauseReading(): void {
    this.#readPaused = true;
    this.#socket.pause();
    schedule(() => {
      this.#readPaused = false;
      this.#updateReading();
    });
  }

  /** Pauses or resumes reading. It pauses for a client that has sent too far ahead or that does not read its responses. */
  #updateReading(): void {
    const socket = this.#socket;
    if (this.#readPaused) return;
    if (this.#readAheadBytes >= READ_AHEAD_BYTES || (socket.writableNeedDrain && !this.#closing)) socket.pause();
    else if (socket.isPaused()) socket.resume();
  }

  /** The client has ended its side, so a response in progress is lost, as on the plain path. */
  readonly #onEnd = (): void => {
    this.#readAhead = [];
    this.#readAheadBytes = 0;
    this.push(null);
  };

  readonly #onDrain = (): void => this.#updateReading();

  override _read(): void {
    this.#wanted = true;
    if (++this.#chunks < CHUNKS_AT_ONCE || this.#readAheadBytes === 0) this.#feed();
    else schedule(() => this.#feed());
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, callback: WriteCallback): void {
    this.#send([chunk], callback);
  }

  override _writev(chunks: { chunk: Buffer }[], callback: WriteCallback): void {
    this.#send(
      chunks.map(({ chunk }) => chunk),
      callback,
    );
  }

  /** Writes in parts, with a timer for each, because any bytes from the client restart the socket's own timeout. */
  #send(chunks: readonly Buffer[], callback: WriteCallback): void {
    const socket = this.#socket;
    const [part, rest] = firstPart(chunks);
    const timer = socket.timeout ? setTimeout(() => this.emit('timeout'), socket.timeout) : undefined;
    const sent = (error?: Error | null) => {
      clearTimeout(timer);
      if (error || rest.length === 0) callback(error);
      else this.#send(rest, callback);
    };
    socket.cork();
    for (const chunk of part.slice(0, -1)) socket.write(chunk);
    socket.write(part.at(-1) as Buffer, sent);
    socket.uncork();
    this.#updateReading();
  }

  override _final(callback: (error?: Error | null) => void): void {
    this.#socket.end(() => callback());
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#socket.destroy();
    this.#unserved.set(0);
    this.#readAhead = [];
    // Node emits `close` for the current exchange; for those behind it, Node before 24.16 does not.
    for (const { outgoing } of this.#waiting) if (!outgoing.closed) outgoing.emit('close');
    this.#waiting = [];
    callback(error);
  }
}

/** Splits the chunks after PART_BYTES bytes. */
function firstPart(chunks: readonly Buffer[]): [part: readonly Buffer[], rest: readonly Buffer[]] {
  let bytes = 0;
  for (const [i, chunk] of chunks.entries()) {
    const room = PART_BYTES - bytes;
    if (chunk.length > room)
      return [
        [...chunks.slice(0, i), chunk.subarray(0, room)],
        [chunk.subarray(room), ...chunks.slice(i + 1)],
      ];
    bytes += chunk.length;
  }
  return [chunks, []];
}
