// Verifies who signed a token: NVIDIA's service or Countersign, whose signature proves something, or possibly anyone.

import { buffered, utf8 } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { once } from '../common/lru.ts';
import type { Jws } from './jws.ts';
import { type Bundle, COUNTERSIGN_ISSUER, type ParsedToken, text } from './token.ts';

/** `self-asserted`: anyone can have made it. */
export type TokenSigner = 'nvidia-signed' | 'countersign-signed' | 'self-asserted';

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

interface TokenSignatureOptions {
  /** NVIDIA's keys. */
  readonly keys?: Jwks | undefined;
  /** Countersign's keys. They verify only Countersign's tokens, and `keys` verify only NVIDIA's. */
  readonly countersignKeys?: Jwks | undefined;
  /** Fetches NVIDIA's keys, at most once, where `keys` lacks the one that is needed. */
  readonly fetchKeys?: ((url: string) => Promise<Jwks>) | undefined;
  /** The instant at which a signed token must be valid. */
  readonly at: Date;
}

interface TokenSignature {
  readonly signature: TokenSigner;
  readonly detail: string;
}

const NRAS_ISSUER = 'https://nras.attestation.nvidia.com';
/** The Python SDK's published HMAC keys: for its outer JWT, and for its local verifier's tokens. */
const ENVELOPE_SECRET = 'notasecret';
const LOCAL_SECRET = 'secret';
/** The tolerance between the signer's clock and ours. */
const CLOCK_SKEW_SECONDS = 60;

/**
 * Verifies every JWT of a token. The weakest part decides.
 * @throws {CheckFailure} token_signature_invalid, token_expired, token_issuer_unknown, token_key_unavailable.
 */
export async function verifyTokenSignature(
  parsed: ParsedToken,
  options: TokenSignatureOptions,
): Promise<TokenSignature> {
  const { kind, envelope, bundles } = parsed;
  if (envelope !== null) await verifyConstant(envelope, [ENVELOPE_SECRET]);
  const keys = keySources(options);
  const signers = new Set<TokenSigner>();
  // A native sidecar's key exists only while its process runs. Without the key, the token proves no more than its evidence.
  const keyless = kind === 'countersign' && options.countersignKeys === undefined;
  for (const bundle of bundles)
    signers.add(keyless ? 'self-asserted' : await verifyBundle(bundle, kind, keys, options.at));
  if (signers.has('self-asserted')) {
    const how = keyless
      ? 'signed by a key of Countersign that is not at hand'
      : bundles.some(({ overall }) => overall.algorithm === 'none')
        ? 'not signed'
        : "signed with NVIDIA's published constant";
    return {
      signature: 'self-asserted',
      detail: `the token is ${how}: anyone can have made it, and it proves nothing by itself`,
    };
  }
  if (signers.has('countersign-signed'))
    return { signature: 'countersign-signed', detail: 'signed by Countersign (ES384)' };
  return { signature: 'nvidia-signed', detail: "signed by NVIDIA's remote attestation service (ES384)" };
}

/** The algorithms that each kind of token may have. NVIDIA's Python SDK wraps NRAS's JWTs as it wraps its own. */
const ALGORITHMS: Readonly<Record<ParsedToken['kind'], readonly string[]>> = {
  nvtrust: ['HS256', 'ES384'],
  nvattest: ['none'],
  jwt: ['HS256', 'ES384', 'none'],
  nras: ['ES384'],
  countersign: ['ES384'],
};

async function verifyBundle(
  bundle: Bundle,
  kind: ParsedToken['kind'],
  keys: KeySources,
  at: Date,
): Promise<TokenSigner> {
  const { algorithm } = bundle.overall;
  const parts = [bundle.overall, ...bundle.submodules.values()];
  if (!ALGORITHMS[kind].includes(algorithm)) throw invalid('a JWT has an algorithm that is not accepted');
  if (parts.some((part) => part.algorithm !== algorithm)) throw invalid('the parts of a token have several algorithms');
  if (algorithm === 'ES384') return verifySigned(parts, keys, at);
  // NVIDIA's service signs with ES384 alone, so this token is a forgery.
  if (parts.some((part) => issuerOf(part) === NRAS_ISSUER))
    throw invalid("a token in NVIDIA's name without NVIDIA's signature");
  for (const part of parts) {
    if (algorithm === 'HS256')
      await verifyConstant(part, kind === 'jwt' ? [LOCAL_SECRET, ENVELOPE_SECRET] : [LOCAL_SECRET]);
    else if (part.signature.length > 0) throw invalid('a JWT without algorithm has a signature');
  }
  return 'self-asserted';
}

