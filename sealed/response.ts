// Sealed responses: chunks under a key that both sides derive from the request's encapsulation (draft-ietf-ohai-chunked-ohttp §6.2). Both
// AEADs of ours are AES-GCM.
import { ByteSource, type Bytes, joined } from './byte-source.ts';
import { chunkHead, FINAL, MAX_CHUNK_BYTES, NO_BYTES, openChunks, TAG_BYTES } from './chunks.ts';
import { tooLarge } from './errors.ts';

export const RESPONSE_MEDIA_TYPE = 'message/ohttp-chunked-res';

/** The secret that HPKE exports for the response. */
export interface ResponseSecret {
  readonly secret: Uint8Array;
  /** The request's encapsulated key. */
  readonly enc: Uint8Array;
  readonly key_bytes: number;
  readonly nonce_bytes: number;
}

interface ResponseKeys {
  /** The first bytes of the response. */
  readonly response_nonce: Bytes;
  /** The key of the AEAD. */
  readonly key: Bytes;
  /** The nonce of the first chunk; the others' differ by a counter. */
  readonly nonce: Bytes;
}

/** Bytes of the nonce that a response begins with. */
export const nonceBytes = ({ key_bytes, nonce_bytes }: ResponseSecret) => Math.max(key_bytes, nonce_bytes);

/** `response_nonce`: {@link nonceBytes} random bytes. */
export async function responseKeys(secret: ResponseSecret, response_nonce: Uint8Array): Promise<ResponseKeys> {
  const { subtle } = globalThis.crypto;
  const salt = joined([secret.enc, response_nonce]);
  const material = await subtle.importKey('raw', new Uint8Array(secret.secret), 'HKDF', false, ['deriveBits']);
  const derive = async (label: string, bytes: number) => {
    const info = new TextEncoder().encode(label);
    return new Uint8Array(await subtle.deriveBits({ name: 'HKDF', hash: 'SHA-256', salt, info }, material, 8 * bytes));
  };
  const [key, nonce] = await Promise.all([derive('key', secret.key_bytes), derive('nonce', secret.nonce_bytes)]);
  return { response_nonce: new Uint8Array(response_nonce), key, nonce };
}

/** AES-GCM with the key of a response: returns the ciphertext and the tag. */
export type Encrypt = (
  nonce: Bytes,
  aad: Bytes,
  plaintext: Uint8Array,
) => readonly [ciphertext: Uint8Array, tag: Uint8Array];

/** Seals a response synchronously, with a cipher from the caller: WebCrypto's takes 50 µs a chunk. */
export class ResponseSealer {
  readonly #keys: ResponseKeys;
  readonly #encrypt: Encrypt;
  #counter = 0;

  constructor(keys: ResponseKeys, encrypt: Encrypt) {
    this.#keys = keys;
    this.#encrypt = encrypt;
  }

  /**
   * Seals the next chunk of at most {@link MAX_CHUNK_BYTES}; only the last may be empty. Returns its parts in order, which for the first
   * chunk begin with the response's nonce.
   */
  seal(plaintext: Uint8Array, isFinal: boolean): Uint8Array[] {
    if (plaintext.length > MAX_CHUNK_BYTES || (plaintext.length === 0 && !isFinal))
      throw new RangeError('a chunk has a length that it must not have');
    const nonce = chunkNonce(this.#keys.nonce, this.#counter);
    const [ciphertext, tag] = this.#encrypt(nonce, isFinal ? FINAL : NO_BYTES, plaintext);
    const chunk = [chunkHead(plaintext.length + TAG_BYTES, isFinal), ciphertext, tag];
    return this.#counter++ === 0 ? [this.#keys.response_nonce, ...chunk] : chunk;
  }
}

/**
 * Opens a response as it arrives. The response is complete only when this has ended.
 * @throws {SealedError} sealed_malformed, sealed_truncated, sealed_not_opened, sealed_too_large
 */
export async function* openResponse(
  secret: ResponseSecret,
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array, void, undefined> {
  const { subtle } = globalThis.crypto;
  const bytes = new ByteSource(chunks);
  const response_nonce = await bytes.take(nonceBytes(secret), 'the nonce of the sealed response');
  const { key, nonce } = await responseKeys(secret, response_nonce);
  const aesKey = await subtle.importKey('raw', key, 'AES-GCM', false, ['decrypt']);
  let counter = 0;
  yield* openChunks(bytes, async (sealed, additionalData) => {
    const iv = chunkNonce(nonce, counter++);
    return new Uint8Array(await subtle.decrypt({ name: 'AES-GCM', iv, additionalData }, aesKey, sealed));
  });
}

/** Far below the number at which a nonce would repeat; 64 TiB in chunks of 16 KiB. */
const MAX_CHUNKS = 2 ** 32;

function chunkNonce(base: Bytes, counter: number): Bytes {
  if (counter >= MAX_CHUNKS) throw tooLarge('The response has too many chunks.');
  const nonce = base.slice();
  for (let at = nonce.length - 1, rest = counter; rest > 0; at--, rest = Math.floor(rest / 256))
    nonce[at] = (nonce[at] as number) ^ (rest % 256);
  return nonce;
}
