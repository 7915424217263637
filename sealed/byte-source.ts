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
    const bytes = this.#chunk.subarray(this.#at, this.#at + max);
    this.#at += bytes.length;
    return bytes;
  }

  /** Exactly `length` bytes, as a copy. @throws {SealedError} sealed_truncated; `what` is for its message. */
  async take(length: number, what: string): Promise<Bytes> {
    const bytes = new Uint8Array(length);
    for (let taken = 0; taken < length; ) {
      const some = await this.some(length - taken);
      if (some === null) throw truncated(what);
      bytes.set(some, taken);
      taken += some.length;
    }
    return bytes;
  }

  /** All remaining bytes. @throws the error from `tooMany` if there are more than `max`. */
  async rest(max: number, tooMany: () => Error): Promise<Bytes> {
    const chunks: Uint8Array[] = [];
    let length = 0;
    for (let some = await this.some(max + 1); some !== null; some = await this.some(max + 1)) {
      length += some.length;
      if (length > max) throw tooMany();
      chunks.push(some);
    }
    return joined(chunks);
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
