// Verifies an OCSP response about a certificate (RFC 6960 §3.2): its certificate, its responder, its times and its status.

import { concat, digest, equal, toHex } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { LruMap } from '../common/lru.ts';
import { type Certificate, iso, label } from './certificate.ts';
import { names, notUnderstood, signedBy } from './chain.ts';
import { DerError } from './der.ts';
import {
  type CertId,
  issuerHashes,
  OcspRefusal,
  type OcspResponse,
  parseOcspResponse,
  type SingleResponse,
} from './ocsp.ts';
import { ecdsaVerify } from './public-key.ts';

interface OcspOptions {
  /** The instant at which the response and the responder's certificate must be valid. */
  readonly at: Date;
  /** The nonce of the request, where one was sent for this check: the response must repeat it. */
  readonly nonce?: Uint8Array | undefined;
}

/** The period for which the certificate is good. */
interface GoodStatus {
  readonly thisUpdate: Date;
  readonly nextUpdate: Date;
}

/** The tolerance between the responder's clock and ours. */
export const OCSP_SKEW_MS = 5 * 60 * 1000;
/** The validity of a response without nextUpdate. NVIDIA's responses are valid for a day. */
const DEFAULT_VALIDITY_MS = 24 * 60 * 60 * 1000;
const ID_KP_OCSP_SIGNING = '1.3.6.1.5.5.7.3.9';
/** RFC 5280 §5.3.1. */
const REASONS = ['unspecified', 'key compromise', 'CA compromise', 'affiliation changed', 'superseded', 'cessation'];
const ON_HOLD = 6;

/** The verified parts of a response that do not depend on time. They are cached, so that the next check compares only times. */
interface VerifiedResponse {
  readonly single: SingleResponse;
  /** The responder that the issuer delegated to; null: the issuer responds itself. */
  readonly delegate: Certificate | null;
  readonly nonce: Uint8Array | null;
}
const verifiedResponses = new LruMap<string, VerifiedResponse>(256);

/**
 * @param response DER.
 * @throws {CheckFailure} revocation_invalid: the response is invalid, about another certificate, or not valid at this time;
 * certificate_revoked: the certificate is revoked or on hold; revocation_unavailable: the responder refused or does not
 * know the certificate.
 */
export async function verifyOcsp(
  response: Uint8Array,
  certificate: Certificate,
  issuer: Certificate,
  options: OcspOptions,
): Promise<GoodStatus> {
  const subject = label(certificate);
  const id = toHex(await digest('SHA-256', concat([response, certificate.der, issuer.der])));
  const known = verifiedResponses.get(id);
  const verified = known ?? (await findVerified(response, certificate, issuer, subject));
  if (known === undefined) verifiedResponses.set(id, verified);
  const { single, delegate, nonce } = verified;
  if (delegate !== null && !(options.at >= delegate.notBefore && options.at <= delegate.notAfter))
    throw invalid(`the OCSP responder's certificate is valid until ${iso(delegate.notAfter)}`);
  if (options.nonce !== undefined && (nonce === null || !equal(nonce, options.nonce)))
    throw invalid(`the OCSP response about ${subject} does not answer the request: its nonce is another`);
  const window = validity(single);
  if (!(options.at.getTime() >= window.thisUpdate.getTime() - OCSP_SKEW_MS))
    throw invalid(
      `the OCSP response about ${subject} is from ${iso(window.thisUpdate)}, later than the time of the check`,
    );
  if (!(options.at <= window.nextUpdate))
    throw invalid(`the OCSP response about ${subject} held until ${iso(window.nextUpdate)}`);
  checkStatus(single, subject);
  return window;
}

/**
 * The verdict on a response for a cache. `good`: the certificate is good for this period. `not_good`: the response, which may
 * be unverified, has another status. `unusable`: the response does not verify.
 */
type OcspVerdict =
  | ({ readonly verdict: 'good' } & GoodStatus)
  | { readonly verdict: 'not_good' }
  | { readonly verdict: 'unusable' };

/** As {@link verifyOcsp}, for a cache: a refused response is a verdict and no error. */
export async function appraiseOcsp(
  response: Uint8Array,
  certificate: Certificate,
  issuer: Certificate,
  options: OcspOptions,
): Promise<OcspVerdict> {
  try {
    return { verdict: 'good', ...(await verifyOcsp(response, certificate, issuer, options)) };
  } catch {
    return { verdict: (await deniesGood(response, certificate, issuer)) ? 'not_good' : 'unusable' };
  }
}

async function deniesGood(response: Uint8Array, certificate: Certificate, issuer: Certificate): Promise<boolean> {
  try {
    const about = await statusesOf(parseOcspResponse(response), certificate, issuer);
    return about.some(({ status }) => status !== 'good');
  } catch {
    return false;
  }
}

