// A time authority's word (RFC 3161) about a signature: the only time where the log gives none.
import { digest, equal } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import type { Certificate } from '../x509/certificate.ts';
import { ChainError, verifyChain } from '../x509/chain.ts';
import {
  children,
  DerError,
  type DerValue,
  expectTag,
  integer,
  oid,
  readOne,
  sequence,
  TAG,
  time,
} from '../x509/der.ts';
import { ecdsaVerify, type Hash } from '../x509/public-key.ts';
import { type Authority, within } from './trusted-root.ts';

const SIGNED_DATA = '1.2.840.113549.1.7.2';
const TST_INFO = '1.2.840.113549.1.9.16.1.4';
const CONTENT_TYPE = '1.2.840.113549.1.9.3';
const MESSAGE_DIGEST = '1.2.840.113549.1.9.4';
const MAX_DEPTH = 32;
const TIME_STAMPING = '1.3.6.1.5.5.7.3.8';
const HASHES: Readonly<Record<string, Hash>> = {
  '2.16.840.1.101.3.4.2.1': 'SHA-256',
  '2.16.840.1.101.3.4.2.2': 'SHA-384',
  '2.16.840.1.101.3.4.2.3': 'SHA-512',
  '1.2.840.10045.4.3.2': 'SHA-256',
  '1.2.840.10045.4.3.3': 'SHA-384',
  '1.2.840.10045.4.3.4': 'SHA-512',
};

interface Stamp {
  readonly at: Date;
  /** What was stamped. */
  readonly imprint: { readonly hash: Hash; readonly digest: Uint8Array };
  readonly issuer: Uint8Array;
  readonly serial: bigint;
  /** DER of TSTInfo, and the signer's hash of it. */
  readonly content: Uint8Array;
  readonly contentHash: Hash;
  readonly contentDigest: Uint8Array;
  /** The signed attributes as a SET. */
  readonly attributes: Uint8Array;
  readonly signatureHash: Hash;
  readonly signature: Uint8Array;
}

/** @param signature what was stamped. @throws {CheckFailure} release_time_invalid, release_untrusted, release_root_expired */
export async function stampedTime(
  der: Uint8Array,
  signature: Uint8Array,
  authorities: readonly Authority[],
): Promise<Date> {
  const stamp = read(der);
  const named = authorities.filter(({ chain: [signer] }) => signer !== undefined && isNamed(signer, stamp));
  if (named.length === 0)
    throw new CheckFailure('release_untrusted', 'the trusted root does not know this time authority');
  const authority = named.find(({ period }) => within(stamp.at, period));
  if (authority === undefined)
    throw new CheckFailure('release_root_expired', 'the trusted root ends this time authority before that time');
  if (!equal(stamp.imprint.digest, await digest(stamp.imprint.hash, signature)))
    throw invalid('is about another signature');
  if (!equal(stamp.contentDigest, await digest(stamp.contentHash, stamp.content)))
    throw invalid('was signed about another time');
  const signer = await checkSigner(authority, stamp.at);
  if (!(await ecdsaVerify(signer, stamp.signatureHash, stamp.signature, stamp.attributes)))
    throw invalid('does not verify');
  return stamp.at;
}

const isNamed = (signer: Certificate, { issuer, serial }: Stamp) =>
  equal(signer.issuer, issuer) && signer.serial === serial;

async function checkSigner({ chain }: Authority, at: Date): Promise<Certificate> {
  const [signer, root] = [chain[0], chain.at(-1)];
  if (signer === undefined || root === undefined || signer.extendedKeyUsage?.includes(TIME_STAMPING) !== true)
    throw invalid('was signed by a certificate that is not for times');
  try {
    await verifyChain(chain.slice(0, -1), [root], at);
    return signer;
  } catch (cause) {
    if (cause instanceof ChainError)
      throw new CheckFailure(
        cause.reason === 'expired' ? 'release_root_expired' : 'release_time_invalid',
        cause.message,
        {
          cause,
        },
      );
    throw cause;
  }
}

function read(der: Uint8Array): Stamp {
  try {
    return parse(der);
  } catch (cause) {
    if (cause instanceof DerError) throw invalid(`cannot be read: ${cause.message}`);
    throw cause;
  }
}

/** TimeStampResp: its status and a ContentInfo with SignedData (RFC 5652 §5.1). */
function parse(der: Uint8Array): Stamp {
  const whole = readOne(der);
  wellFormed(whole);
  const [status, token, ...more] = sequence(whole);
  const granted = integer(sequence(status)[0]);
  if (more.length > 0 || (granted !== 0n && granted !== 1n)) throw new DerError('it was not granted');
  const signedData = sequence(explicit(sequence(token), SIGNED_DATA));
  const content = expectTag(explicit(sequence(signedData[2]), TST_INFO), TAG.octetString).content;
  const [signer, ...others] = children(expectTag(signedData.at(-1), TAG.set).content);
  if (others.length > 0) throw new DerError('it has several signers');
  const [, sid, contentHash, attributes, algorithm, signature] = sequence(signer);
  const [issuer, serial] = sequence(sid);
  const signed = expectTag(attributes, 0xa0);
  const values = new Map(children(signed.content).map((one) => attribute(one)));
  const contentType = values.get(CONTENT_TYPE);
  if (contentType === undefined || oid(contentType) !== TST_INFO) throw new DerError('its content is no time');
  const info = sequence(readOne(content));
  const [imprintHash, imprint] = sequence(info[2]);
  return {
    // In whole seconds, as Sigstore's time authorities write it.
    at: time(expectTag(info[4], TAG.generalizedTime)),
    imprint: { hash: hashOf(imprintHash), digest: expectTag(imprint, TAG.octetString).content },
    issuer: expectTag(issuer, TAG.sequence).whole,
    serial: integer(serial),
    content,
    contentHash: hashOf(contentHash),
    contentDigest: expectTag(values.get(MESSAGE_DIGEST), TAG.octetString).content,
    attributes: Uint8Array.of(TAG.set, ...signed.whole.subarray(1)),
    signatureHash: hashOf(algorithm),
    signature: expectTag(signature, TAG.octetString).content,
  };
}

/** What nobody reads or signs must be DER too. */
function wellFormed({ tag, content }: DerValue, depth = 0): void {
  if (depth > MAX_DEPTH) throw new DerError('it is too deep');
  if ((tag & 0x20) !== 0) for (const inside of children(content)) wellFormed(inside, depth + 1);
}

/** `type` and what it has in [0]. */
function explicit([type, value, ...more]: readonly DerValue[], expected: string): DerValue {
  if (oid(type) !== expected || more.length > 0) throw new DerError('it is of another type');
  return readOne(expectTag(value, 0xa0).content);
}

function attribute(value: DerValue): readonly [string, DerValue | undefined] {
  const [type, set] = sequence(value);
  const [one, ...more] = children(expectTag(set, TAG.set).content);
  if (more.length > 0) throw new DerError('an attribute has several values');
  return [oid(type), one];
}

function hashOf(algorithm: DerValue | undefined): Hash {
  const hash = HASHES[oid(sequence(algorithm)[0])];
  if (hash === undefined) throw new DerError('a hash or signature that is not supported');
  return hash;
}

const invalid = (what: string) => new CheckFailure('release_time_invalid', `the time authority's word ${what}`);
