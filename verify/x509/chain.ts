// Verifies a certificate chain up to a pinned root (RFC 5280 §6.1, for chains that come in order).

import { equal, sha256Once } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { LruMap } from '../common/lru.ts';
import { type Certificate, EXTENSION, iso, label, type Signed } from './certificate.ts';
import { ecdsaVerify, type PublicKey, pssVerify } from './public-key.ts';

/** `untrusted_root`: well-formed, but not under a root that the caller trusts. */
export class ChainError extends Error {
  override readonly name = 'ChainError';
  readonly reason: 'untrusted_root' | 'expired' | 'invalid';
  constructor(reason: ChainError['reason'], message: string) {
    super(message);
    this.reason = reason;
  }
}

/** The check failure for an error in a device's own chain. */
function chainFailure(cause: ChainError): CheckFailure {
  const codes = { untrusted_root: 'untrusted_root', expired: 'certificate_expired', invalid: 'chain_invalid' } as const;
  return new CheckFailure(codes[cause.reason], cause.message, { cause });
}

const MAX_CHAIN = 8;
/** Critical extensions that are understood. Any other makes its certificate unusable (RFC 5280 §4.2). */
const UNDERSTOOD = new Set<string>([
  ...Object.values(EXTENSION),
  '2.5.29.17', // subjectAltName: no decision depends on it
  '2.23.133.5.4.1', // the firmware id, which the check report_fwid compares; TCG DICE allows it to be critical
  '2.23.133.5.4.1.1',
]);

/**
 * Returns the full path, leaf first, the pinned root last. `chain` is leaf first, with or without its root; only the roots
 * in `roots` are trusted, never one in `chain`.
 * @throws {ChainError}
 */
export async function verifyChain(
  chain: readonly Certificate[],
  roots: readonly Certificate[],
  at: Date,
): Promise<Certificate[]> {
  const path = anchored(chain, roots);
  if (path.length > MAX_CHAIN) throw new ChainError('invalid', 'the chain is too long');
  for (const [i, certificate] of path.entries()) checkCertificate(certificate, i, path.length);
  await checkSignatures(path);
  // Dates come last, so that a chain that is reported as expired is valid otherwise.
  for (const certificate of path) {
    if (!(at >= certificate.notBefore))
      throw new ChainError('expired', `${label(certificate)} is not valid before ${iso(certificate.notBefore)}`);
    if (!(at <= certificate.notAfter))
      throw new ChainError('expired', `${label(certificate)} expired at ${iso(certificate.notAfter)}`);
  }
  return path;
}

/** The chain with the pinned root at its end. */
function anchored(chain: readonly Certificate[], roots: readonly Certificate[]): Certificate[] {
  const last = chain.at(-1);
  if (last === undefined) throw new ChainError('invalid', 'the chain is empty');
  const below = equal(last.issuer, last.subject) ? chain.slice(0, -1) : [...chain];
  const top = below.at(-1);
  // A chain that is a root alone has no leaf.
  if (top === undefined) throw new ChainError('invalid', 'the chain has no leaf');
  const own = below.length < chain.length ? last : null;
  for (const root of roots) {
    if (!equal(root.subject, top.issuer)) continue;
    if (own === null || equal(own.der, root.der) || equal(own.spki, root.spki)) return [...below, root];
  }
  throw new ChainError(
    'untrusted_root',
    `the chain ends in ${own === null ? `the issuer of ${label(top)}` : label(own)}, which is not a pinned root`,
  );
}

/** The object identifier of a critical extension that is not understood; null where there is none. */
export function notUnderstood({ extensions }: Certificate): string | null {
  for (const [id, { critical }] of extensions) if (critical && !UNDERSTOOD.has(id)) return id;
  return null;
}

/** Whether the certificate names this issuer: by name, and by key identifier where both have one (RFC 5280 §4.2.1.1). */
export function names(certificate: Certificate, issuer: Certificate): boolean {
  const [stated, own] = [certificate.authorityKeyId, issuer.subjectKeyId];
  return equal(certificate.issuer, issuer.subject) && (stated === null || own === null || equal(stated, own));
}

