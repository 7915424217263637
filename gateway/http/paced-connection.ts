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
const PIECE_BYTES = 1024;
/** Of a body whose length is known, as much as one read brings. */
const BODY_PIECE_BYTES = 64 * 1024;
/** Where a read brings so much there is more, and libuv would read up to 32 times before it looks at any other connection. */
const FULL_READ_BYTES = 64 * 1024;
/** Of one read so many pieces go to Node at once, and the others in turn. */
const PIECES_AT_ONCE = 4;
/** Of what is sent, so much has to be taken in the time that a client has. */
const PART_BYTES = 64 * 1024;
/** What Node keeps of a request that waits, and of a byte of a head that is not complete. */
const WAITING_COST_BYTES = 4 * 1024;
const HEAD_COST = 4;
/** A client that has sent so much ahead is read no further. Below it reading goes on, for only who reads sees that a client has left. */
const AHEAD_BYTES = 4 * 1024;
/** So much of a turn of the event loop goes to what was sent ahead: a request that comes by itself does not wait for a crowd. */
const TURN_MS = 1;
let turns: (() => void)[] = [];

function inTurn(goOn: () => void): void {
  if (turns.push(goOn) === 1) setImmediate(takeTurns);
}

function takeTurns(): void {
  const now = turns;
  turns = [];
  const end_ms = performance.now() + TURN_MS;
  let taken = 0;
  do now[taken++]?.();
  while (taken < now.length && performance.now() < end_ms);
  turns = now.slice(taken).concat(turns);
  if (turns.length > 0) setImmediate(takeTurns);
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
  #ahead: Buffer[] = [];
  #aheadBytes = 0;
  /** Given to Node of a head that is not complete. */
  #headBytes = 0;
  /** The request that came out last. */
  #last: IncomingMessage | null = null;
  #pieces = 0;
  /** Node has taken what it was given, and asks for more. */
  #wanted = false;
  #bodyWanted = false;
  /** Bytes that are certainly the body of the request that came last. */
  #bodyBytes = 0;
  #pieceBytes = 0;
  /** The one that is being served, and those behind it in their order. */
  #current: Exchange | null = null;
  #waiting: Exchange[] = [];
  #turning = false;
  /** Others have their turn before it is read again. */
  #readingRests = false;
  /** What still comes is nobody's request. */
  #over = false;
  #farewell: (() => void) | null = null;

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
    if (this.#over) return;
    // Some of it may have come with the head, in this very piece.
    this.#bodyBytes = Math.max(0, Number(incoming.headers['content-length'] ?? 0) - this.#pieceBytes);
    this.#headBytes = 0;
    this.#last = incoming;
    this.#waiting.push({ incoming, outgoing, serve, last });
    if (last) {
      this.#stopFeeding();
      outgoing.shouldKeepAlive = false;
    }
    if (this.#current === null && !this.#turning) this.#serve();
  }

  /**
   * What comes next cannot be read, or did not come in time: the connection ends once every request before it is answered,
   * with what `farewell` says. A request whose own body it was gets no other answer.
   */
  endWith(farewell: () => void): void {
    if (this.#over) return;
    this.#stopFeeding();
    this.#farewell = farewell;
    if (this.#waiting.at(-1)?.incoming.complete === false) this.#waiting.pop();
    if (this.#current?.incoming.complete === false) {
      // In the middle of an answer there is no place for another.
      if (this.#current.outgoing.headersSent) return void this.destroy();
      this.#current = null;
    }
    if (this.#current === null && this.#waiting.length === 0) this.#end();
  }

  /** The same, and where an answer is being made nothing is said behind it. */
  endSoon(farewell: () => void): void {
    const last = this.#waiting.at(-1) ?? this.#current;
    if (!last?.incoming.complete) return this.endWith(farewell);
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
    if (!this.#wanted || this.#over || this.destroyed || !this.#mayFeed()) return;
    const next = this.#ahead[0];
    if (next === undefined) return;
    const piece = next.subarray(0, Math.max(PIECE_BYTES, Math.min(BODY_PIECE_BYTES, this.#bodyBytes)));
    if (piece.length === next.length) this.#ahead.shift();
    else this.#ahead[0] = next.subarray(piece.length);
    this.#aheadBytes -= piece.length;
    if (this.#last === null || this.#last.complete) this.#headBytes += piece.length;
    this.#bodyBytes = Math.max(0, this.#bodyBytes - piece.length);
    this.#pieceBytes = piece.length;
    this.#wanted = false;
    this.#bodyWanted = false;
    this.push(piece);
    this.#readOn();
    this.#keep();
  }

  /** Says what is kept of what nobody serves yet. */
  #keep(): void {
    const bytes = this.#aheadBytes + HEAD_COST * this.#headBytes + WAITING_COST_BYTES * this.#waiting.length;
    this.#unserved.set(this.destroyed ? 0 : bytes);
  }

  /** No request waits for an answer, or one does whose body is not here yet and is being read. */
  #mayFeed(): boolean {
    if (this.#waiting.length > 0 || this.#turning) return false;
    if (this.#current === null) return true;
    const { complete, readableLength, readableHighWaterMark } = this.#current.incoming;
    return !complete && (this.#bodyWanted || readableLength < readableHighWaterMark);
  }

  #serve(): void {
    const exchange = this.#waiting.shift();
    if (exchange === undefined) return;
    this.#current = exchange;
    exchange.outgoing.once('close', () => this.#answered(exchange));
    exchange.serve();
    if (exchange.last) cutSoon(this);
  }

  #answered(exchange: Exchange): void {
    if (this.#current !== exchange) return;
    this.#current = null;
    if (this.destroyed || this.writableEnded) return;
    if (this.#over && this.#waiting.length === 0) return this.#end();
    this.#turning = true;
    inTurn(() => {
      this.#turning = false;
      if (this.destroyed || this.writableEnded) return;
      if (this.#waiting.length > 0) this.#serve();
      else this.#feed();
    });
  }

  #end(): void {
    if (this.writableEnded) return;
    if (this.#farewell !== null) this.#farewell();
    else linger(this);
  }

  #stopFeeding(): void {
    this.#over = true;
    this.#ahead = [];
    this.#aheadBytes = 0;
    this.#readOn();
  }

  readonly #onData = (bytes: Buffer): void => {
    if (bytes.length >= FULL_READ_BYTES) this.#restReading();
    if (this.#over) return;
    this.#ahead.push(bytes);
    this.#aheadBytes += bytes.length;
    this.#pieces = 0;
    this.#feed();
    this.#readOn();
    this.#keep();
  };

  #restReading(): void {
    this.#readingRests = true;
    this.#socket.pause();
    setImmediate(() => {
      this.#readingRests = false;
      this.#readOn();
    });
  }

  /** Reads from the client, or does not: what has been sent ahead waits there, and so does whoever takes nothing of its answers. */
  #readOn(): void {
    const socket = this.#socket;
    if (this.#readingRests) return;
    if (this.#aheadBytes >= AHEAD_BYTES || (socket.writableNeedDrain && !this.#over)) socket.pause();
    else if (socket.isPaused()) socket.resume();
  }

  /** The client has ended its side: an answer that still runs has lost its client, as on the plain path. */
  readonly #onEnd = (): void => {
    this.#ahead = [];
    this.#aheadBytes = 0;
    this.push(null);
  };

  readonly #onDrain = (): void => this.#readOn();

  override _read(): void {
    this.#wanted = true;
    if (++this.#pieces < PIECES_AT_ONCE || this.#aheadBytes === 0) this.#feed();
    else inTurn(() => this.#feed());
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
    this.#readOn();
  }

  override _final(callback: (error?: Error | null) => void): void {
    this.#socket.end(() => callback());
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#socket.destroy();
    this.#unserved.set(0);
    this.#ahead = [];
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
