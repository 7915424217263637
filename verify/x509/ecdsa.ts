// ECDSA signatures over WebCrypto, with each public key imported once.
import { buffered, concat, toHex } from '../bytes.ts';
import { LruMap } from '../lru.ts';
import { DerError, integer, readOne, sequence } from './der.ts';

const MAX_KEYS = 256;

/** CryptoKey, by a name that both the DOM's types and Node's have. */
type ImportedKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

const keys = new LruMap<string, Promise<ImportedKey>>(MAX_KEYS);

export interface EcPublicKey {
  readonly spki: Uint8Array;
  readonly curve: 'P-256' | 'P-384' | null;
}

function importKey(spki: Uint8Array, curve: 'P-256' | 'P-384'): Promise<ImportedKey> {
  const id = toHex(spki);
  const known = keys.get(id);
  if (known !== undefined) return known;
  const key = crypto.subtle.importKey('spki', buffered(spki), { name: 'ECDSA', namedCurve: curve }, false, ['verify']);
  keys.set(id, key);
  key.catch(() => keys.delete(id));
  return key;
}

/** Is `signature` (raw r ‖ s, as SPDM and JWS write it) the key's over `data`? A key that is none verifies nothing. */
export async function ecdsaVerifyRaw(
  key: EcPublicKey,
  hash: 'SHA-256' | 'SHA-384',
  signature: Uint8Array,
  data: Uint8Array,
): Promise<boolean> {
  if (key.curve === null) return false;
  try {
    const imported = await importKey(key.spki, key.curve);
    return await crypto.subtle.verify({ name: 'ECDSA', hash }, imported, buffered(signature), buffered(data));
  } catch {
    return false;
  }
}

/** The same for DER of ECDSA-Sig-Value (RFC 3279 §2.2.3), as X.509 and OCSP write it. */
export async function ecdsaVerify(
  key: EcPublicKey,
  hash: 'SHA-256' | 'SHA-384',
  signature: Uint8Array,
  data: Uint8Array,
): Promise<boolean> {
  if (key.curve === null) return false;
  const raw = rawSignature(signature, key.curve === 'P-384' ? 48 : 32);
  return raw !== null && ecdsaVerifyRaw(key, hash, raw, data);
}

function rawSignature(der: Uint8Array, size: number): Uint8Array | null {
  try {
    const [r, s, ...more] = sequence(readOne(der));
    if (r === undefined || s === undefined || more.length > 0) return null;
    const fixed = [r, s].map((value) => {
      const { content } = value;
      const digits = content[0] === 0 ? content.subarray(1) : content;
      if (integer(value) <= 0n || digits.length > size) throw new DerError('not a positive integer of the curve');
      return concat(new Uint8Array(size - digits.length), digits);
    });
    return concat(...fixed);
  } catch {
    return null;
  }
}
