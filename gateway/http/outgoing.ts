// Outgoing messages: the response to a client, headers that many messages share, the headers of every response, and batched writes.
import { randomBytes } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';

/** The response to a client: the common interface of Node's ServerResponse and PlainResponse. */
export interface Outgoing {
  readonly headersSent: boolean;
  readonly destroyed: boolean;
  readonly writableLength: number;
  readonly socket: Socket | null;
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  /** Sets all of these headers, as if before all others. Node's ServerResponse does not have this method. */
  setShared?(headers: SharedHeaders): unknown;
  writeHead(status: number, headers?: OutgoingHttpHeaders): unknown;
  /** Sends the head now, before the first bytes of the body. */
  flushHeaders(): void;
  /** Returns false when the caller should wait for `drain`. */
  write(bytes: Uint8Array): boolean;
  end(bytes?: Uint8Array | string): unknown;
  destroy(): unknown;
  /** Calls `listener` whenever nothing has moved on the connection for `ms`, until the response is out. */
  setTimeout(ms: number, listener: () => void): unknown;
  /** `close`: the response is out, or its client has left. */
  on(event: OutgoingEvent, listener: () => void): unknown;
  once(event: OutgoingEvent, listener: () => void): unknown;
  off(event: OutgoingEvent, listener: () => void): unknown;
}

export type OutgoingEvent = 'close' | 'drain' | 'finish';

// Headers that many responses share unchanged. Their encoded form is cached with them.

const CACHE = Symbol('written');

interface HeaderCache {
  readonly names: ReadonlySet<string>;
  /** The encoded form, made by the one module that writes these headers. */
  encoded: unknown;
}

/** Headers with a cache attached. Other code reads them as a plain object. */
export type SharedHeaders = Readonly<Record<string, string | string[]>> & { readonly [CACHE]: HeaderCache };

/** Attaches a cache to `headers`, whose names are in lower case, and freezes them. */
export function share(headers: Record<string, string | string[]>): SharedHeaders {
  // The cache is not enumerable, so that a copy with another header does not carry it along.
  const cache: HeaderCache = { names: new Set(Object.keys(headers)), encoded: null };
  return Object.freeze(Object.defineProperty(headers, CACHE, { value: cache })) as SharedHeaders;
}

export function isShared(headers: object): headers is SharedHeaders {
  return CACHE in headers;
}

export const cacheOf = (headers: SharedHeaders): HeaderCache => headers[CACHE];

/** Header lines that are serialized once and sent with many requests. Those requests have a body and share one method and one path. */
export class SerializedHeaders {
  readonly text: string;
  /** The head up to Content-Length, written on first use. `close` is for a connection that carries no other request. */
  readonly prefix: { keep_alive: string | null; close: string | null } = { keep_alive: null, close: null };

  constructor(text: string) {
    this.text = text;
  }
}

// Header fields (RFC 9110 §5).

const FIELD_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** Control characters, and characters beyond Latin-1. */
const NOT_IN_FIELD_VALUE = /[^\t\x20-\x7e\x80-\xff]/;

export const isFieldName = (name: string): boolean => FIELD_NAME.test(name);
export const isFieldValue = (value: string): boolean => !NOT_IN_FIELD_VALUE.test(value);

/** Returns one line for each value. Throws the error that `invalid` makes where HTTP cannot carry the name or a value. */
export function fieldLines(
  name: string,
  value: OutgoingHttpHeaders[string],
  invalid: (name: string) => Error = unsendable,
): string {
  if (value === undefined) return '';
  if (Array.isArray(value)) return value.map((one) => fieldLines(name, one, invalid)).join('');
  const text = String(value);
  if (!isFieldName(name) || !isFieldValue(text)) throw invalid(name);
  return `${name}: ${text}\r\n`;
}

const unsendable = (name: string) => new TypeError(`the header ${name} cannot be sent`);

// The headers of every response.

const COMMON = share({
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'; sandbox",
  'referrer-policy': 'no-referrer',
});

export function commonHeaders(id: string): Record<string, string> {
  return { 'x-request-id': id, ...COMMON };
}

export function setCommonHeaders(outgoing: Pick<Outgoing, 'setHeader' | 'setShared'>, id: string): void {
  outgoing.setHeader('x-request-id', id);
  if (outgoing.setShared !== undefined) outgoing.setShared(COMMON);
  else for (const name in COMMON) outgoing.setHeader(name, COMMON[name] as string);
}

const IDS = 256;
const ID_BYTES = 16;
const ID_LENGTH = 'req-'.length + 2 * ID_BYTES;
let ids: string[] = [];

/**
 * Makes `req-` and 128 random bits in hexadecimal. Ids are made in batches, because the generator takes as long for one as for all. Each is
 * a flat string, because it is written several times.
 */
export function newId(): string {
  if (ids.length === 0) {
    const random = randomBytes(IDS * ID_BYTES).toString('hex');
    const text = Buffer.from(random.replaceAll(/.{32}/g, 'req-$&'), 'latin1');
    ids = Array.from({ length: IDS }, (_, i) => text.toString('latin1', i * ID_LENGTH, (i + 1) * ID_LENGTH));
  }
  return ids.pop() as string;
}

// Batches the writes of one turn of the event loop and passes them to the kernel in a row at its end. A write wakes the process that reads
// it, and evicts our own code from the processor's caches: writes in a row save a seventh of a request's cost. A turn with a single write
// gains nothing and would only delay it, so writes are batched only while turns have several.

/** The largest batch. It is limited so that its first write is not delayed for long. */
const MAX_WAITING = 128;
/** Writes are batched while turns have at least this many on average. */
const MIN_WRITES = 2;
/** While writes are not batched, one in this many is, as a probe, with all after it in its turn: on average half of the turn's writes. */
const PROBE_WRITES = 128;
/** The mean is taken over about this many turns. */
const MEAN_TURNS = 8;

export class WriteBatch {
  #waiting: Socket[] = [];
  /** Writes in this turn. */
  #writes = 0;
  #mean_writes = 0;
  #skipped_writes = 0;

  /** Call this before a write. The write goes out at the end of this turn if turns have several. Ending the socket sends it at once. */
  add(socket: Socket): void {
    if (this.#mean_writes < MIN_WRITES && ++this.#skipped_writes < PROBE_WRITES) return;
    if (socket.writableCorked > 0) return;
    socket.cork();
    this.#waiting.push(socket);
    if (++this.#writes === 1) setImmediate(this.#endTurn);
    else if (this.#waiting.length === MAX_WAITING) this.#send();
  }

  readonly #endTurn = (): void => {
    this.#mean_writes += (this.#writes - this.#mean_writes) / MEAN_TURNS;
    this.#writes = 0;
    this.#skipped_writes = 0;
    this.#send();
  };

  #send(): void {
    const sockets = this.#waiting;
    this.#waiting = [];
    for (const socket of sockets) socket.uncork();
  }
}

/** For requests to the backend and whole responses. */
export const writeBatch = new WriteBatch();
/** For chunks of streams, so that a request does not wait for the many chunks of a turn. */
export const chunkBatch = new WriteBatch();
