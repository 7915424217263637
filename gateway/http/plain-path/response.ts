// A response that is written straight to its connection, with the part of Node's ServerResponse that the gateway uses.
import { type OutgoingHttpHeaders, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { hexDigitsOf, putHex } from '../../base/bytes.ts';
import {
  cacheOf,
  chunkBatch,
  fieldLines,
  isShared,
  type Outgoing,
  type OutgoingEvent,
  type SharedHeaders,
  share,
  writeBatch,
} from '../outgoing.ts';

// The lines of a response's head. Lines that many responses share are encoded once.

/** How the client recognises the end of the body. */
type Framing = 'length' | 'chunked';

const OK = 'HTTP/1.1 200 OK\r\n';
const CLOSE = 'connection: close\r\n\r\n';

function statusLine(status: number): string {
  return status === 200 ? OK : `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n`;
}

/** The last lines of a head. `keep_alive_ms` null: the connection ends with this response. */
function endLines(framing: Framing, keep_alive_ms: number | null): string {
  const coding = framing === 'chunked' ? 'transfer-encoding: chunked\r\n' : '';
  return `${coding}${dateLine()}${keep_alive_ms === null ? CLOSE : keepAliveLines(keep_alive_ms)}`;
}

const keepAliveLines = (ms: number): string =>
  `connection: keep-alive\r\nkeep-alive: timeout=${Math.floor(ms / 1000)}\r\n\r\n`;

interface EncodedHeadEnd {
  readonly first: SharedHeaders;
  readonly framing: Framing;
  readonly keep_alive_ms: number | null;
  readonly date: string;
  readonly bytes: Uint8Array;
}

/** The lines of `first` and `second` and the last lines, encoded once a second; null where a name is in both. */
function sharedEnd(
  first: SharedHeaders,
  second: SharedHeaders,
  framing: Framing,
  keep_alive_ms: number | null,
): Uint8Array | null {
  const cache = cacheOf(second);
  const cached = cache.encoded as EncodedHeadEnd | null;
  if (
    cached !== null &&
    cached.first === first &&
    cached.framing === framing &&
    cached.keep_alive_ms === keep_alive_ms &&
    cached.date === dateLine()
  )
    return cached.bytes;
  for (const name in second) if (name in first) return null;
  const bytes = Buffer.from(`${allLines(first)}${allLines(second)}${endLines(framing, keep_alive_ms)}`, 'latin1');
  cache.encoded = {
    first,
    framing,
    keep_alive_ms,
    date: dateLine(),
    bytes: new Uint8Array(bytes),
  } satisfies EncodedHeadEnd;
  return bytes;
}

const allLines = (headers: SharedHeaders): string =>
  Object.entries(headers)
    .map(([name, value]) => fieldLines(name, value))
    .join('');

let date = '';

/** The date line, made once a second. */
function dateLine(): string {
  if (date !== '') return date;
  const now_ms = Date.now();
  date = `date: ${new Date(now_ms).toUTCString()}\r\n`;
  setTimeout(
    () => {
      date = '';
    },
    1_000 - (now_ms % 1_000),
  ).unref();
  return date;
}

const NO_HEADERS = share({});
const NO_BYTES = new Uint8Array();
const CRLF = 2;
const CHUNK_END = Buffer.from('\r\n');
const LAST_CHUNK = Buffer.from('0\r\n\r\n');
/** Up to this size, copying costs less than several writes. */
const SINGLE_WRITE_BYTES = 8 * 1024;

interface Listener {
  readonly event: OutgoingEvent | 'timeout';
  readonly listener: () => void;
  readonly once: boolean;
}

export class PlainResponse implements Outgoing {
  readonly socket: Socket;
  readonly #keep_alive_ms: number;
  readonly #onEnd: () => void;
  readonly #set: OutgoingHttpHeaders = {};
  #shared: SharedHeaders = NO_HEADERS;
  /** A response has two or three listeners; Node's EventEmitter costs ten times as much. */
  #listeners: Listener[] = [];
  /** The head, until it is written with the first bytes of the body: the response's own lines, then the encoded shared ones. */
  #head: string | null = null;
  #headEnd: Uint8Array = NO_BYTES;
  #framing: Framing = 'length';
  statusCode = 200;
  headersSent = false;
  destroyed = false;
  writableFinished = false;
  /** The connection ends with this response. */
  last = false;

  /** `onEnd` is called once every byte has been handed to the socket. */
  constructor(socket: Socket, keep_alive_ms: number, onEnd: () => void) {
    this.socket = socket;
    this.#keep_alive_ms = keep_alive_ms;
    this.#onEnd = onEnd;
  }

  get writableLength(): number {
    return this.socket.writableLength;
  }

  setHeader(name: string, value: string): this {
    this.#set[name] = value;
    return this;
  }

  setShared(headers: SharedHeaders): this {
    this.#shared = headers;
    return this;
  }

  writeHead(status: number, headers: OutgoingHttpHeaders = {}): this {
    if (this.headersSent) throw new Error('the head was written before');
    this.headersSent = true;
    this.statusCode = status;
    if (!isShared(headers) || !this.#sharedHead(status, headers)) this.#ownHead(status, headers);
    return this;
  }

  #ownHead(status: number, headers: OutgoingHttpHeaders): void {
    const set = this.#set;
    for (const name in this.#shared) set[name] ??= this.#shared[name] as string | string[];
    for (const name in headers) set[name.toLowerCase()] = headers[name];
    this.last ||= String(set.connection ?? '').toLowerCase() === 'close';
    this.#framing = set['content-length'] === undefined ? 'chunked' : 'length';
    this.#head = this.#start(status) + endLines(this.#framing, this.last ? null : this.#keep_alive_ms);
  }

  /** Returns false where a header is set twice, or `connection` is set. */
  #sharedHead(status: number, headers: SharedHeaders): boolean {
    const { names } = cacheOf(headers);
    const { names: before } = cacheOf(this.#shared);
    for (const name in this.#set) if (name === 'connection' || names.has(name) || before.has(name)) return false;
    this.#framing = this.#set['content-length'] === undefined ? 'chunked' : 'length';
    const end = sharedEnd(this.#shared, headers, this.#framing, this.last ? null : this.#keep_alive_ms);
    if (end === null) return false;
    this.#head = this.#start(status);
    this.#headEnd = end;
    return true;
  }

  #start(status: number): string {
    let start = statusLine(status);
    for (const name in this.#set) if (name !== 'connection') start += fieldLines(name, this.#set[name]);
    return start;
  }

  /** Writes at the end of this turn, so that body bytes of the same turn share the write. */
  flushHeaders(): void {
    process.nextTick(() => {
      if (this.#head === null || this.destroyed) return;
      this.#put(NO_BYTES, false);
    });
  }

  write(bytes: Uint8Array): boolean {
    if (this.destroyed || bytes.length === 0) return !this.destroyed;
    return this.#put(bytes, this.#framing === 'chunked');
  }

  end(body?: Uint8Array | string): this {
    if (this.destroyed || this.writableFinished) return this;
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    if (bytes !== undefined && bytes.length > 0) this.write(bytes);
    if (this.#framing === 'chunked') this.#put(LAST_CHUNK, false);
    else if (this.#head !== null) this.#put(NO_BYTES, false);
    this.writableFinished = true;
    process.nextTick(() => this.#closed('finish'));
    this.#onEnd();
    return this;
  }

  destroy(): this {
    if (this.destroyed) return this;
    // Bytes that wait in a batch go out first.
    while (this.socket.writableCorked > 0) this.socket.uncork();
    this.socket.destroy();
    return this;
  }

  setTimeout(ms: number, listener: () => void): this {
    // This timeout is nearly always set already.
    if (this.socket.timeout !== ms) this.socket.setTimeout(ms);
    this.#listeners.push({ event: 'timeout', listener, once: false });
    return this;
  }

  on(event: OutgoingEvent, listener: () => void): this {
    this.#listeners.push({ event, listener, once: false });
    return this;
  }

  once(event: OutgoingEvent, listener: () => void): this {
    this.#listeners.push({ event, listener, once: true });
    return this;
  }

  off(event: OutgoingEvent, listener: () => void): this {
    this.#listeners = this.#listeners.filter((one) => one.event !== event || one.listener !== listener);
    return this;
  }

  /** The connection calls this when nothing has moved on it for the time that is set. */
  timedOut(): void {
    this.#emit('timeout');
  }

  /** The connection calls this when the client can take more. */
  drained(): void {
    this.#emit('drain');
  }

  /** The connection calls this when the client has left. */
  clientClosed(): void {
    this.#closed(null);
  }

  #closed(also: 'finish' | null): void {
    if (this.destroyed) return;
    this.destroyed = true;
    if (also !== null) this.#emit(also);
    this.#emit('close');
  }

  #emit(event: Listener['event']): void {
    for (const one of [...this.#listeners]) {
      if (one.event !== event) continue;
      if (one.once) this.#listeners = this.#listeners.filter((other) => other !== one);
      one.listener();
    }
  }

  /** Writes the head, unless it has been written, and the bytes, as they are or framed as a chunk. */
  #put(bytes: Uint8Array, chunk: boolean): boolean {
    const head = this.#head ?? '';
    const headEnd = this.#headEnd;
    this.#head = null;
    this.#headEnd = NO_BYTES;
    const headLength = head.length + headEnd.length;
    const start = chunk ? headLength + hexDigitsOf(bytes.length) + CRLF : headLength;
    const length = start + bytes.length + (chunk ? CRLF : 0);
    const singleWrite = length <= SINGLE_WRITE_BYTES;
    const buffer = Buffer.allocUnsafe(singleWrite ? length : start);
    if (head !== '') buffer.write(head, 0, 'latin1');
    if (headEnd !== NO_BYTES) buffer.set(headEnd, head.length);
    if (chunk) {
      putHex(buffer, start - CRLF, bytes.length);
      putCrlf(buffer, start);
    }
    if (singleWrite) {
      buffer.set(bytes, start);
      if (chunk) putCrlf(buffer, length);
      if (this.#framing === 'length') writeBatch.add(this.socket);
      // The head and first chunk of a stream go out at once, because the client waits for the first token.
      else if (headLength === 0) chunkBatch.add(this.socket);
      return this.socket.write(buffer);
    }
    this.socket.cork();
    if (start > 0) this.socket.write(buffer);
    const more = this.socket.write(bytes);
    if (chunk) this.socket.write(CHUNK_END);
    this.socket.uncork();
    return more;
  }
}

/** Writes CR LF before `end`. */
function putCrlf(bytes: Uint8Array, end: number): void {
  bytes[end - 2] = 0x0d;
  bytes[end - 1] = 0x0a;
}
