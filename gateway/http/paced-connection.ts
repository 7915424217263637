// A client's connection as Node's HTTP server sees it: it is given the client's bytes in small pieces, and no further ones before the
// requests in those have been answered and their answers taken. Node's parser by itself would read as many requests
// as one read brings, and keep an answer to each for a client that takes none.
import { IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { MAX_UNSERVED_BYTES } from '../limits/bounds.ts';
import { cutSoon, linger } from './refusal.ts';

// What clients have sent and nobody serves yet: parts of requests, and requests behind others. It is bounded for all connections of
// a process together, for none of them has shown a key. Where it is too much, the connection that has most of it ends.

/** Of memory, not of what was sent. */
let total_bytes = 0;
/** Those that have something. */
const connections = new Set<Unserved>();

/** What one connection has of it. */
export class Unserved {
  #bytes = 0;
  readonly #end: () => void;

  /** `end` ends the connection, and sets this to 0. */
  constructor(end: () => void) {
    this.#end = end;
  }

  set(bytes: number): void {
    if (bytes === this.#bytes) return;
    const more = bytes > this.#bytes;
    total_bytes += bytes - this.#bytes;
    this.#bytes = bytes;
    if (bytes > 0) connections.add(this);
    else connections.delete(this);
    if (more && total_bytes > MAX_UNSERVED_BYTES) Unserved.#largest().#end();
  }

  static #largest(): Unserved {
    return [...connections].reduce((most, one) => (one.#bytes > most.#bytes ? one : most));
  }
}

type WriteCallback = (error?: Error | null) => void;

/** One request and what answers it, once those before it are answered. */
interface Exchange {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly serve: () => void;
  /** Its connection ends with it. */
  readonly last: boolean;
}

/** The shortest request is 26 bytes: forty of them at most wait for each other. */
const CHUNK_BYTES = 1024;
/** Of a body whose length is known, as much as one read brings. */
const BODY_CHUNK_BYTES = 64 * 1024;
/** Where a read brings so much there is more, and libuv would read up to 32 times before it looks at any other connection. */
const FULL_READ_BYTES = 64 * 1024;
/** Of one read so many pieces go to Node at once, and the others in turn. */
const CHUNKS_AT_ONCE = 4;
/** Of what is sent, so much has to be taken in the time that a client has. */
const PART_BYTES = 64 * 1024;
/** What Node keeps of a request that waits, and of a byte of a head that is not complete. */
const WAITING_COST_BYTES = 4 * 1024;
const HEAD_COST = 4;
/** A client that has sent so much ahead is read no further. Below it reading goes on, for only who reads sees that a client has left. */
const READ_AHEAD_BYTES = 4 * 1024;
/** So much of a turn of the event loop goes to what was sent ahead: a request that comes by itself does not wait for a crowd. */
const TASKS_PER_TURN_MS = 1;
let tasks: (() => void)[] = [];

function schedule(task: () => void): void {
  if (tasks.push(task) === 1) setImmediate(runTasks);
}

function runTasks(): void {
  const now = tasks;
  tasks = [];
  const end_ms = performance.now() + TASKS_PER_TURN_MS;
  let started = 0;
  do now[started++]?.();
  while (started < now.length && performance.now() < end_ms);
  tasks = now.slice(started).concat(tasks);
  if (tasks.length > 0) setImmediate(runTasks);
}

/** Says when more of its body is wanted: Node tells a socket of its own, and no other stream. */
export class PacedRequest extends IncomingMessage {
  override _read(size: number): void {
    super._read(size);
    if (this.socket instanceof PacedConnection) this.socket.bodyWanted();
  }
}

export class PacedConnection extends Duplex {
  readonly #socket: Socket;
  readonly #unserved = new Unserved(() => this.destroy());
  /** Read, and not yet given to Node. */
  #readAhead: Buffer[] = [];
  #readAheadBytes = 0;
  /** Given to Node of a head that is not complete. */
  #headBytes = 0;
  /** The request that came out last. */
  #last: IncomingMessage | null = null;
  #chunks = 0;
  /** Node has taken what it was given, and asks for more. */
  #wanted = false;
  #bodyWanted = false;
  /** Bytes that are certainly the body of the request that came last. */
  #bodyBytes = 0;
  #chunkBytes = 0;
  /** The one that is being served, and those behind it in their order. */
  #current: Exchange | null = null;
  #waiting: Exchange[] = [];
  #nextScheduled = false;
  /** Others have their turn before it is read again. */
  #readPaused = false;
  /** What still comes is nobody's request. */
  #closing = false;
  #sendFinalResponse: (() => void) | null = null;

  /** `socket`: TCP, or what is inside of TLS. */
  constructor(socket: Socket) {
    // The smallest mark: Node asks when it has taken all there was.
    super({ readableHighWaterMark: 1 });
    this.#socket = socket;
    socket.on('data', this.#onData).on('end', this.#onEnd).on('drain', this.#onDrain);
    socket.on('timeout', () => this.emit('timeout')).on('close', () => this.destroy());
    // `close` follows.
    socket.on('error', () => {});
  }

  get remoteAddress(): string | undefined {
    return this.#socket.remoteAddress;
  }

  /** Calls the listener of `timeout` whenever nothing has moved on the connection for so long. */
  setTimeout(ms: number, listener?: () => void): this {
    this.#socket.setTimeout(ms);
    if (listener !== undefined) this.once('timeout', listener);
    return this;
  }

  /** Node calls it after the last answer. */
  destroySoon(): void {
    this.#stopFeeding();
    linger(this);
  }

  /** Serves a request when those before it are answered. `last`: the connection ends with its answer, which is there at once. */
  enqueue(incoming: IncomingMessage, outgoing: ServerResponse, serve: () => void, last: boolean): void {
    if (this.#closing) return;
    // Some of it may have come with the head, in this very piece.
    this.#bodyBytes = Math.max(0, Number(incoming.headers['content-length'] ?? 0) - this.#chunkBytes);
    this.#headBytes = 0;
    this.#last = incoming;
    this.#waiting.push({ incoming, outgoing, serve, last });
    if (last) {
      this.#stopFeeding();
      outgoing.shouldKeepAlive = false;
    }
    if (this.#current === null && !this.#nextScheduled) this.#serve();
  }

  /**
   * What comes next cannot be read, or did not come in time: the connection ends once every request before it is answered,
   * with what `farewell` says. A request whose own body it was gets no other answer.
   */
  endWith(sendFinalResponse: () => void): void {
    if (this.#closing) return;
    this.#stopFeeding();
    this.#sendFinalResponse = sendFinalResponse;
    if (this.#waiting.at(-1)?.incoming.complete === false) this.#waiting.pop();
    if (this.#current?.incoming.complete === false) {
      // In the middle of an answer there is no place for another.
      if (this.#current.outgoing.headersSent) return void this.destroy();
      this.#current = null;
    }
    if (this.#current === null && this.#waiting.length === 0) this.#end();
  }

  /** The same, and where an answer is being made nothing is said behind it. */
  endWithUnlessBusy(sendFinalResponse: () => void): void {
    const last = this.#waiting.at(-1) ?? this.#current;
    if (!last?.incoming.complete) return this.endWith(sendFinalResponse);
    last.outgoing.shouldKeepAlive = false;
    this.endWith(() => linger(this));
  }

  /** More is wanted of the body that is being read: what was there before may still stand in its buffer. */
  bodyWanted(): void {
    this.#bodyWanted = true;
    this.#feed();
  }

  /** Gives Node the next piece, where it may have one. */
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

  /** Says what is kept of what nobody serves yet. */
  #updateUnserved(): void {
    const bytes = this.#readAheadBytes + HEAD_COST * this.#headBytes + WAITING_COST_BYTES * this.#waiting.length;
    this.#unserved.set(this.destroyed ? 0 : bytes);
  }

  /** No request waits for an answer, or one does whose body is not here yet and is being read. */
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
    setImmediate(() => {
      this.#readPaused = false;
      this.#updateReading();
    });
  }

  /** Reads from the client, or does not: what has been sent ahead waits there, and so does whoever takes nothing of its answers. */
  #updateReading(): void {
    const socket = this.#socket;
    if (this.#readPaused) return;
    if (this.#readAheadBytes >= READ_AHEAD_BYTES || (socket.writableNeedDrain && !this.#closing)) socket.pause();
    else if (socket.isPaused()) socket.resume();
  }

  /** The client has ended its side: an answer that still runs has lost its client, as on the plain path. */
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

  /** In parts, each of which the client must take in the time that is set: what it sends meanwhile counts as movement to a socket. */
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
    // Node tells the one that is being served; those behind it, not before 24.16.
    for (const { outgoing } of this.#waiting) if (!outgoing.closed) outgoing.emit('close');
    this.#waiting = [];
    callback(error);
  }
}

/** As many of the chunks as make a part, and what is left. */
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
