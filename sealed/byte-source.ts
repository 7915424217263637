// Bytes that arrive in chunks, read by length; and the integers that the formats write before a length (RFC 9000 §16).
import { malformed, truncated } from './errors.ts';

export type Bytes = Uint8Array<ArrayBuffer>;

const EMPTY: Uint8Array = new Uint8Array();

/**
 * Reads from chunks of any size. It pulls a chunk only when it needs one, which gives backpressure. It never ends the source early: its
 * owner does.
 */
export class ByteSource {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #chunk = EMPTY;
  #at = 0;

  constructor(chunks: AsyncIterable<Uint8Array>) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  /** Whether the source has ended. Waits for a byte, or for the end. */
  async isAtEnd(): Promise<boolean> {
    while (this.#at === this.#chunk.length) {
      const next = await this.#chunks.next();
      if (next.done === true) return true;
      this.#chunk = next.value;
      this.#at = 0;
    }
    return false;
  }

  /** The next available bytes, `max` at most, as a view; null at the end. */
  async some(max: number): Promise<Uint8Array | null> {
    if (this.#at === this.#chunk.length && (await this.isAtEnd())) return null;
    return this.#available(max);
  }

  #available(max: number): Uint8Array {
    const bytes = this.#chunk.subarray(this.#at, this.#at + max);
    this.#at += bytes.length;
    // The chunk may be part of a larger buffer, which is not kept while the next chunk is waited for.
    if (this.#at === this.#chunk.length) [this.#chunk, this.#at] = [EMPTY, 0];
    return bytes;
  }

  /** Copies available bytes to `at` and returns the offset after them. They are not kept while the next ones are waited for. */
  #copyTo(bytes: Uint8Array, at: number): number {
    const some = this.#available(bytes.length - at);
    bytes.set(some, at);
    return at + some.length;
  }

  /** Exactly `length` bytes, as a copy. @throws {SealedError} sealed_truncated; `what` is for its message. */
  async take(length: number, what: string): Promise<Bytes> {
    const bytes = new Uint8Array(length);
    for (let at = 0; at < length; at = this.#copyTo(bytes, at)) if (await this.isAtEnd()) throw truncated(what);
    return bytes;
  }

  /** All remaining bytes, as a copy. @throws the error from `tooMany` if there are more than `max`. */
  async rest(max: number, tooMany: () => Error): Promise<Bytes> {
    const bytes = new Uint8Array(max);
    let at = 0;
    for (; !(await this.isAtEnd()); at = this.#copyTo(bytes, at)) if (at === max) throw tooMany();
    return bytes.subarray(0, at);
  }

  /** @throws {SealedError} sealed_truncated; sealed_malformed above 2^53. */
  async varint(what: string): Promise<number> {
    const first = (await this.take(1, what))[0] as number;
    const more = (1 << (first >> 6)) - 1;
    let value = first & 0x3f;
    for (const byte of more === 0 ? EMPTY : await this.take(more, what)) value = value * 256 + byte;
    if (!Number.isSafeInteger(value)) throw malformed(`A length in ${what} is larger than 2^53.`);
    return value;
  }
}

/** Encodes an integer in the shortest form. */
export function varint(value: number): Bytes {
  const length = value < 2 ** 6 ? 1 : value < 2 ** 14 ? 2 : value < 2 ** 30 ? 4 : 8;
  const bytes = new Uint8Array(length);
  let rest = value;
  for (let i = length - 1; i >= 0; i--) {
    bytes[i] = rest % 256;
    rest = Math.floor(rest / 256);
  }
  bytes[0] = (bytes[0] as number) | (Math.log2(length) << 6);
  return bytes;
}

export function joined(parts: readonly Uint8Array[]): Bytes {
  const bytes = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

/** The chunks of a body of Fetch. Not in every browser can a ReadableStream be iterated over. */
export async function* chunksOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = stream.getReader();
  let ended = false;
  try {
    for (let next = await reader.read(); !next.done; next = await reader.read()) yield next.value;
    ended = true;
  } finally {
    if (!ended) await reader.cancel().catch(() => undefined);
  }
}
