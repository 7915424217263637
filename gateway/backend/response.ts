// Parses a backend's response from its bytes, and limits it. First its head (RFC 9112 §4–6): ambiguous heads are rejected.
import { LRUCache } from 'lru-cache';
import { EMPTY, indexOfByte } from '../base/bytes.ts';
import { Problem } from '../base/problem.ts';
import { isFieldName, isFieldValue } from '../http/outgoing.ts';
import type { ResponseHead } from './backend.ts';
import { BackendFault } from './errors.ts';

export interface ParsedHead extends ResponseHead {
  readonly framing: Framing;
  /** The connection may carry another request after this response. */
  readonly reusable: boolean;
  /** Length of the head in bytes, its empty line included. */
  readonly size: number;
}

/** How the end of the body is found: by its length in bytes, by chunks, or by the end of the connection. */
type Framing = number | 'chunked' | 'until_close';

const MAX_HEAD_BYTES = 64 * 1024;
const CRLF = '\r\n';
const END = Buffer.from('\r\n\r\n');
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5]\d\d)(?: .*)?$/;
/** An empty line after a bare LF, which some parsers accept as the end of a head. */
const BARE_ENDS = ['\n\n', '\n\r\n'];
const SP = 0x20;
const TAB = 0x09;
const DIGITS = /^\d{1,15}$/;
const LENGTH = 'content-length';
const DATE = 'date';
const CODING = 'transfer-encoding';

/** Whether the bytes from `from` on may complete a head or exceed its limit. Otherwise the head need not be parsed yet. */
export function mayEndHead(bytes: Buffer, from: number): boolean {
  return bytes.length > MAX_HEAD_BYTES || bytes.indexOf(END, Math.max(0, from - END.length + 1)) >= 0;
}

/** Returns null while the head is not complete. @throws {BackendFault} not_http */
export function parseResponseHead(bytes: Buffer): ParsedHead | null {
  const end = bytes.indexOf(END);
  if (end < 0 ? bytes.length > MAX_HEAD_BYTES : end > MAX_HEAD_BYTES) throw notHttp('a head larger than the limit');
  if (end < 0) {
    if (BARE_ENDS.some((bare) => bytes.includes(bare))) throw notHttp('a head with bare line ends');
    return null;
  }
  const text = bytes.toString('latin1', 0, end + CRLF.length);
  let from = text.indexOf(CRLF);
  const [, minor, code] = STATUS_LINE.exec(text.slice(0, from)) ?? [];
  if (code === undefined) throw notHttp('no status line');
  const headers: Record<string, string> = Object.create(null);
  while (from < end) {
    const to = text.indexOf(CRLF, from + CRLF.length);
    const colon = text.indexOf(':', from + CRLF.length);
    const name = text.slice(from + CRLF.length, colon).toLowerCase();
    const value = trimmed(text, colon + 1, to);
    if (colon < 0 || colon > to || !isFieldName(name) || !isFieldValue(value)) throw notHttp('a header that is none');
    add(headers, name, value);
    from = to;
  }
  const status = Number(code);
  const framing = framingOf(status, headers, minor === '1');
  const reusable =
    minor === '1' &&
    !/\bclose\b/i.test(headers.connection ?? '') &&
    framing !== 'until_close' &&
    !announcesContent(status, headers);
  const length = !hasNoContent(status) && headers[LENGTH] !== undefined ? Number(headers[LENGTH]) : null;
  delete headers[LENGTH];
  delete headers[DATE];
  return { status, headers, length, cache: { clientHeaders: null }, framing, reusable, size: end + END.length };
}

/** Trims spaces and tabs (RFC 9112 §5). Other white space is part of a value. */
function trimmed(text: string, start: number, end: number): string {
  let [from, to] = [start, end];
  while (from < to && isBlank(text.charCodeAt(from))) from++;
  while (to > from && isBlank(text.charCodeAt(to - 1))) to--;
  return text.slice(from, to);
}

const isBlank = (code: number): boolean => code === SP || code === TAB;

function add(headers: Record<string, string>, name: string, value: string): void {
  const before = headers[name];
  if (before === undefined) headers[name] = value;
  else if (name !== LENGTH) headers[name] = `${before}, ${value}`;
  else if (before !== value) throw notHttp('two lengths');
}

/** Whether the status has no content, whatever its headers say (RFC 9112 §6.3). */
const hasNoContent = (status: number): boolean => status < 200 || status === 204 || status === 304;

/** A 204 that announces content, which it cannot have. The bytes after it may be that content and not the next response. */
function announcesContent(status: number, headers: Record<string, string>): boolean {
  return status === 204 && ((headers[LENGTH] ?? '0') !== '0' || headers[CODING] !== undefined);
}

function framingOf(status: number, headers: Record<string, string>, isHttp11: boolean): Framing {
  const coding = headers[CODING];
  const length = headers[LENGTH];
  if (hasNoContent(status)) return 0;
  if (coding !== undefined) {
    // HTTP/1.0 has no transfer codings, so its framing is faulty (RFC 9112 §6.1).
    if (!isHttp11 || coding.toLowerCase() !== 'chunked' || length !== undefined)
      throw notHttp('a framing that is ambiguous');
    return 'chunked';
  }
  if (length === undefined) return 'until_close';
  if (!DIGITS.test(length)) throw notHttp('a length that is none');
  return Number(length);
}

