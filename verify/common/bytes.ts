// Bytes and their texts: hex, base64, comparison. Nothing here is secret, so nothing needs constant time.
import type { Bytes } from '../../proto/bytes.ts';
import { once } from './lru.ts';

export { type Bytes, concat, isDigest } from '../../proto/bytes.ts';

/** A text is not valid in its encoding. */
export class EncodingError extends Error {
  override readonly name = 'EncodingError';
}

const HEX = Array.from({ length: 256 }, (_, i) => i.toString(16).padStart(2, '0'));

export function toHex(bytes: Uint8Array): string {
  let out = '';
  for (const byte of bytes) out += HEX[byte];
  return out;
}

/** @throws {EncodingError} */
export function fromHex(text: string): Bytes {
  if (text.length % 2 !== 0 || !/^[0-9a-fA-F]*$/.test(text)) throw new EncodingError('not hexadecimal');
  const bytes = new Uint8Array(text.length / 2);
  for (let i = 0; i < bytes.length; i++) bytes[i] = Number.parseInt(text.slice(2 * i, 2 * i + 2), 16);
  return bytes;
}

/** RFC 4648 §4, padded. @throws {EncodingError} */
export function fromBase64(text: string): Bytes {
  if (text.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) throw new EncodingError('not base64');
  return binary(atob(text));
}

/** RFC 4648 §5, without padding. @throws {EncodingError} */
export function fromBase64Url(text: string): Bytes {
  if (!/^[A-Za-z0-9_-]*$/.test(text) || text.length % 4 === 1) throw new EncodingError('not base64url');
  return binary(atob(text.replaceAll('-', '+').replaceAll('_', '/')));
}

export function toBase64(bytes: Uint8Array): string {
  let text = '';
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}

/** RFC 4648 §5, without padding. */
export const toBase64Url = (bytes: Uint8Array): string =>
  toBase64(bytes).replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');

function binary(text: string): Bytes {
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

export function equal(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

export const isZero = (bytes: Uint8Array): boolean => bytes.every((byte) => byte === 0);

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: true });

export const utf8 = (text: string): Bytes => encoder.encode(text);

/** @throws {EncodingError} */
export function fromUtf8(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch (cause) {
    throw new EncodingError('not UTF-8', { cause });
  }
}

/** The same bytes in an ArrayBuffer, or in a view of one, as WebCrypto requires: not in a SharedArrayBuffer. */
export function buffered(bytes: Uint8Array): Bytes {
  return bytes.buffer instanceof ArrayBuffer ? (bytes as Bytes) : new Uint8Array(bytes);
}

interface NodeCrypto {
  createHash(name: string): { update(bytes: Uint8Array): { digest(): Uint8Array } };
}

/** Node's own hash, where this runs in Node: of a short message it takes a thirtieth of WebCrypto's time, which asks another thread. */
const node = (
  globalThis as { process?: { getBuiltinModule?: (name: string) => NodeCrypto | undefined } }
).process?.getBuiltinModule?.('node:crypto');
const MAX_SHORT = 64 * 1024;

export async function digest(hash: 'SHA-1' | 'SHA-256' | 'SHA-384' | 'SHA-512', bytes: Uint8Array): Promise<Bytes> {
  if (node !== undefined && bytes.length <= MAX_SHORT)
    return new Uint8Array(node.createHash(hash.replace('-', '')).update(bytes).digest());
  return new Uint8Array(await crypto.subtle.digest(hash, buffered(bytes)));
}

/** SHA-256 in hex, computed once: for bytes that nobody changes, such as those of a parsed certificate. */
export const sha256Once = once(async (bytes: Uint8Array) => toHex(await digest('SHA-256', bytes)));
