// The keys of sealed requests: their algorithms, key configurations (RFC 9458 §3), and the private keys that open requests.

import {
  AEAD_AES_128_GCM,
  AEAD_AES_256_GCM,
  type AEADFactory,
  CipherSuite,
  KDF_HKDF_SHA256,
  KEM_DHKEM_X25519_HKDF_SHA256,
  KEM_MLKEM768_X25519,
  type KEMFactory,
  type Key,
  type KeyPair,
  NotSupportedError,
} from 'hpke';
import { type Bytes, joined } from './byte-source.ts';
import { malformed, SealedError } from './errors.ts';

// The algorithms of sealed requests (RFC 9180, draft-ietf-hpke-pq): the hybrid of ML-KEM-768 and X25519 where the runtime has it, and
// X25519, which every runtime has.

/** Identifiers in IANA's HPKE registry. */
export interface Algorithms {
  readonly kem_id: number;
  readonly kdf_id: number;
  readonly aead_id: number;
}

const KEM = { x25519: 0x0020, mlkem768_x25519: 0x647a } as const;
const KDF = { hkdf_sha256: 0x0001 } as const;
const AEAD = { aes_128_gcm: 0x0001, aes_256_gcm: 0x0002 } as const;

/** The suites that a gateway offers, in order of preference. */
const SUITES: readonly Algorithms[] = [
  { kem_id: KEM.mlkem768_x25519, kdf_id: KDF.hkdf_sha256, aead_id: AEAD.aes_256_gcm },
  { kem_id: KEM.x25519, kdf_id: KDF.hkdf_sha256, aead_id: AEAD.aes_128_gcm },
];

const KEMS = new Map<number, KEMFactory>([
  [KEM.mlkem768_x25519, KEM_MLKEM768_X25519 as KEMFactory],
  [KEM.x25519, KEM_DHKEM_X25519_HKDF_SHA256 as KEMFactory],
]);
const AEADS = new Map<number, AEADFactory>([
  [AEAD.aes_128_gcm, AEAD_AES_128_GCM],
  [AEAD.aes_256_gcm, AEAD_AES_256_GCM],
]);

type Suite = CipherSuite<Key>;

/** null: the algorithms are not ours. A suite that is returned may still be one that the runtime lacks. */
function suiteOf({ kem_id, kdf_id, aead_id }: Algorithms): Suite | null {
  const kem = KEMS.get(kem_id);
  const aead = AEADS.get(aead_id);
  return kem === undefined || aead === undefined || kdf_id !== KDF.hkdf_sha256
    ? null
    : new CipherSuite(kem, KDF_HKDF_SHA256, aead);
}

/** Bytes of a public key and of an encapsulated key; null for another KEM. */
export function lengthsOf(kem_id: number): { readonly public_key: number; readonly encapsulated: number } | null {
  const kem = KEMS.get(kem_id)?.();
  return kem === undefined ? null : { public_key: kem.Npk, encapsulated: kem.Nenc };
}

/** Whether an error says that the runtime lacks an algorithm. */
const isUnsupported = (error: unknown): boolean => error instanceof NotSupportedError;

// Key configurations.

export const KEYS_MEDIA_TYPE = 'application/ohttp-keys';
/** A larger document is not one of ours, whose two configurations have 1,300 bytes. */
const MAX_KEYS_BYTES = 3_072;

interface KeyConfiguration {
  /** 0 to 255. */
  readonly key_id: number;
  readonly kem_id: number;
  readonly public_key: Uint8Array;
  /** At least one. */
  readonly algorithms: readonly Omit<Algorithms, 'kem_id'>[];
}

/** A document of type {@link KEYS_MEDIA_TYPE}: each configuration after its length (§3.2). */
export function writeKeys(configurations: readonly KeyConfiguration[]): Bytes {
  return joined(
    configurations.flatMap(({ key_id, kem_id, public_key, algorithms }) => {
      const pairs = algorithms.flatMap(({ kdf_id, aead_id }) => [u16(kdf_id), u16(aead_id)]);
      const bytes = joined([Uint8Array.of(key_id), u16(kem_id), public_key, u16(4 * algorithms.length), ...pairs]);
      return [u16(bytes.length), bytes];
    }),
  );
}

