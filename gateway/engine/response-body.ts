// Takes a backend's body out of its framing (RFC 9112 §6–7): all of one read in one piece, copied once.
import { type Framing, NO_VALUE, notHttp } from './response-head.ts';

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
  #left: number;
  #state: State = 'size';
  #line = '';
  #trailer_bytes = 0;
  #ended: boolean;

  constructor(framing: Framing) {
    this.#chunked = framing === 'chunked';
    this.#left = typeof framing === 'number' ? framing : framing === 'chunked' ? 0 : Number.POSITIVE_INFINITY;
    this.#ended = framing === 0;
  }

  /** Every byte of the body has been read. A body that ends with its connection never says so. */
  get ended(): boolean {
    return this.#ended;
  }

  /** The connection's end is the body's. */
  get endsWithConnection(): boolean {
    return this.#left === Number.POSITIVE_INFINITY;
  }

  /** The body's bytes from `from` to `to`, as a copy. @throws {BackendFault} not_http, also for bytes behind the end. */
  take(bytes: Buffer, from: number, to: number): Buffer {
    if (this.#chunked) return this.#takeChunks(bytes, from, to);
    if (to - from > this.#left) throw notHttp('more bytes than were announced');
    this.#left -= to - from;
    this.#ended = this.#left === 0;
    return copyOf(bytes, from, to);
  }

  #takeChunks(bytes: Buffer, from: number, to: number): Buffer {
    // Nearly always one piece: an array is for more.
    let pieceFrom = 0;
    let pieceTo = 0;
    let pieces: number[] | null = null;
    let at = from;
    while (at < to) {
      if (this.#ended) throw notHttp('bytes behind the last chunk');
      if (this.#state === 'data') {
        const end = Math.min(to, at + this.#left);
        if (pieceTo === 0) {
          pieceFrom = at;
          pieceTo = end;
        } else {
          pieces ??= [pieceFrom, pieceTo];
          pieces.push(at, end);
        }
        this.#left -= end - at;
        at = end;
        if (this.#left === 0) this.#state = 'data_end';
      } else at = this.#plainLine(bytes, at, to) ?? this.#takeLine(bytes, at, to);
    }
    return pieces === null ? copyOf(bytes, pieceFrom, pieceTo) : joined(bytes, pieces);
  }

  /** Where the line ends, if it is what nearly all are: a size of up to five digits or the end of a chunk, and all of it here. */
  #plainLine(bytes: Buffer, from: number, to: number): number | null {
    if (this.#line !== '' || this.#state === 'trailer') return null;
    let size = 0;
    let at = from;
    if (this.#state === 'size') {
      for (let digit = hex(bytes[at]); digit >= 0 && at < to; digit = hex(bytes[++at])) size = size * 16 + digit;
      if (size === 0 || at - from > MAX_PLAIN_DIGITS) return null;
    }
    if (at + 2 > to || bytes[at] !== CR || bytes[at + 1] !== LF) return null;
    this.#left = size;
    this.#state = this.#state === 'size' ? 'data' : 'size';
    return at + 2;
  }

  #takeLine(bytes: Buffer, from: number, to: number): number {
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
    if (NO_VALUE.test(text)) throw notHttp('a chunk line with a control character');
    if (this.#state === 'data_end') {
      if (text !== '') throw notHttp('a chunk longer than its size');
      this.#state = 'size';
    } else if (this.#state === 'size') {
      this.#left = chunkSize(text);
      this.#state = this.#left === 0 ? 'trailer' : 'data';
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
