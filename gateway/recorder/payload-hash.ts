// SHA-256 over the payloads of a stream, each followed by a line feed; small ones are gathered, since each call costs more than its bytes.
import { createHash } from 'node:crypto';

const LF = 10;
const GATHERED_BYTES = 2_048;

export class PayloadHash {
  readonly #hash = createHash('sha256');
  readonly #gathered = Buffer.allocUnsafe(GATHERED_BYTES);
  #length = 0;

  add(payload: Uint8Array): void {
    if (this.#length + payload.length + 1 > GATHERED_BYTES) this.#flush();
    if (payload.length + 1 > GATHERED_BYTES) this.#hash.update(payload);
    else {
      this.#gathered.set(payload, this.#length);
      this.#length += payload.length;
    }
    this.#gathered[this.#length++] = LF;
  }

  /** Lowercase hex, once. */
  digest(): string {
    this.#flush();
    return this.#hash.digest('hex');
  }

  #flush(): void {
    if (this.#length > 0) this.#hash.update(this.#gathered.subarray(0, this.#length));
    this.#length = 0;
  }
}