async function verifySigned(parts: readonly Jws[], keys: KeySources, at: Date): Promise<TokenSigner> {
  const [issuer, ...others] = new Set(parts.map(issuerOf));
  const ours = COUNTERSIGN_ISSUER.test(issuer ?? '');
  if (others.length > 0 || (issuer !== NRAS_ISSUER && !ours))
    throw new CheckFailure('token_issuer_unknown', 'the token is signed in the name of an issuer that is not known');
  for (const part of parts) {
    const key = await keyOf(part.kid, ours ? keys.countersign : keys.nras);
    const algorithm = { name: 'ECDSA', hash: 'SHA-384' };
    if (!(await crypto.subtle.verify(algorithm, key, buffered(part.signature), utf8(part.signingInput))))
      throw invalid('a signature does not verify');
  }
  for (const part of parts) checkTime(part, at);
  return ours ? 'countersign-signed' : 'nvidia-signed';
}

/** RFC 7519 §4.1.4 and §4.1.5. A signed token without `exp` is refused. */
function checkTime({ claims }: Jws, at: Date): void {
  const now = at.getTime() / 1000;
  const { exp, nbf = 0 } = claims;
  if (typeof exp !== 'number' || typeof nbf !== 'number')
    throw expired('the token does not say until when it is valid');
  if (!(now < exp + CLOCK_SKEW_SECONDS)) throw expired(`the token expired at ${instant(exp)}`);
  if (!(now >= nbf - CLOCK_SKEW_SECONDS)) throw expired(`the token is not valid before ${instant(nbf)}`);
}

const secrets = new Map<string, Promise<VerifyKey>>();

function secretKey(secret: string): Promise<VerifyKey> {
  const known = secrets.get(secret);
  if (known !== undefined) return known;
  const key = crypto.subtle.importKey('raw', utf8(secret), { name: 'HMAC', hash: 'SHA-256' }, false, ['verify']);
  secrets.set(secret, key);
  return key;
}

/** The constant under which a JWT verifies, or an empty text: neither time nor policy changes that. */
const constantOf = once(async ({ signature, signingInput }: Jws): Promise<string> => {
  for (const constant of [LOCAL_SECRET, ENVELOPE_SECRET])
    if (await crypto.subtle.verify('HMAC', await secretKey(constant), buffered(signature), utf8(signingInput)))
      return constant;
  return '';
});

async function verifyConstant(part: Jws, constants: readonly string[]): Promise<void> {
  if (part.algorithm !== 'HS256') throw invalid('a JWT has an algorithm that is not accepted');
  if (constants.includes(await constantOf(part))) return;
  throw invalid("a JWT does not verify under NVIDIA's published constant");
}

interface KeySources {
  readonly nras: readonly (() => Promise<Jwks | undefined>)[];
  readonly countersign: readonly (() => Promise<Jwks | undefined>)[];
}

function keySources({ keys, countersignKeys, fetchKeys }: TokenSignatureOptions): KeySources {
  let fetched: Promise<Jwks | undefined> | null = null;
  const once = (): Promise<Jwks | undefined> => {
    fetched ??= fetchKeys === undefined ? Promise.resolve(undefined) : fetchedKeys(fetchKeys);
    return fetched;
  };
  return { nras: [async () => keys, once], countersign: [async () => countersignKeys] };
}

async function fetchedKeys(fetchKeys: (url: string) => Promise<Jwks>): Promise<Jwks> {
  try {
    return await fetchKeys(NRAS_KEYS_URL);
  } catch (cause) {
    throw unavailable("NVIDIA's keys could not be fetched", { cause });
  }
}

const issuerOf = ({ claims }: Jws) => text(claims, 'iss');
const invalid = (message: string) => new CheckFailure('token_signature_invalid', message);
const expired = (message: string) => new CheckFailure('token_expired', message);

function instant(seconds: number): string {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? 'no instant' : date.toISOString();
}

// The keys that verify signed tokens: a JSON Web Key Set (RFC 7517), from the caller or fetched.

/** CryptoKey, by a name that both Node's types and the DOM's know. */
type VerifyKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

/** Where NVIDIA publishes the keys of its remote attestation service. They change daily and stay for about a month. */
export const NRAS_KEYS_URL = `${NRAS_ISSUER}/.well-known/jwks.json`;

const MAX_KEYS = 1024;

/** The P-384 key with this id. @throws {CheckFailure} token_key_unavailable. */
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

function unavailable(message: string, options?: ErrorOptions): CheckFailure {
  return new CheckFailure('token_key_unavailable', message, options);
}