export function notHttp(message: string): BackendFault {
  return new BackendFault('not_http', message);
}

// Removes the framing from a backend's body (RFC 9112 §6–7). The data of one read becomes one buffer, copied once.

const CR = 13;
const LF = 10;
/** Limit for one chunk-size line with its extensions, and for one trailer line. */
const MAX_LINE_BYTES = 4 * 1024;
const MAX_TRAILER_BYTES = 16 * 1024;
const MAX_PLAIN_DIGITS = 5;

type State = 'size' | 'data' | 'data_end' | 'trailer';

export class ResponseBody {
  readonly #chunked: boolean;
  /** Bytes that are left of the body, or of the current chunk. */
  #remaining: number;
  #state: State = 'size';
  #line = '';
  #trailer_bytes = 0;
  #ended: boolean;

  constructor(framing: Framing) {
    this.#chunked = framing === 'chunked';
    this.#remaining = typeof framing === 'number' ? framing : framing === 'chunked' ? 0 : Number.POSITIVE_INFINITY;
    this.#ended = framing === 0;
  }

  /** Every byte of the body has been read. Always false for a body that ends with its connection. */
  get ended(): boolean {
    return this.#ended;
  }

  /** The body ends when the connection ends. */
  get endsWithConnection(): boolean {
    return this.#remaining === Number.POSITIVE_INFINITY;
  }

