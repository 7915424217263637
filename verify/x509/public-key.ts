// Verifies ECDSA and RSASSA-PSS signatures with WebCrypto, and imports each public key once.
import { buffered, concat, toHex } from '../common/bytes.ts';
import { LruMap } from '../common/lru.ts';
import { DerError, integer, readOne, sequence } from './der.ts';

const MAX_KEYS = 256;
/** The SubjectPublicKeyInfo of an RSA key with 4,096 bits has 550 bytes. */
const MAX_RSA_SPKI_BYTES = 600;

/** CryptoKey, by a name that both the DOM's types and Node's have. */
type ImportedKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

const keys = new LruMap<string, Promise<ImportedKey>>(MAX_KEYS);

export type Hash = 'SHA-256' | 'SHA-384' | 'SHA-512';

/** `curve` null: an RSA key. */
export interface PublicKey {
  readonly spki: Uint8Array;
  readonly curve: 'P-256' | 'P-384' | null;
}

/** @param curve null: RSA, for RSASSA-PSS over SHA-384. */
function importKey(spki: Uint8Array, curve: 'P-256' | 'P-384' | null): Promise<ImportedKey> {
  const id = toHex(spki);
  const known = keys.get(id);
  if (known !== undefined) return known;
  const algorithm =
    curve === null ? { name: 'RSA-PSS', hash: 'SHA-384' } : ({ name: 'ECDSA', namedCurve: curve } as const);
  const key = crypto.subtle.importKey('spki', buffered(spki), algorithm, false, ['verify']);
  keys.set(id, key);
  key.catch(() => keys.delete(id));
  return key;
}

/** Whether `signature` over `data` (raw r ‖ s, as SPDM and JWS write it) verifies under the key. False for an invalid key too. */
export async function ecdsaVerifyRaw(
  key: PublicKey,
  hash: Hash,
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
  key: PublicKey,
  hash: Hash,
  signature: Uint8Array,
  data: Uint8Array,
): Promise<boolean> {
  if (key.curve === null) return false;
  const raw = rawSignature(signature, key.curve === 'P-384' ? 48 : 32);
  return raw !== null && ecdsaVerifyRaw(key, hash, raw, data);
}

/** Whether `signature` over `data` verifies under the RSA key: RSASSA-PSS, SHA-384 throughout, 48 bytes of salt. */
export async function pssVerify({ spki, curve }: PublicKey, signature: Uint8Array, data: Uint8Array): Promise<boolean> {
  if (curve !== null || spki.length > MAX_RSA_SPKI_BYTES) return false;
  try {
    const key = await importKey(spki, null);
    const algorithm = { name: 'RSA-PSS', saltLength: 48 };
    return await crypto.subtle.verify(algorithm, key, buffered(signature), buffered(data));
  } catch {
    return false;
  }
}

function rawSignature(der: Uint8Array, size: number): Uint8Array | null {
  try {
    const [r, s, ...more] = sequence(readOne(der));
    if (r === undefined || s === undefined || more.length > 0) return null;
    const fixed = [r, s].map((value) => {
      const { content } = value;
      const digits = content[0] === 0 ? content.subarray(1) : content;
      if (integer(value) <= 0n || digits.length > size) throw new DerError('not a positive integer of the curve');
      return concat([new Uint8Array(size - digits.length), digits]);
    });
    return concat(fixed);
  } catch {
    return null;
  }
}
