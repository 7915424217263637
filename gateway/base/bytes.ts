// Buffers that join chunks, and a hash of lines. A large ChunkBuffer joins its chunks in a SharedArrayBuffer, which a worker thread reads
// without a copy.
import { createHash } from 'node:crypto';

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

const shared = (bytes: number): Buffer => Buffer.from(new SharedArrayBuffer(bytes));

/** Returns a Buffer over the same memory, because a Buffer that is sent between threads arrives as a Uint8Array. */
export function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

/** No bytes. It also replaces bytes that are no longer needed. */
export const EMPTY = Buffer.alloc(0);

const LF = Buffer.from('\n');

/** SHA-256 over lines, each followed by a line feed. */
export class LineHash {
  readonly #hash = createHash('sha256');

  add(line: Uint8Array): void {
    this.#hash.update(line).update(LF);
  }

  /** Returns lowercase hex. Call it once. */
  digest(): string {
    return this.#hash.digest('hex');
  }
}
