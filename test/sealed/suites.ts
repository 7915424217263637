// The algorithms of sealed requests by their identifiers in IANA's HPKE registry, and secrets for the keys of a session.
import { randomBytes } from 'node:crypto';
import { KEYS_OF_A_SESSION } from '../../sealed/index.ts';

export const KEM = { x25519: 0x0020, mlkem768_x25519: 0x647a };
export const KDF = { hkdf_sha256: 0x0001 };
export const AEAD = { aes_128_gcm: 0x0001, aes_256_gcm: 0x0002 };

export const secrets = (): Buffer[] => Array.from({ length: KEYS_OF_A_SESSION }, () => randomBytes(32));
