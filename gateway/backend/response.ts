// Reads the head of a backend's answer from its bytes (RFC 9112 §4–6), strictly: what is ambiguous is refused.
import { digitAt, isSame } from '../http/bytes.ts';
import { BackendFault, type ResponseHead } from './backend.ts';

export interface ParsedHead extends ResponseHead {
  readonly framing: Framing;
  /** The connection may carry another request after this answer. */
  readonly reusable: boolean;
  /** Bytes that the head took, its empty line included. */
  readonly size: number;
}

/** How the end of the body is known: so many bytes, chunks, or the connection's end. */
type Framing = number | 'chunked' | 'until_close';

const MAX_HEAD_BYTES = 64 * 1024;
const CRLF = '\r\n';
const END = Buffer.from('\r\n\r\n');
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5]\d\d)(?: .*)?$/;
const NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** What neither a value nor a chunk line may hold: control characters, a bare CR among them. */
const INVALID_IN_VALUE = /[^\t\x20-\x7e\x80-\xff]/;
/** An empty line behind a bare LF, as some read the end of a head. */
const BARE_ENDS = ['\n\n', '\n\r\n'];
const SP = 0x20;
const TAB = 0x09;
const DIGITS = /^\d{1,15}$/;
const LENGTH = 'content-length';
const DATE = 'date';
const CODING = 'transfer-encoding';

/** Where the values of two headers stand that differ from answer to answer; null where there is not one of a plain form. */
interface VariableRanges {
  length: ByteRange | null;
  date: ByteRange | null;
}
interface ByteRange {
  readonly from: number;
  readonly to: number;
}

/** Whether what came from `from` on may complete a head, or make it too large: while not, it need not be read. */
export function mayEndHead(bytes: Buffer, from: number): boolean {
  return bytes.length > MAX_HEAD_BYTES || bytes.indexOf(END, Math.max(0, from - END.length + 1)) >= 0;
}

