// Operations on bytes in JavaScript: for a few hundred bytes, a call into Node costs more.
import { createHash } from 'node:crypto';

const ZERO = 0x30;
const LOWER_A = 0x61;
const NEAR_BYTES = 512;

/** The number of hexadecimal digits of a whole number below 2^32. */
export function hexDigitsOf(number: number): number {
  return number === 0 ? 1 : 8 - (Math.clz32(number) >> 2);
}

/** Writes a whole number below 2^32 in lower-case hexadecimal digits that end before `end`. */
export function putHex(bytes: Uint8Array, end: number, number: number): void {
  let at = end;
  let rest = number;
  do {
    const digit = rest & 15;
    bytes[--at] = digit < 10 ? ZERO + digit : LOWER_A + digit - 10;
    rest >>>= 4;
  } while (rest > 0);
}

/** Returns the same as `bytes.indexOf(byte, from)`, and calls it only where the byte is not near `from`. */
export function indexOfByte(bytes: Uint8Array, byte: number, from: number): number {
  const near = Math.min(bytes.length, from + NEAR_BYTES);
  for (let at = from; at < near; at++) if (bytes[at] === byte) return at;
  return near === bytes.length ? -1 : bytes.indexOf(byte, near);
}

// Buffers that join chunks. A large ChunkBuffer joins them in a SharedArrayBuffer, which a worker thread reads without a copy.

/** Above this size, reading, parsing and hashing happen on a worker thread, so that other requests do not wait. */
export const MANY_BYTES = 256 * 1024;

/** A large buffer is allocated once a quarter of the announced bytes has arrived: announcing a length takes no memory. */
const PREALLOCATE_DIVISOR = 4;

export class ChunkBuffer {
  readonly #expected_bytes: number;
  /** The buffer for all bytes, once it is allocated. */
  #whole: Buffer | null = null;
  #chunks: Buffer[] = [];
  #bytes = 0;

  /** `expected_bytes`: the announced length, which is never exceeded. 0: unknown, and the chunks are joined at the end. */
  constructor(expected_bytes = 0) {
    this.#expected_bytes = expected_bytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(chunk: Buffer): void {
    if (this.#whole === null) this.#chunks.push(chunk);
    else this.#whole.set(chunk, this.#bytes);
    this.#bytes += chunk.length;
    if (
      this.#whole === null &&
      this.#expected_bytes > MANY_BYTES &&
      this.#bytes * PREALLOCATE_DIVISOR > this.#expected_bytes
    )
      this.#whole = this.#concatenate(this.#expected_bytes);
  }

  whole(): Buffer {
    if (this.#whole !== null) return this.#whole.subarray(0, this.#bytes);
    if (this.#chunks.length === 1) return this.#chunks[0] as Buffer;
    if (this.#bytes <= MANY_BYTES) return Buffer.concat(this.#chunks, this.#bytes);
    return this.#concatenate(this.#bytes);
  }

  /** Joins the chunks in a new buffer of `bytes` bytes. */
  #concatenate(bytes: number): Buffer {
    const whole = shared(bytes);
    let at = 0;
    for (const chunk of this.#chunks) {
      whole.set(chunk, at);
      at += chunk.length;
    }
    this.#chunks = [];
    return whole;
  }
}

/** Joins chunks and returns all bytes so far after each of them. Its storage doubles, so that few chunks cause a copy of all others. */
export class GrowingBuffer {
  #storage: Buffer;
  #bytes: number;

  constructor(first: Buffer) {
    this.#storage = Buffer.allocUnsafeSlow(2 * first.length);
    this.#storage.set(first);
    this.#bytes = first.length;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Returns all bytes so far, as a view of the storage. */
  add(chunk: Buffer): Buffer {
    const bytes = this.#bytes + chunk.length;
    if (bytes > this.#storage.length) {
      const storage = Buffer.allocUnsafeSlow(2 * bytes);
      storage.set(this.#storage.subarray(0, this.#bytes));
      this.#storage = storage;
    }
    this.#storage.set(chunk, this.#bytes);
    this.#bytes = bytes;
    return this.#storage.subarray(0, bytes);
  }
}

const shared = (bytes: number): Buffer => Buffer.from(new SharedArrayBuffer(bytes));

/** Returns a Buffer over the same memory, because a Buffer that is sent between threads arrives as a Uint8Array. */
export function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** No bytes. It also replaces bytes that are no longer needed. */
export const EMPTY = Buffer.alloc(0);

// SHA-256 over lines, each followed by a line feed. Small lines are buffered, because a call of `update` costs more than hashing them.

const LF = 10;
const BUFFER_BYTES = 2_048;

export class LineHash {
  readonly #hash = createHash('sha256');
  readonly #buffer = Buffer.allocUnsafe(BUFFER_BYTES);
  #length = 0;

  add(line: Uint8Array): void {
    if (this.#length + line.length + 1 > BUFFER_BYTES) this.#flush();
    if (line.length + 1 > BUFFER_BYTES) this.#hash.update(line);
    else {
      this.#buffer.set(line, this.#length);
      this.#length += line.length;
    }
    this.#buffer[this.#length++] = LF;
  }

  /** Returns lowercase hex. Call it once. */
  digest(): string {
    this.#flush();
    return this.#hash.digest('hex');
  }

  #flush(): void {
    if (this.#length > 0) this.#hash.update(this.#buffer.subarray(0, this.#length));
    this.#length = 0;
  }
}