async function findVerified(
  response: Uint8Array,
  certificate: Certificate,
  issuer: Certificate,
  subject: string,
): Promise<VerifiedResponse> {
  const parsed = parse(response);
  const statuses = await statusesOf(parsed, certificate, issuer);
  const [single] = statuses;
  if (single === undefined) throw invalid(`the OCSP response is not about ${subject}`);
  if (statuses.some(({ certId }) => certId.hash === null))
    throw invalid(`the OCSP response may be about ${subject}: it names its issuer by a hash that is not supported`);
  if (!statuses.every((other) => isSameStatus(other, single)))
    throw invalid(`the OCSP response says of ${subject} now this and now that`);
  const responder = await findResponder(parsed, issuer);
  if (responder !== issuer && !(await signedBy(responder, issuer)))
    throw invalid("the OCSP responder's certificate is not signed by the issuer of the certificate");
  if (!(await ecdsaVerify(responder, parsed.signatureHash, parsed.signature, parsed.signed)))
    throw invalid('the signature of the OCSP response does not verify');
  return { single, delegate: responder === issuer ? null : responder, nonce: parsed.nonce };
}

/**
 * The parts of a response that are about this certificate, by the hashes of its issuer's name and key and its serial number. A part
 * with its serial number and an unsupported hash is among them, because it may be about this certificate.
 */
export async function statusesOf(
  { responses }: OcspResponse,
  certificate: Certificate,
  issuer: Certificate,
): Promise<SingleResponse[]> {
  const same = await Promise.all(responses.map(({ certId }) => isAbout(certId, certificate, issuer)));
  return responses.filter((_, i) => same[i]);
}

async function isAbout(id: CertId, certificate: Certificate, issuer: Certificate): Promise<boolean> {
  if (id.serial !== certificate.serial) return false;
  if (id.hash === null) return true;
  const { name, key } = await issuerHashes(issuer, id.hash);
  return equal(id.issuerNameHash, name) && equal(id.issuerKeyHash, key);
}

/** Whether two statuses are equal, with their times and reasons. */
function isSameStatus(a: SingleResponse, b: SingleResponse): boolean {
  const content = ({ status, thisUpdate, nextUpdate }: SingleResponse) =>
    JSON.stringify([status, thisUpdate, nextUpdate]);
  return content(a) === content(b);
}

export function validity({ thisUpdate, nextUpdate }: SingleResponse): GoodStatus {
  return { thisUpdate, nextUpdate: nextUpdate ?? new Date(thisUpdate.getTime() + DEFAULT_VALIDITY_MS) };
}

function parse(response: Uint8Array): OcspResponse {
  try {
    return parseOcspResponse(response);
  } catch (cause) {
    if (cause instanceof OcspRefusal)
      throw new CheckFailure('revocation_unavailable', `OCSP: ${cause.message}`, { cause });
    if (cause instanceof DerError) throw new CheckFailure('revocation_invalid', `OCSP: ${cause.message}`, { cause });
    throw cause;
  }
}

/** §4.2.2.2: the issuer itself, or a responder that the issuer certified for signing OCSP responses. */
async function findResponder(response: OcspResponse, issuer: Certificate): Promise<Certificate> {
  for (const candidate of [issuer, ...response.certificates]) {
    if (!(await isResponder(response.responder, candidate))) continue;
    if (candidate === issuer || equal(candidate.der, issuer.der)) return issuer;
    if (!names(candidate, issuer))
      throw invalid('the OCSP responder was not certified by the issuer of the certificate');
    if (candidate.extendedKeyUsage?.includes(ID_KP_OCSP_SIGNING) !== true)
      throw invalid('the OCSP responder may not sign OCSP responses');
    if (candidate.keyUsage?.has('digitalSignature') === false) throw invalid('the OCSP responder may not sign');
    const unknown = notUnderstood(candidate);
    if (unknown !== null)
      throw invalid(`the OCSP responder's certificate has a critical extension that is not understood (${unknown})`);
    return candidate;
  }
  throw invalid('the OCSP response does not bring its responder');
}

async function isResponder(id: OcspResponse['responder'], candidate: Certificate): Promise<boolean> {
  if ('name' in id) return equal(id.name, candidate.subject);
  return equal(id.keyHash, await digest('SHA-1', candidate.publicKeyBits));
}

function checkStatus({ status }: SingleResponse, subject: string): void {
  if (status === 'good') return;
  if (status === 'unknown') throw new CheckFailure('revocation_unavailable', `the responder does not know ${subject}`);
  if (status.reason === ON_HOLD)
    throw new CheckFailure('certificate_revoked', `${subject} is on hold since ${iso(status.revokedAt)}`);
  const reason = status.reason === null ? '' : `: ${REASONS[status.reason] ?? `reason ${status.reason}`}`;
  throw new CheckFailure('certificate_revoked', `${subject} was revoked at ${iso(status.revokedAt)}${reason}`);
}

const invalid = (message: string) => new CheckFailure('revocation_invalid', message);