  /** Returns a copy of the body's bytes between `from` and `to`. @throws {BackendFault} not_http, also for bytes after the end. */
  read(bytes: Buffer, from: number, to: number): Buffer {
    if (this.#chunked) return this.#readChunks(bytes, from, to);
    if (to - from > this.#remaining) throw notHttp('more bytes than were announced');
    this.#remaining -= to - from;
    this.#ended = this.#remaining === 0;
    return copyOf(bytes, from, to);
  }

  #readChunks(bytes: Buffer, from: number, to: number): Buffer {
    // Most reads hold the data of one chunk. The array is used only when there are more.
    let rangeFrom = 0;
    let rangeTo = 0;
    let ranges: number[] | null = null;
    let at = from;
    while (at < to) {
      if (this.#ended) throw notHttp('bytes behind the last chunk');
      if (this.#state === 'data') {
        const end = Math.min(to, at + this.#remaining);
        if (rangeTo === 0) {
          rangeFrom = at;
          rangeTo = end;
        } else {
          ranges ??= [rangeFrom, rangeTo];
          ranges.push(at, end);
        }
        this.#remaining -= end - at;
        at = end;
        if (this.#remaining === 0) this.#state = 'data_end';
      } else at = this.#readShortLine(bytes, at, to) ?? this.#readLine(bytes, at, to);
    }
    return ranges === null ? copyOf(bytes, rangeFrom, rangeTo) : joined(bytes, ranges);
  }

  /**
   * Reads the usual line in one step: a chunk size of up to five digits, or the end of a chunk. Returns the offset after it, or null for
   * any other line.
   */
  #readShortLine(bytes: Buffer, from: number, to: number): number | null {
    if (this.#line !== '' || this.#state === 'trailer') return null;
    let size = 0;
    let at = from;
    if (this.#state === 'size') {
      for (let digit = hex(bytes[at]); digit >= 0 && at < to; digit = hex(bytes[++at])) size = size * 16 + digit;
      if (size === 0 || at - from > MAX_PLAIN_DIGITS) return null;
    }
    if (at + 2 > to || bytes[at] !== CR || bytes[at + 1] !== LF) return null;
    this.#remaining = size;
    this.#state = this.#state === 'size' ? 'data' : 'size';
    return at + 2;
  }

  #readLine(bytes: Buffer, from: number, to: number): number {
    const lf = bytes.indexOf(LF, from);
    const ended = lf >= 0 && lf < to;
    const end = ended ? lf + 1 : to;
    if (this.#line.length + end - from > MAX_LINE_BYTES) throw notHttp('a chunk line larger than the limit');
    this.#line += bytes.toString('latin1', from, end);
    if (ended) this.#endLine();
    return end;
  }

  #endLine(): void {
    const line = this.#line;
    this.#line = '';
    if (line.charCodeAt(line.length - 2) !== CR) throw notHttp('a chunk line without CR LF');
    const text = line.slice(0, -2);
    if (!isFieldValue(text)) throw notHttp('a chunk line with a control character');
    if (this.#state === 'data_end') {
      if (text !== '') throw notHttp('a chunk longer than its size');
      this.#state = 'size';
    } else if (this.#state === 'size') {
      this.#remaining = chunkSize(text);
      this.#state = this.#remaining === 0 ? 'trailer' : 'data';
    } else {
      this.#trailer_bytes += line.length;
      if (this.#trailer_bytes > MAX_TRAILER_BYTES) throw notHttp('a trailer larger than the limit');
      this.#ended = text === '';
    }
  }
}

function chunkSize(line: string): number {
  const size = /^([0-9a-fA-F]{1,10})[ \t]*(?:;|$)/.exec(line)?.[1];
  if (size === undefined) throw notHttp('a chunk size that is none');
  return Number.parseInt(size, 16);
}

/** The value of a hexadecimal digit, or a negative number. */
function hex(byte = 0): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

function copyOf(bytes: Buffer, from: number, to: number): Buffer {
  if (from === to) return EMPTY;
  const copy = Buffer.allocUnsafe(to - from);
  bytes.copy(copy, 0, from, to);
  return copy;
}

/** @param ranges pairs of offsets: from, to, from, to, … */
function joined(bytes: Buffer, ranges: readonly number[]): Buffer {
  let length = 0;
  for (let i = 0; i < ranges.length; i += 2) length += (ranges[i + 1] as number) - (ranges[i] as number);
  const copy = Buffer.allocUnsafe(length);
  let written = 0;
  for (let i = 0; i < ranges.length; i += 2) written += bytes.copy(copy, written, ranges[i], ranges[i + 1]);
  return copy;
}

// A cache of parsed heads. The responses of one backend have a few heads, each of which differs in its length and date only.

const MAX_CACHED_HEADS = 4;
/** A larger head is not cached. */
const MAX_CACHED_BYTES = 2 * 1024;
const LENGTH_LINE = /\r\ncontent-length: (\d{1,15})(?=\r\n)/i;
const DATE_LINE = /\r\ndate: [\x20-\x7e]+(?=\r\n)/i;
/** Stands for the length in a key. It cannot be part of a head, because it would end the head. */
const LENGTH_MARK = '\r\n\r\n';

/** The last heads of one backend, by their text without the length and the date. */
export class HeadCache {
  readonly #heads = new LRUCache<string, ParsedHead>({ max: MAX_CACHED_HEADS });

  /** Returns the head between `from` and `to`, or null while it is not complete. @throws {BackendFault} not_http */
  read(bytes: Buffer, from: number, to: number): ParsedHead | null {
    const all = bytes.subarray(from, to);
    const end = all.indexOf(END);
    if (end < 0 || end > MAX_CACHED_BYTES) return parseResponseHead(all);
    const text = all.toString('latin1', 0, end + CRLF.length);
    const length = LENGTH_LINE.exec(text)?.[1];
    const key = text.replace(LENGTH_LINE, LENGTH_MARK).replace(DATE_LINE, '');
    const cached = this.#heads.get(key);
    const size = end + END.length;
    if (cached === undefined) return this.#parse(all, key);
    return length === undefined
      ? { ...cached, size }
      : { ...cached, length: Number(length), framing: Number(length), size };
  }

  #parse(bytes: Buffer, key: string): ParsedHead | null {
    const head = parseResponseHead(bytes);
    // A second Content-Length must be compared with the first, and without content the length does not describe the body.
    if (head !== null && !hasNoContent(head.status) && !/content-length/i.test(key)) this.#heads.set(key, head);
    return head;
  }
}

// Limits of one response: bytes and events of a stream, and the time of any response.

export interface ResponseLimits {
  readonly max_stream_bytes: number;
  readonly max_stream_events: number;
  /** The time from the request to the last byte. */
  readonly max_answer_ms: number;
}

/** Counts one response against its limits. The time is checked when a chunk arrives; between chunks the limit on silence applies. */
export class ResponseMeter {
  readonly #limits: ResponseLimits;
  readonly #began_ms = performance.now();
  #stream = false;
  #bytes = 0;
  #events = 0;
  /** The position after the last line feed, relative to the first byte of the next chunk. NaN after an empty line. */
  #lineEnd = Number.NaN;
  /** The last byte before the next chunk. */
  #last = 0;

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
      return new Problem('backend_timeout', `The answer was not complete within ${max_answer_ms} ms (MAX_ANSWER_MS).`);
    if (!this.#stream) return null;
    this.#bytes += chunk.length;
    this.#events += this.#eventsIn(chunk);
    if (this.#bytes > max_stream_bytes)
      return new Problem(
        'backend_bad_response',
        `The stream is longer than ${max_stream_bytes} bytes (MAX_STREAM_BYTES).`,
      );
    if (this.#events > max_stream_events)
      return new Problem(
        'backend_bad_response',
        `The stream has more than ${max_stream_events} events (MAX_STREAM_EVENTS).`,
      );
    return null;
  }

  /** Counts the empty lines `\n\n` and `\n\r\n`. Bare carriage returns are limited by the count of bytes. */
  #eventsIn(chunk: Buffer): number {
    let events = 0;
    let lineEnd = this.#lineEnd;
    for (let at = indexOfByte(chunk, LF, 0); at >= 0; at = indexOfByte(chunk, LF, at + 1)) {
      const length = at - lineEnd - 1;
      const empty = length === 0 || (length === 1 && (at === 0 ? this.#last : chunk[at - 1]) === CR);
      if (empty) events++;
      lineEnd = empty ? Number.NaN : at;
    }
    this.#lineEnd = lineEnd - chunk.length;
    this.#last = chunk[chunk.length - 1] ?? this.#last;
    return events;
  }
}
