// The keys that signed tokens are checked under: a JSON Web Key Set (RFC 7517) handed in or fetched.
import { CheckFailure } from '../checks.ts';

/** As much of a JWK as an ES384 key needs. */
export interface Jwk {
  readonly kty?: string | undefined;
  readonly kid?: string | undefined;
  readonly crv?: string | undefined;
  readonly x?: string | undefined;
  readonly y?: string | undefined;
}

export interface Jwks {
  readonly keys: readonly Jwk[];
}

/** CryptoKey, by a name that both Node's types and the DOM's know. */
export type VerifyKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

/** Where NVIDIA publishes the keys of its remote attestation service. They change daily and stay for about a month. */
export const NRAS_KEYS_URL = 'https://nras.attestation.nvidia.com/.well-known/jwks.json';

const MAX_KEYS = 1024;

/** The P-384 key of that id. @throws {CheckFailure} token_key_unavailable. */
export async function keyOf(
  kid: string | null,
  sources: readonly (() => Promise<Jwks | undefined>)[],
): Promise<VerifyKey> {
  if (kid === null) throw unavailable('a JWT names no key');
  for (const source of sources) {
    const jwk = findKey(await source(), kid);
    if (jwk !== undefined) return imported(jwk);
  }
  throw unavailable('the key that a JWT names is in no key set at hand');
}

function findKey(set: Jwks | undefined, kid: string): Jwk | undefined {
  if (set === undefined) return undefined;
  if (!Array.isArray(set?.keys) || set.keys.length > MAX_KEYS) throw unavailable('the key set is not one');
  const keys = set.keys as readonly (Jwk | null)[];
  return keys.find((key) => key?.kid === kid) ?? undefined;
}

async function imported({ kty, crv, x, y }: Jwk): Promise<VerifyKey> {
  if (kty !== 'EC' || crv !== 'P-384' || x === undefined || y === undefined)
    throw unavailable('the key that a JWT names is not on P-384');
  try {
    return await crypto.subtle.importKey('jwk', { kty, crv, x, y }, { name: 'ECDSA', namedCurve: crv }, false, [
      'verify',
    ]);
  } catch (cause) {
    throw unavailable('the key that a JWT names is broken', { cause });
  }
}

export function unavailable(message: string, options?: ErrorOptions): CheckFailure {
  return new CheckFailure('token_key_unavailable', message, options);
}