/** The configurations of a document, without those of KEMs that are not ours. @throws {SealedError} sealed_malformed */
export function readKeys(document: Uint8Array): KeyConfiguration[] {
  if (document.length > MAX_KEYS_BYTES) throw malformed('The document of keys is too large.');
  const configurations: KeyConfiguration[] = [];
  for (let at = 0; at < document.length; ) {
    const length = u16At(document, at);
    const end = at + 2 + length;
    if (end > document.length) throw malformed('The document of keys breaks off.');
    const configuration = readKey(document.subarray(at + 2, end));
    if (configuration !== null) configurations.push(configuration);
    at = end;
  }
  return configurations;
}

/** One configuration, without its length (§3.1). null: its KEM is not one of ours. @throws {SealedError} sealed_malformed */
function readKey(bytes: Uint8Array): KeyConfiguration | null {
  const kem_id = u16At(bytes, 1);
  const length = lengthsOf(kem_id)?.public_key;
  if (length === undefined) return null;
  const at = 3 + length;
  const pairs_bytes = u16At(bytes, at);
  if (pairs_bytes === 0 || pairs_bytes % 4 !== 0 || bytes.length !== at + 2 + pairs_bytes)
    throw malformed('A key configuration has not the length that it must have.');
  const algorithms = [];
  for (let pair = at + 2; pair < bytes.length; pair += 4)
    algorithms.push({ kdf_id: u16At(bytes, pair), aead_id: u16At(bytes, pair + 2) });
  return { key_id: bytes[0] as number, kem_id, public_key: bytes.slice(3, at), algorithms };
}

/** A public key, ready to seal to. */
export interface SealingKey extends Algorithms {
  readonly key_id: number;
  readonly suite: Suite;
  readonly publicKey: Key;
}

/** The first key of a document that this runtime can seal to. @throws {SealedError} sealed_malformed, sealed_unsupported */
export async function chooseKey(document: Uint8Array): Promise<SealingKey> {
  for (const { key_id, kem_id, public_key, algorithms } of readKeys(document)) {
    for (const pair of algorithms) {
      const suite = suiteOf({ kem_id, ...pair });
      if (suite === null) continue;
      try {
        return { key_id, kem_id, ...pair, suite, publicKey: await suite.DeserializePublicKey(public_key) };
      } catch (error) {
        if (!isUnsupported(error)) throw malformed('A public key is not one of its KEM.');
      }
    }
  }
  throw new SealedError('sealed_unsupported', 'This runtime has none of the algorithms that the keys are for.');
}

/** A private key. */
export interface OpeningKey extends Algorithms {
  readonly key_id: number;
  readonly suite: Suite;
  readonly pair: KeyPair;
}

/** The keys of one session: their document, and the private keys. */
export interface OpeningKeys {
  readonly document: Bytes;
  readonly keys: readonly OpeningKey[];
}

/** The length of a secret from which a key is derived. */
export const SECRET_BYTES = 32;

/**
 * Makes a key of each suite that this runtime has. The same secrets make the same keys, so that processes can share them. `first_id` is the
 * first key's identifier; the others follow, modulo 256. `secrets`: one of {@link SECRET_BYTES} random bytes for each suite.
 */
export async function makeKeys(first_id: number, secrets: readonly Uint8Array[]): Promise<OpeningKeys> {
  const keys: OpeningKey[] = [];
  const configurations: KeyConfiguration[] = [];
  for (const [i, algorithms] of SUITES.entries()) {
    const suite = suiteOf(algorithms) as Suite;
    const { kem_id, kdf_id, aead_id } = algorithms;
    const key_id = (first_id + i) % 256;
    try {
      const pair = await suite.DeriveKeyPair(secrets[i] as Uint8Array);
      const public_key = await suite.SerializePublicKey(pair.publicKey);
      configurations.push({ key_id, kem_id, public_key, algorithms: [{ kdf_id, aead_id }] });
      keys.push({ key_id, ...algorithms, suite, pair });
    } catch (error) {
      if (!isUnsupported(error)) throw error;
    }
  }
  return { document: writeKeys(configurations), keys };
}

/** The number of identifiers and of secrets that {@link makeKeys} uses. */
export const KEYS_OF_A_SESSION = SUITES.length;

const u16 = (value: number) => Uint8Array.of(value >> 8, value & 0xff);

function u16At(bytes: Uint8Array, at: number): number {
  if (at + 2 > bytes.length) throw malformed('A key configuration breaks off.');
  return ((bytes[at] as number) << 8) | (bytes[at + 1] as number);
}
