// Reads fields of known length from the front of a byte array.

export class ByteReader {
  readonly #bytes: Uint8Array;
  readonly #broken: (message: string) => Error;
  #at = 0;

  /** @param broken makes the error for bytes that are too short or too long. */
  constructor(bytes: Uint8Array, broken: (message: string) => Error) {
    this.#bytes = bytes;
    this.#broken = broken;
  }

  take(length: number): Uint8Array {
    if (length > this.left) throw this.#broken('it breaks off');
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  /** Reads a little-endian number. */
  number(length: 1 | 2 | 4): number {
    return this.take(length).reduceRight((sum, byte) => sum * 256 + byte, 0);
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  /** All bytes read so far. */
  get taken(): Uint8Array {
    return this.#bytes.subarray(0, this.#at);
  }

  end(): void {
    if (this.left > 0) throw this.#broken('bytes follow its end');
  }
}
