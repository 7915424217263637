// Reads certificate revocation lists (RFC 5280 §5.1) and looks certificates up in them.
import { toHex } from '../common/bytes.ts';
import { type Certificate, parseExtensions, readSignature, type Signed } from './certificate.ts';
import { DerError, type DerValue, expectTag, integer, readAt, readOne, sequence, TAG, time } from './der.ts';

/** Not trusted until `isIssuedBy` of chain.ts is true. */
export interface Crl extends Signed {
  /** DER of the issuer's name. */
  readonly issuer: Uint8Array;
  readonly thisUpdate: Date;
  readonly nextUpdate: Date;
  /** Serial numbers as the hex digits of their INTEGER. */
  readonly revoked: ReadonlySet<string>;
}

/** Intel's list of 2026 has 57 certificates in 3,355 bytes. */
const MAX_CRL_BYTES = 1024 * 1024;
/** The one critical extension that is accepted: the CRL's number (RFC 5280 §5.2.3) does not limit the list. */
const CRL_NUMBER = '2.5.29.20';

/** @throws {DerError} */
export function parseCrl(der: Uint8Array): Crl {
  if (der.length > MAX_CRL_BYTES) throw new DerError('a revocation list is too large');
  const [tbs, algorithm, signature, ...more] = sequence(readOne(der));
  if (tbs === undefined || algorithm === undefined || more.length > 0)
    throw new DerError('a revocation list has not three parts');
  const parts = sequence(tbs);
  if (integer(parts.shift()) !== 1n) throw new DerError('a revocation list of another version than 2');
  const [innerAlgorithm, issuer, thisUpdate, nextUpdate, ...rest] = parts;
  if (innerAlgorithm === undefined) throw new DerError('a revocation list lacks a part');
  const list = rest[0]?.tag === TAG.sequence ? rest.shift() : undefined;
  const extensions = rest[0]?.tag === 0xa0 ? parseExtensions(rest.shift() as DerValue) : new Map();
  if (rest.length > 0) throw new DerError('a revocation list has an unknown part');
  // Delta and indirect lists have critical extensions.
  for (const [id, { critical }] of extensions)
    if (critical && id !== CRL_NUMBER) throw new DerError('a revocation list has a critical extension');
  return {
    ...readSignature(tbs, innerAlgorithm, algorithm, signature),
    issuer: expectTag(issuer, TAG.sequence).whole,
    thisUpdate: time(thisUpdate),
    nextUpdate: time(nextUpdate),
    revoked: serials(list),
  };
}

function serials(list: DerValue | undefined): Set<string> {
  const revoked = new Set<string>();
  const content = list?.content ?? new Uint8Array();
  // One after the other: a list may be longer than the sequences that der.ts reads at once.
  for (let at = 0; at < content.length; ) {
    const entry = expectTag(readAt(content, at), TAG.sequence);
    revoked.add(toHex(expectTag(readAt(entry.content, 0), TAG.integer).content));
    at += entry.whole.length;
  }
  return revoked;
}

/** @param crl of the authority that issued `certificate`. */
export function isRevoked(crl: Crl, certificate: Certificate): boolean {
  return crl.revoked.has(hexOfInteger(certificate.serial));
}

/** The digits of a positive INTEGER's content. */
function hexOfInteger(value: bigint): string {
  const digits = value.toString(16);
  const even = digits.length % 2 === 0 ? digits : `0${digits}`;
  return even >= '8' ? `00${even}` : even;
}
