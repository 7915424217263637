// Memory for kept texts, in slabs that are used again when every text in them is forgotten. A text in memory of its own would
// be counted by the garbage collector: thousands a second make it look through the whole heap, for nothing.

export interface Place {
  /** What it takes, with the rest of the slab before, which was too small for it. */
  readonly bytes: number;
  /** A copy: the place may be another text's soon. */
  read(): Buffer<ArrayBuffer>;
  /** Once. */
  free(): void;
}

const SLAB_BYTES = 1024 * 1024;
/** A larger text has memory of its own, so that little is left over in slabs. */
const MAX_TEXT_BYTES = SLAB_BYTES / 8;

class Slab {
  readonly memory = Buffer.allocUnsafeSlow(SLAB_BYTES);
  used = 0;
  texts = 0;
}

export class Slabs {
  #filling: Slab | null = null;
  #empty: Slab[] = [];

  put(text: Buffer<ArrayBuffer>): Place {
    const { length } = text;
    if (length > MAX_TEXT_BYTES) return { bytes: length, read: () => text, free: () => {} };
    let left_over = 0;
    let slab = this.#filling;
    if (slab === null || slab.used + length > SLAB_BYTES) {
      if (slab !== null) left_over = SLAB_BYTES - slab.used;
      slab = this.#empty.pop() ?? new Slab();
      this.#filling = slab;
    }
    return new InSlab(this, slab, text, left_over);
  }

  freed(slab: Slab): void {
    if (--slab.texts > 0) return;
    slab.used = 0;
    if (slab !== this.#filling) this.#empty.push(slab);
  }
}

class InSlab implements Place {
  readonly bytes: number;
  readonly #slabs: Slabs;
  readonly #slab: Slab;
  readonly #from: number;
  readonly #to: number;

  constructor(slabs: Slabs, slab: Slab, text: Buffer, left_over: number) {
    this.#slabs = slabs;
    this.#slab = slab;
    this.bytes = text.length + left_over;
    this.#from = slab.used;
    slab.memory.set(text, slab.used);
    slab.used += text.length;
    this.#to = slab.used;
    slab.texts++;
  }

  read(): Buffer<ArrayBuffer> {
    return Buffer.from(this.#slab.memory.subarray(this.#from, this.#to));
  }

  free(): void {
    this.#slabs.freed(this.#slab);
  }
}
