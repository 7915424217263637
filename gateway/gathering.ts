// Bytes that come in pieces and are wanted whole. Many of them lie in memory that threads share: another one is not given a copy.

/** More bytes than this are read, parsed and hashed on a thread: here others would wait for it. */
export const MANY_BYTES = 256 * 1024;

/** A place for all that was announced is made when one part in so many of it is here: who announces and sends nothing gets none. */
const PART = 4;

export class Gathering {
  readonly #coming_bytes: number;
  /** Where all of it will lie, once it is known to be much and some of it has come. */
  #whole: Buffer | null = null;
  #pieces: Buffer[] = [];
  #bytes = 0;

  /** `coming_bytes`: how many there will be, not one more. Where nobody says, they lie together at the end only. */
  constructor(coming_bytes = 0) {
    this.#coming_bytes = coming_bytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(piece: Buffer): void {
    if (this.#whole === null) this.#pieces.push(piece);
    else this.#whole.set(piece, this.#bytes);
    this.#bytes += piece.length;
    if (this.#whole === null && this.#coming_bytes > MANY_BYTES && this.#bytes * PART > this.#coming_bytes)
      this.#whole = this.#together(this.#coming_bytes);
  }

  whole(): Buffer {
    if (this.#whole !== null) return this.#whole.subarray(0, this.#bytes);
    if (this.#pieces.length === 1) return this.#pieces[0] as Buffer;
    if (this.#bytes <= MANY_BYTES) return Buffer.concat(this.#pieces, this.#bytes);
    return this.#together(this.#bytes);
  }

  /** The pieces, one after the other in a place of their own for so many bytes. */
  #together(bytes: number): Buffer {
    const whole = shared(bytes);
    let at = 0;
    for (const piece of this.#pieces) {
      whole.set(piece, at);
      at += piece.length;
    }
    this.#pieces = [];
    return whole;
  }
}

/** The same, looked at whole with each piece that comes: they lie in room that doubles, so that not every piece copies all others. */
export class Growing {
  #room: Buffer;
  #bytes: number;

  constructor(first: Buffer) {
    this.#room = Buffer.allocUnsafeSlow(2 * first.length);
    this.#room.set(first);
    this.#bytes = first.length;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** All of them: a view of the room. */
  add(piece: Buffer): Buffer {
    const bytes = this.#bytes + piece.length;
    if (bytes > this.#room.length) {
      const room = Buffer.allocUnsafeSlow(2 * bytes);
      room.set(this.#room.subarray(0, this.#bytes));
      this.#room = room;
    }
    this.#room.set(piece, this.#bytes);
    this.#bytes = bytes;
    return this.#room.subarray(0, bytes);
  }
}

const shared = (bytes: number): Buffer => Buffer.from(new SharedArrayBuffer(bytes));

/** The same bytes: what was a Buffer in one thread is a Uint8Array in the next. */
export function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}