/** null while the head is not complete. `places` is told where they are. @throws {BackendFault} not_http */
export function parseResponseHead(bytes: Buffer, ranges?: VariableRanges): ParsedHead | null {
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
    if (colon < 0 || colon > to || !NAME.test(name) || INVALID_IN_VALUE.test(value))
      throw notHttp('a header that is none');
    if (ranges !== undefined && (name === LENGTH || name === DATE))
      ranges[name === LENGTH ? 'length' : 'date'] = name in headers ? null : rangeOf(text, value, colon + 1);
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

/** Without the spaces and tabs around it (RFC 9112 §5): other white space is part of a value. */
function trimmed(text: string, start: number, end: number): string {
  let [from, to] = [start, end];
  while (from < to && isBlank(text.charCodeAt(from))) from++;
  while (to > from && isBlank(text.charCodeAt(to - 1))) to--;
  return text.slice(from, to);
}

const isBlank = (code: number): boolean => code === SP || code === TAB;

function rangeOf(text: string, value: string, after: number): ByteRange | null {
  const from = text.indexOf(value, after);
  return value === '' ? null : { from, to: from + value.length };
}

function add(headers: Record<string, string>, name: string, value: string): void {
  const before = headers[name];
  if (before === undefined) headers[name] = value;
  else if (name !== LENGTH) headers[name] = `${before}, ${value}`;
  else if (before !== value) throw notHttp('two lengths');
}

/** Whatever its headers say (RFC 9112 §6.3). */
const hasNoContent = (status: number): boolean => status < 200 || status === 204 || status === 304;

/** A 204 that announces content, which it cannot have: what comes behind it may be that, and no other answer. */
function announcesContent(status: number, headers: Record<string, string>): boolean {
  return status === 204 && ((headers[LENGTH] ?? '0') !== '0' || headers[CODING] !== undefined);
}

function framingOf(status: number, headers: Record<string, string>, isHttp11: boolean): Framing {
  const coding = headers[CODING];
  const length = headers[LENGTH];
  if (hasNoContent(status)) return 0;
  if (coding !== undefined) {
    // HTTP/1.0 has no codings: its framing is faulty (RFC 9112 §6.1).
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

// Takes a backend's body out of its framing (RFC 9112 §6–7): all of one read in one piece, copied once.

const CR = 13;
const LF = 10;
/** A chunk's size and its extensions, or one trailer. */
const MAX_LINE_BYTES = 4 * 1024;
const MAX_TRAILER_BYTES = 16 * 1024;
const MAX_PLAIN_DIGITS = 5;
const EMPTY = Buffer.alloc(0);

type State = 'size' | 'data' | 'data_end' | 'trailer';

export class ResponseBody {
  readonly #chunked: boolean;
  /** Of the body, or of the chunk. */
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

  /** Every byte of the body has been read. A body that ends with its connection never says so. */
  get ended(): boolean {
    return this.#ended;
  }

  /** The connection's end is the body's. */
  get endsWithConnection(): boolean {
    return this.#remaining === Number.POSITIVE_INFINITY;
  }

  /** The body's bytes from `from` to `to`, as a copy. @throws {BackendFault} not_http, also for bytes behind the end. */
  read(bytes: Buffer, from: number, to: number): Buffer {
    if (this.#chunked) return this.#readChunks(bytes, from, to);
    if (to - from > this.#remaining) throw notHttp('more bytes than were announced');
    this.#remaining -= to - from;
    this.#ended = this.#remaining === 0;
    return copyOf(bytes, from, to);
  }

  #readChunks(bytes: Buffer, from: number, to: number): Buffer {
    // Nearly always one piece: an array is for more.
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

  /** Where the line ends, if it is what nearly all are: a size of up to five digits or the end of a chunk, and all of it here. */
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
    if (INVALID_IN_VALUE.test(text)) throw notHttp('a chunk line with a control character');
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

/** The value of a hexadecimal digit; less than 0 of anything else. */
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

/** @param ranges from and to, again and again */
function joined(bytes: Buffer, ranges: readonly number[]): Buffer {
  let length = 0;
  for (let i = 0; i < ranges.length; i += 2) length += (ranges[i + 1] as number) - (ranges[i] as number);
  const copy = Buffer.allocUnsafe(length);
  let written = 0;
  for (let i = 0; i < ranges.length; i += 2) written += bytes.copy(copy, written, ranges[i], ranges[i + 1]);
  return copy;
}

// The heads that a backend says: one that it said before, byte for byte but for its length and its date, is not read again.

/** A backend has one for whole answers, one for streams, and few others. */
const MAX_HEADS = 4;
const MAX_BYTES = 2 * 1024;
/** After so many heads in a row that were all new, only one in `ONE_IN` is remembered: this backend writes something else into each. */
const MAX_MISSES = 8;
const CACHE_ONE_IN = 64;
const MAX_DIGITS = 15;

interface CachedHead {
  /** What stays the same, in order. */
  readonly parts: readonly Uint8Array[];
  /** What stands between them: digits of the length, or a date of as many characters. */
  readonly gaps: readonly (number | 'length')[];
  readonly head: ParsedHead;
}

/** The last heads of one backend. */
export class HeadCache {
  #entries: readonly CachedHead[] = [];
  #misses = 0;

  /** The head that `bytes` have between `from` and `to`; null while it is not complete. @throws {BackendFault} not_http */
  read(bytes: Buffer, from: number, to: number): ParsedHead | null {
    for (const entry of this.#entries) {
      const head = matchCached(bytes, from, to, entry);
      if (head === null) continue;
      this.#misses = 0;
      return head;
    }
    const ranges: VariableRanges = { length: null, date: null };
    const all = bytes.subarray(from, to);
    const head = parseResponseHead(all, ranges);
    // An answer without content may say a length that means nothing.
    if (head !== null && !hasNoContent(head.status) && head.size <= MAX_BYTES) this.#cache(all, head, ranges);
    return head;
  }

  #cache(bytes: Buffer, head: ParsedHead, places: VariableRanges): void {
    if (++this.#misses > MAX_MISSES && this.#misses % CACHE_ONE_IN !== 0) return;
    this.#entries = [cachedHeadOf(bytes, head, places), ...this.#entries.slice(0, MAX_HEADS - 1)];
  }
}

function cachedHeadOf(bytes: Buffer, head: ParsedHead, { length, date }: VariableRanges): CachedHead {
  const gaps = [
    ...(length === null ? [] : [{ ...length, gap: 'length' as const }]),
    ...(date === null ? [] : [{ ...date, gap: date.to - date.from }]),
  ].sort((a, b) => a.from - b.from);
  // Memory of its own: a part of what was read would keep all of it.
  const copyOfRange = (from: number, to: number) => new Uint8Array(bytes.subarray(from, to));
  const parts = gaps.map(({ from }, i) => copyOfRange(gaps[i - 1]?.to ?? 0, from));
  return { parts: [...parts, copyOfRange(gaps.at(-1)?.to ?? 0, head.size)], gaps: gaps.map(({ gap }) => gap), head };
}

function matchCached(bytes: Buffer, from: number, to: number, { parts, gaps, head }: CachedHead): ParsedHead | null {
  let { framing, length } = head;
  let at = from;
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i] as Uint8Array;
    if (at + part.length > to || !isSame(bytes, at, part, 0, part.length)) return null;
    at += part.length;
    const gap = gaps[i];
    if (gap === undefined) continue;
    const end = gap === 'length' ? endOfDigits(bytes, at) : endOfText(bytes, at, gap);
    if (end < 0) return null;
    if (gap === 'length') framing = length = numberIn(bytes, at, end);
    at = end;
  }
  const { status, headers, cache, reusable } = head;
  return { status, headers, length, cache, framing, reusable, size: at - from };
}

/** -1 where there is none, or too many. */
function endOfDigits(bytes: Buffer, from: number): number {
  let at = from;
  while (digitAt(bytes, at) >= 0) at++;
  return at === from || at > from + MAX_DIGITS ? -1 : at;
}

function numberIn(bytes: Buffer, from: number, to: number): number {
  let number = 0;
  for (let at = from; at < to; at++) number = number * 10 + digitAt(bytes, at);
  return number;
}

/** -1 where one of the characters is not printable ASCII. */
function endOfText(bytes: Buffer, from: number, length: number): number {
  for (let at = from; at < from + length; at++) {
    const byte = bytes[at];
    if (byte === undefined || byte < 0x20 || byte > 0x7e) return -1;
  }
  return from + length;
}
