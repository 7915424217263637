// The response to a sealed request. Routes write it like any other; the writes of one turn of the event loop become one chunk. A response
// that is cut has no last chunk, so that its client does not take it for a complete one.
import { createCipheriv, createSecretKey } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import {
  contentHead,
  type Encrypt,
  type Field,
  MAX_CHUNK_BYTES,
  RESPONSE_MEDIA_TYPE,
  type ResponseSealer,
  writeEnd,
  writeResponseHead,
} from '../../sealed/index.ts';
import { HOP_BY_HOP } from '../backend/headers.ts';
import type { Outgoing, OutgoingEvent } from '../http/body.ts';

/** These have no meaning inside a sealed message. */
const WITHHELD = new Set(HOP_BY_HOP);
/** `incremental` asks intermediaries to forward chunks as they arrive (draft-ietf-httpbis-incremental). */
const OUTER_HEADERS = { 'content-type': RESPONSE_MEDIA_TYPE, incremental: '?1' };

/** AES-GCM of node:crypto: synchronous, in a tenth of WebCrypto's time. `key` has 16 or 32 bytes. */
export const encryptWith = (key: Uint8Array): Encrypt => {
  const algorithm = key.length === 16 ? 'aes-128-gcm' : 'aes-256-gcm';
  // A key in bytes would be imported again for each chunk, which takes four times as long as all the rest.
  const secret = createSecretKey(key);
  return (nonce, aad, plaintext) => {
    const cipher = createCipheriv(algorithm, secret, nonce);
    if (aad.length > 0) cipher.setAAD(aad);
    const ciphertext = cipher.update(plaintext);
    // With GCM this returns no bytes. It computes the tag.
    cipher.final();
    return [ciphertext, cipher.getAuthTag()];
  };
};

export class SealedResponse implements Outgoing {
  readonly #outer: Outgoing;
  readonly #sealer: ResponseSealer;
  readonly #set: Record<string, string> = {};
  /** The parts of the message that are not sealed yet. */
  #waiting: Uint8Array[] = [];
  #waiting_bytes = 0;
  #scheduled = false;
  #needsDrain = false;
  #ended = false;
  statusCode = 200;
  headersSent = false;

  /** `outer`: the response that carries this one. */
  constructor(outer: Outgoing, sealer: ResponseSealer) {
    this.#outer = outer;
    this.#sealer = sealer;
    outer.on('drain', () => {
      this.#needsDrain = false;
    });
  }

  get destroyed(): boolean {
    return this.#outer.destroyed;
  }
  get socket(): Socket | null {
    return this.#outer.socket;
  }
  get writableLength(): number {
    return this.#waiting_bytes + this.#outer.writableLength;
  }

  setHeader(name: string, value: string): this {
    this.#set[name.toLowerCase()] = value;
    return this;
  }

  writeHead(status: number, headers: OutgoingHttpHeaders = {}): this {
    if (this.headersSent) throw new Error('the head was written before');
    const all: OutgoingHttpHeaders = { ...this.#set, date: new Date().toUTCString() };
    for (const name in headers) all[name.toLowerCase()] = headers[name];
    const bytes = writeResponseHead({ status, fields: fieldsOf(all) });
    this.headersSent = true;
    this.statusCode = status;
    this.#add(bytes);
    return this;
  }

  flushHeaders(): void {
    this.#schedule();
  }

  write(bytes: Uint8Array): boolean {
    if (this.destroyed || this.#ended) return false;
    this.#addContent(bytes);
    if (this.#waiting_bytes >= MAX_CHUNK_BYTES) this.#seal(false);
    return !this.#needsDrain;
  }

  end(body?: Uint8Array | string): this {
    if (this.destroyed || this.#ended) return this;
    if (!this.headersSent) this.writeHead(this.statusCode);
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    if (bytes !== undefined) this.#addContent(bytes);
    this.#add(writeEnd());
    this.#ended = true;
    this.#seal(true);
    return this;
  }

  destroy(): this {
    this.#waiting = [];
    this.#outer.destroy();
    return this;
  }

  setTimeout(ms: number, listener: () => void): this {
    this.#outer.setTimeout(ms, listener);
    return this;
  }
  on(event: OutgoingEvent, listener: () => void): this {
    this.#outer.on(event, listener);
    return this;
  }
  once(event: OutgoingEvent, listener: () => void): this {
    this.#outer.once(event, listener);
    return this;
  }
  off(event: OutgoingEvent, listener: () => void): this {
    this.#outer.off(event, listener);
    return this;
  }

  #addContent(bytes: Uint8Array): void {
    if (bytes.length === 0) return;
    this.#add(contentHead(bytes.length));
    this.#add(bytes);
  }

  #add(bytes: Uint8Array): void {
    this.#waiting.push(bytes);
    this.#waiting_bytes += bytes.length;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      if (!this.destroyed && !this.#ended && this.#waiting_bytes > 0) this.#seal(false);
    });
  }

  /** Seals and sends the waiting bytes. `isLast`: the message ends with them. */
  #seal(isLast: boolean): void {
    const bytes = this.#waiting.length === 1 ? (this.#waiting[0] as Uint8Array) : Buffer.concat(this.#waiting);
    this.#waiting = [];
    this.#waiting_bytes = 0;
    if (!this.#outer.headersSent) this.#outer.writeHead(200, OUTER_HEADERS);
    for (let at = 0; at < bytes.length; at += MAX_CHUNK_BYTES) {
      const isFinal = isLast && at + MAX_CHUNK_BYTES >= bytes.length;
      const sealed = Buffer.concat(this.#sealer.seal(bytes.subarray(at, at + MAX_CHUNK_BYTES), isFinal));
      if (isFinal) this.#outer.end(sealed);
      else this.#needsDrain = !this.#outer.write(sealed);
    }
  }
}

function fieldsOf(headers: OutgoingHttpHeaders): Field[] {
  return Object.entries(headers).flatMap(([name, value]) => {
    if (value === undefined || WITHHELD.has(name)) return [];
    return [value].flat().map((one): Field => [name, String(one).trim()]);
  });
}
