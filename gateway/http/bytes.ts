// Bytes that are compared, read and written here and not by Node: for a few hundred a call into it costs more.

/** Whether the bytes of `one` from `at` on are those of `other` from `from` to `to`; false where `one` has fewer. */
export function isSame(one: Uint8Array, at: number, other: Uint8Array, from: number, to: number): boolean {
  if (at + to - from > one.length) return false;
  for (let i = from; i < to; i++) if (one[at + i - from] !== other[i]) return false;
  return true;
}

const ZERO = 0x30;
const LOWER_A = 0x61;
const NEAR_BYTES = 512;

/** The value of the decimal digit at `at`; below zero where there is none. */
export function digitAt(bytes: Uint8Array, at: number): number {
  const digit = (bytes[at] ?? 0) - ZERO;
  return digit <= 9 ? digit : -1;
}

/** How many digits a whole number has that is not below zero. */
export function digitsOf(number: number): number {
  let digits = 1;
  for (let rest = number; rest >= 10; rest /= 10) digits++;
  return digits;
}

/** Writes a whole number that is not below zero in decimal digits, the last of them before `end`. */
export function putNumber(bytes: Uint8Array, end: number, number: number): void {
  let at = end;
  let rest = number;
  do {
    bytes[--at] = ZERO + (rest % 10);
    rest = Math.floor(rest / 10);
  } while (rest > 0);
}

/** How many hexadecimal digits a whole number below 2^32 has. */
export function hexDigitsOf(number: number): number {
  return number === 0 ? 1 : 8 - (Math.clz32(number) >> 2);
}

/** Writes a whole number below 2^32 in lower-case hexadecimal digits, the last of them before `end`. */
export function putHex(bytes: Uint8Array, end: number, number: number): void {
  let at = end;
  let rest = number;
  do {
    const digit = rest & 15;
    bytes[--at] = digit < 10 ? ZERO + digit : LOWER_A + digit - 10;
    rest >>>= 4;
  } while (rest > 0);
}

/** As `bytes.indexOf(byte, from)`, which is called where the byte is not near. */
export function indexOfByte(bytes: Uint8Array, byte: number, from: number): number {
  const near = Math.min(bytes.length, from + NEAR_BYTES);
  for (let at = from; at < near; at++) if (bytes[at] === byte) return at;
  return near === bytes.length ? -1 : bytes.indexOf(byte, near);
}

// Bytes that come in pieces and are wanted whole. Many of them lie in memory that threads share: another one is not given a copy.

/** More bytes than this are read, parsed and hashed on a thread: here others would wait for it. */
export const MANY_BYTES = 256 * 1024;

/** A place for all that was announced is made when one part in so many of it is here: who announces and sends nothing gets none. */
const PREALLOCATE_DIVISOR = 4;

export class ChunkBuffer {
  readonly #expected_bytes: number;
  /** Where all of it will lie, once it is known to be much and some of it has come. */
  #whole: Buffer | null = null;
  #chunks: Buffer[] = [];
  #bytes = 0;

  /** `coming_bytes`: how many there will be, not one more. Where nobody says, they lie together at the end only. */
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

  /** The pieces, one after the other in a place of their own for so many bytes. */
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

/** The same, looked at whole with each piece that comes: they lie in room that doubles, so that not every piece copies all others. */
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

  /** All of them: a view of the room. */
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

/** The same bytes: what was a Buffer in one thread is a Uint8Array in the next. */
export function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}
