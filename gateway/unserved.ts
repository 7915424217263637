// What clients have sent and nobody serves yet: parts of requests, and requests behind others. It is bounded for all connections of
// a process together, for none of them has shown a key. Where it is too much, the connection that has most of it ends.

import { MAX_UNSERVED_BYTES } from './limits/bounds.ts';

/** Of memory, not of what was sent. */
let total_bytes = 0;
/** Those that have something. */
const connections = new Set<Unserved>();

/** What one connection has of it. */
export class Unserved {
  #bytes = 0;
  readonly #end: () => void;

  /** `end` ends the connection, and sets this to 0. */
  constructor(end: () => void) {
    this.#end = end;
  }

  set(bytes: number): void {
    if (bytes === this.#bytes) return;
    const more = bytes > this.#bytes;
    total_bytes += bytes - this.#bytes;
    this.#bytes = bytes;
    if (bytes > 0) connections.add(this);
    else connections.delete(this);
    if (more && total_bytes > MAX_UNSERVED_BYTES) Unserved.#largest().#end();
  }

  static #largest(): Unserved {
    return [...connections].reduce((most, one) => (one.#bytes > most.#bytes ? one : most));
  }
}
