// An answer written straight to its connection: what the deliveries use of Node's ServerResponse, and nothing else of it.
import { type OutgoingHttpHeaders, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { batch } from '../batch.ts';
import { isShared, linesOfBoth, type SharedHeaders, share } from '../shared-headers.ts';

/** What a delivery may do with the response that goes to the client: Node's ServerResponse has it all, and so has WireAnswer. */
export interface Outgoing {
  readonly headersSent: boolean;
  readonly destroyed: boolean;
  readonly writableFinished: boolean;
  readonly writableLength: number;
  readonly socket: Socket | null;
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  /** As `setHeader` for each of them, before all others; Node's own response has no such thing. */
  setShared?(headers: SharedHeaders): unknown;
  getHeader(name: string): unknown;
  writeHead(status: number, headers?: OutgoingHttpHeaders): unknown;
  /** The head goes out now, and does not wait for the first bytes of the body. */
  flushHeaders(): void;
  /** False when the client should be waited for: `drain` comes. */
  write(bytes: Uint8Array): boolean;
  end(bytes?: Uint8Array | string): unknown;
  destroy(): unknown;
  /** `listener` is called whenever nothing has moved on the connection for so long, until the answer is out. */
  setTimeout(ms: number, listener: () => void): unknown;
  /** `close`: the answer is out, or its client has left. */
  on(event: OutgoingEvent, listener: () => void): unknown;
  once(event: OutgoingEvent, listener: () => void): unknown;
  off(event: OutgoingEvent, listener: () => void): unknown;
}

export type OutgoingEvent = 'close' | 'drain' | 'finish';

const NONE = share({});
const CRLF = Buffer.from('\r\n');
const LAST_CHUNK = Buffer.from('0\r\n\r\n');
const NO_NAME = /[^!#$%&'*+\-.^_`|~0-9A-Za-z]/;
/** Copying so much costs less than a write in several pieces. */
const ONE_PIECE_BYTES = 8 * 1024;

type Framing = 'none' | 'length' | 'chunked';

interface Listener {
  readonly event: OutgoingEvent | 'timeout';
  readonly listener: () => void;
  readonly once: boolean;
}

export class WireAnswer implements Outgoing {
  readonly socket: Socket;
  readonly #keep_alive_ms: number;
  readonly #onEnd: () => void;
  readonly #set: OutgoingHttpHeaders = {};
  #shared: SharedHeaders = NONE;
  /** Two or three in every answer: an emitter of Node's costs ten times as much. */
  #listeners: Listener[] = [];
  /** The head, until it is written with the first bytes of the body. */
  #head: string | null = null;
  #framing: Framing = 'none';
  statusCode = 200;
  headersSent = false;
  destroyed = false;
  writableFinished = false;
  /** The last answer of its connection. */
  last = false;

  /** `onEnd`: every byte has been handed to the socket. */
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

  getHeader(name: string): unknown {
    return this.#set[name] ?? this.#shared[name];
  }

  writeHead(status: number, headers: OutgoingHttpHeaders = {}): this {
    if (this.headersSent) throw new Error('the head was written before');
    this.headersSent = true;
    this.statusCode = status;
    const shared = this.#sharedLines(headers);
    if (shared === null) {
      for (const name in this.#shared) this.#set[name] ??= this.#shared[name] as string | string[];
      for (const name in headers) this.#set[name.toLowerCase()] = headers[name];
    }
    const { connection } = this.#set;
    if (connection !== undefined) this.last ||= String(connection).toLowerCase() === 'close';
    let head = statusLine(status);
    for (const name in this.#set) if (name !== 'connection') head += lines(name, this.#set[name]);
    if (shared !== null) head += shared;
    this.#framing = this.#set['content-length'] === undefined ? 'chunked' : 'length';
    if (this.#framing === 'chunked') head += 'transfer-encoding: chunked\r\n';
    this.#head = head + dateLine() + (this.last ? 'connection: close\r\n\r\n' : keepAlive(this.#keep_alive_ms));
    return this;
  }

  /** null where they cannot stand by themselves: something is said of them a second time. */
  #sharedLines(headers: OutgoingHttpHeaders): string | null {
    if (!isShared(headers)) return null;
    for (const name in this.#set) if (name in headers || name in this.#shared) return null;
    return linesOfBoth(this.#shared, headers, allLines);
  }

  /** At the end of this turn, so that what comes in it shares the write. */
  flushHeaders(): void {
    process.nextTick(() => {
      if (this.#head === null || this.destroyed) return;
      this.socket.write(this.#head, 'latin1');
      this.#head = null;
    });
  }

  write(bytes: Uint8Array): boolean {
    if (this.destroyed || bytes.length === 0) return !this.destroyed;
    const size = this.#framing === 'chunked' ? `${bytes.length.toString(16)}\r\n` : '';
    return this.#put(size, bytes, size === '' ? null : CRLF);
  }

  end(body?: Uint8Array | string): this {
    if (this.destroyed || this.writableFinished) return this;
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    if (bytes !== undefined && bytes.length > 0) this.write(bytes);
    if (this.#framing === 'chunked') this.#put('', LAST_CHUNK, null);
    else if (this.#head !== null) this.#put('', LAST_CHUNK.subarray(0, 0), null);
    this.writableFinished = true;
    process.nextTick(() => this.#closed('finish'));
    this.#onEnd();
    return this;
  }

  destroy(): this {
    if (this.destroyed) return this;
    // What was written before goes out, whatever it waits for.
    while (this.socket.writableCorked > 0) this.socket.uncork();
    this.socket.destroy();
    return this;
  }

  setTimeout(ms: number, listener: () => void): this {
    // It is nearly always the one that stands.
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

  /** The connection's word that nothing has moved on it. */
  timedOut(): void {
    this.#emit('timeout');
  }

  /** The connection's word that the client can take more. */
  drained(): void {
    this.#emit('drain');
  }

  /** The connection's word that the client has left. */
  left(): void {
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

  /** The head, if it is still here, what goes before the bytes, they, and what goes after, in one write. */
  #put(before: string, bytes: Uint8Array, after: Buffer | null): boolean {
    const start = this.#head === null ? before : this.#head + before;
    this.#head = null;
    const length = start.length + bytes.length + (after?.length ?? 0);
    if (length > ONE_PIECE_BYTES) {
      this.socket.cork();
      if (start !== '') this.socket.write(start, 'latin1');
      const more = this.socket.write(bytes);
      if (after !== null) this.socket.write(after);
      this.socket.uncork();
      return more;
    }
    const piece = Buffer.allocUnsafe(length);
    piece.write(start, 0, 'latin1');
    piece.set(bytes, start.length);
    if (after !== null) piece.set(after, start.length + bytes.length);
    if (this.#framing === 'length') batch(this.socket);
    return this.socket.write(piece);
  }
}

/** Those that say how the message is framed or what becomes of its connection are never shared. */
const allLines = (headers: SharedHeaders): string =>
  Object.entries(headers)
    .map(([name, value]) => lines(name, value))
    .join('');

function statusLine(status: number): string {
  if (status === 200) return OK;
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n`;
}
const OK = 'HTTP/1.1 200 OK\r\n';

function lines(name: string, value: OutgoingHttpHeaders[string]): string {
  if (value === undefined) return '';
  if (Array.isArray(value)) return value.map((one) => lines(name, one)).join('');
  const text = String(value);
  const before = written.get(name);
  if (before?.value === text) return before.line;
  if ((before === undefined && NO_NAME.test(name)) || !isValue(text))
    throw new TypeError(`the header ${name} cannot be sent`);
  const line = `${name}: ${text}\r\n`;
  if (before === undefined && written.size < MAX_WRITTEN) written.set(name, { value: text, line });
  return line;
}

/** A tab, or printable Latin-1. */
function isValue(text: string): boolean {
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if ((code < 0x20 && code !== TAB) || (code > 0x7e && code < 0x80) || code > 0xff) return false;
  }
  return true;
}
const TAB = 0x09;

/** The first line of each name: most headers say the same in every answer. */
const written = new Map<string, { readonly value: string; readonly line: string }>();
const MAX_WRITTEN = 64;

let date = '';
let date_ms = 0;

/** It changes once a second, and so is it made. */
function dateLine(): string {
  const now_ms = Date.now();
  if (now_ms - date_ms >= 1000 || now_ms < date_ms) {
    date_ms = now_ms - (now_ms % 1000);
    date = `date: ${new Date(now_ms).toUTCString()}\r\n`;
  }
  return date;
}

let kept = { ms: Number.NaN, lines: '' };

function keepAlive(ms: number): string {
  if (kept.ms !== ms)
    kept = { ms, lines: `connection: keep-alive\r\nkeep-alive: timeout=${Math.floor(ms / 1000)}\r\n\r\n` };
  return kept.lines;
}
