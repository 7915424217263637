// Takes a backend's body out of its framing (RFC 9112 §6–7): all of one read in one piece, copied once.
import { type Framing, notHttp } from './response-head.ts';

const CR = 13;
const LF = 10;
/** A chunk's size and its extensions, or one trailer. */
const MAX_LINE_BYTES = 4 * 1024;
const MAX_TRAILER_BYTES = 16 * 1024;
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

  /** The body's bytes in `bytes`, as a copy. @throws {BackendFault} not_http, also for bytes behind the end. */
  take(bytes: Buffer): Buffer {
    if (this.#chunked) return this.#takeChunks(bytes);
    if (bytes.length > this.#left) throw notHttp('more bytes than were announced');
    this.#left -= bytes.length;
    this.#ended = this.#left === 0;
    return Buffer.from(bytes);
  }

  #takeChunks(bytes: Buffer): Buffer {
    const out = Buffer.allocUnsafe(bytes.length);
    let written = 0;
    let at = 0;
    while (at < bytes.length) {
      if (this.#ended) throw notHttp('bytes behind the last chunk');
      if (this.#state === 'data') {
        const end = Math.min(bytes.length, at + this.#left);
        written += bytes.copy(out, written, at, end);
        this.#left -= end - at;
        at = end;
        if (this.#left === 0) this.#state = 'data_end';
        continue;
      }
      const lf = bytes.indexOf(LF, at);
      const end = lf < 0 ? bytes.length : lf + 1;
      if (this.#line.length + end - at > MAX_LINE_BYTES) throw notHttp('a chunk line larger than the limit');
      this.#line += bytes.toString('latin1', at, end);
      at = end;
      if (lf >= 0) this.#endLine();
    }
    return written === 0 ? EMPTY : out.subarray(0, written);
  }

  #endLine(): void {
    const line = this.#line;
    this.#line = '';
    if (line.charCodeAt(line.length - 2) !== CR) throw notHttp('a chunk line without CR LF');
    const text = line.slice(0, -2);
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
