// The algorithms of sealed requests (RFC 9180, draft-ietf-hpke-pq): the hybrid of ML-KEM-768 and X25519 where the runtime has it, and
// X25519, which every runtime has.
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
  NotSupportedError,
} from 'hpke';

/** Identifiers in IANA's HPKE registry. */
export interface Algorithms {
  readonly kem_id: number;
  readonly kdf_id: number;
  readonly aead_id: number;
}

export const KEM = { x25519: 0x0020, mlkem768_x25519: 0x647a } as const;
export const KDF = { hkdf_sha256: 0x0001 } as const;
export const AEAD = { aes_128_gcm: 0x0001, aes_256_gcm: 0x0002 } as const;

/** The suites that a gateway offers, in order of preference. */
export const SUITES: readonly Algorithms[] = [
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

export type Suite = CipherSuite<Key>;

/** null: the algorithms are not ours. A suite that is returned may still be one that the runtime lacks. */
export function suiteOf({ kem_id, kdf_id, aead_id }: Algorithms): Suite | null {
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
export const isUnsupported = (error: unknown): boolean => error instanceof NotSupportedError;
