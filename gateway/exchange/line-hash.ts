// SHA-256 over what was recorded of a stream, payloads and names, each followed by a line feed. Small ones are buffered, because each call
// costs more than its bytes.
import { createHash } from 'node:crypto';

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