/** Whether `issuer`'s key signed this certificate or this revocation list. */
export function signedBy(
  { signatureScheme, signatureHash, signature, tbs }: Signed,
  issuer: PublicKey,
): Promise<boolean> {
  return signatureScheme === 'ECDSA'
    ? ecdsaVerify(issuer, signatureHash, signature, tbs)
    : pssVerify(issuer, signature, tbs);
}

function checkCertificate(certificate: Certificate, depth: number, length: number): void {
  const unknown = notUnderstood(certificate);
  if (unknown !== null)
    throw new ChainError(
      'invalid',
      `${label(certificate)} has a critical extension that is not understood (${unknown})`,
    );
  if (depth === 0) return;
  if (!certificate.isCa) throw new ChainError('invalid', `${label(certificate)} is not a certificate authority`);
  if (certificate.keyUsage !== null && !certificate.keyUsage.has('keyCertSign'))
    throw new ChainError('invalid', `${label(certificate)} may not sign certificates`);
  // `depth - 1` authorities are between this one and the leaf.
  if (certificate.pathLength !== null && depth - 1 > certificate.pathLength && depth < length)
    throw new ChainError('invalid', `${label(certificate)} allows a path of ${certificate.pathLength} authorities`);
}

const MAX_VERIFIED = 512;
/** Paths whose names and signatures were verified. Neither depends on time. */
const verified = new LruMap<string, true>(MAX_VERIFIED);

async function checkSignatures(path: readonly Certificate[]): Promise<void> {
  const id = await identity(path);
  if (verified.get(id)) return;
  const links = path.slice(0, -1).map((certificate, i) => ({ certificate, issuer: path[i + 1] as Certificate }));
  for (const { certificate, issuer } of links)
    if (!names(certificate, issuer))
      throw new ChainError('invalid', `${label(certificate)} was not issued by ${label(issuer)}`);
  // In parallel: with enough cores, a new chain takes the time of its slowest signature.
  const right = await Promise.all(links.map(({ certificate, issuer }) => signedBy(certificate, issuer)));
  const wrong = links[right.indexOf(false)];
  if (wrong !== undefined)
    throw new ChainError(
      'invalid',
      `the signature of ${label(wrong.certificate)} does not verify under ${label(wrong.issuer)}`,
    );
  verified.set(id, true);
}

async function identity(path: readonly Certificate[]): Promise<string> {
  return (await Promise.all(path.map(({ der }) => sha256Once(der)))).join('');
}

// A path to a pinned root, or to a simulated one that the caller named.

interface Anchors {
  readonly roots: readonly Certificate[];
  /** Roots of test keys, which prove nothing about hardware; empty unless the caller named some. */
  readonly simulatedRoots: readonly Certificate[];
  readonly at: Date;
}

interface TrustedPath {
  /** Leaf first, the root last. */
  readonly path: readonly Certificate[];
  readonly simulated: boolean;
}

/**
 * @param subject begins the message where a simulated root is refused: `a simulated device`.
 * @throws {CheckFailure} untrusted_root, simulated_root_refused, certificate_expired, chain_invalid
 */
export async function trustedPath(
  chain: readonly Certificate[],
  { roots, simulatedRoots, at }: Anchors,
  subject: string,
): Promise<TrustedPath> {
  try {
    return { path: await verifyChain(chain, roots, at), simulated: false };
  } catch (error) {
    if (!(error instanceof ChainError)) throw error;
    if (error.reason !== 'untrusted_root') throw chainFailure(error);
    try {
      return { path: await verifyChain(chain, simulatedRoots, at), simulated: true };
    } catch (cause) {
      if (!(cause instanceof ChainError)) throw cause;
      if (cause.reason === 'untrusted_root' && simulatedRoots.length === 0 && chain.some(saysSimulated))
        throw new CheckFailure('simulated_root_refused', `${subject}, and the caller named no simulated root`, {
          cause,
        });
      throw chainFailure(cause);
    }
  }
}

const saysSimulated = ({ subject }: Certificate) => new TextDecoder('latin1').decode(subject).includes('SIMULATED');

/** True where a revocation list has this authority's name and signature. */
export async function isIssuedBy(crl: Signed & { readonly issuer: Uint8Array }, issuer: Certificate): Promise<boolean> {
  if (!equal(crl.issuer, issuer.subject) || issuer.keyUsage?.has('cRLSign') === false) return false;
  return signedBy(crl, issuer);
}
