// Answers for certificate status (OCSP, RFC 6960) as NVIDIA's responders give them: SHA-384 certIDs, a delegated responder.
import { createHash, sign } from 'node:crypto';
import * as ext from '../../demo/twin/certificate.ts';
import * as der from '../../demo/twin/certificate.ts';
import {
  type Certificate,
  ECDSA_WITH_SHA384,
  type Holder,
  issue,
  keyIdentifier,
  name,
  newKey,
  point,
} from '../../demo/twin/certificate.ts';
import { TWIN } from '../../demo/twin/identity.ts';
import { NOT_AFTER, NOT_BEFORE, randomSerial } from '../../demo/twin/pki.ts';

/** `reason`: CRLReason (RFC 5280 §5.3.1): 1 key compromise, 6 on hold. */
export type CertificateStatus = 'good' | 'unknown' | { readonly revokedAt: Date; readonly reason?: number };

export interface OcspAnswer {
  /** The certificate asked about, and who issued it. */
  readonly certificate: Certificate;
  readonly issuer: Certificate;
  /** Signs the answer: from `makeResponder`, issued by the same issuer (RFC 6960 §4.2.2.2). */
  readonly responder: Holder;
  readonly status: CertificateStatus;
  readonly thisUpdate: Date;
  /** Left out where the responder promises nothing. */
  readonly nextUpdate?: Date;
  /** The request's nonce, given back. */
  readonly nonce?: Uint8Array;
  readonly hash?: keyof typeof HASH_OIDS;
  readonly breakSignature?: boolean;
  /** Further answers in the same response, after this one. */
  readonly also?: readonly SingleAnswer[];
  /** Extensions of the response, after the nonce. */
  readonly responseExtensions?: readonly Buffer[];
  /** DER that stands behind an answer's thisUpdate, in place of nextUpdate and singleExtensions. */
  readonly tail?: readonly Buffer[];
  readonly singleExtensions?: readonly Buffer[];
}

type SingleAnswer = Pick<OcspAnswer, 'certificate' | 'issuer' | 'status' | 'thisUpdate' | 'nextUpdate' | 'hash'> &
  Pick<OcspAnswer, 'tail' | 'singleExtensions'>;

const ID_PKIX_OCSP_BASIC = der.oid('1.3.6.1.5.5.7.48.1.1');
const ID_PKIX_OCSP_NONCE = der.oid('1.3.6.1.5.5.7.48.1.2');
const HASH_OIDS = {
  sha384: der.oid('2.16.840.1.101.3.4.2.2'),
  sha1: der.oid('1.3.14.3.2.26'),
  /** One that WebCrypto does not have. */
  'sha3-384': der.oid('2.16.840.1.101.3.4.2.9'),
} as const;

/** A responder that `issuer` has delegated. `signsOcsp: false` leaves out the extended key usage that says so. */
export function makeResponder(
  issuer: Holder,
  options: { notAfter?: Date; signsOcsp?: boolean; extensions?: readonly Buffer[]; authorityKeyId?: Buffer } = {},
): Holder {
  const { key, publicKey } = newKey();
  const usages = options.signsOcsp === false ? [] : [ocspSigning(), ocspNoCheck()];
  const spec = {
    subject: name(['CN', 'SIMULATED OCSP Responder'], ['O', TWIN.organization], ['C', TWIN.country]),
    serial: randomSerial(),
    notBefore: NOT_BEFORE,
    notAfter: options.notAfter ?? NOT_AFTER,
    extensions: [
      ext.basicConstraints(false),
      ext.keyUsage('digitalSignature'),
      ...usages,
      ...(options.extensions ?? []),
    ],
    ...(options.authorityKeyId === undefined ? {} : { authorityKeyId: options.authorityKeyId }),
  };
  return { key, certificate: issue(spec, publicKey, issuer) };
}

/** The OCSPResponse, DER (§4.2.1). */
export function makeOcspResponse(answer: OcspAnswer): Buffer {
  const { responder } = answer;
  const extensions = [
    ...(answer.nonce === undefined ? [] : [nonceExtension(answer.nonce)]),
    ...(answer.responseExtensions ?? []),
  ];
  const data = der.sequence(
    der.context(2, der.octetString(keyIdentifier(responder.certificate.publicKey))), // ResponderID byKey
    der.generalizedTime(answer.thisUpdate), // producedAt
    der.sequence(...[answer, ...(answer.also ?? [])].map(singleResponse)),
    ...(extensions.length === 0 ? [] : [der.context(1, der.sequence(...extensions))]),
  );
  // A broken signature is one over other bytes: still well formed.
  const signature = sign('sha384', answer.breakSignature ? Buffer.concat([data, data]) : data, responder.key);
  const certificates = der.context(0, der.sequence(responder.certificate.der));
  const basic = der.sequence(data, ECDSA_WITH_SHA384, der.bitString(signature), certificates);
  const bytes = der.sequence(ID_PKIX_OCSP_BASIC, der.octetString(basic));
  return der.sequence(der.enumerated(0), der.context(0, bytes));
}

export const nonceExtension = (nonce: Uint8Array): Buffer =>
  der.sequence(ID_PKIX_OCSP_NONCE, der.octetString(der.octetString(nonce)));

function singleResponse(answer: SingleAnswer): Buffer {
  const { nextUpdate, singleExtensions: extensions = [] } = answer;
  const tail = answer.tail ?? [
    ...(nextUpdate === undefined ? [] : [der.context(0, der.generalizedTime(nextUpdate))]),
    ...(extensions.length === 0 ? [] : [der.context(1, der.sequence(...extensions))]),
  ];
  return der.sequence(certId(answer), certStatus(answer.status), der.generalizedTime(answer.thisUpdate), ...tail);
}

/** §4.1.1: hashes of the issuer's name and of its public key's bits, then the certificate's serial number. */
function certId({ certificate, issuer, hash = 'sha384' }: SingleAnswer): Buffer {
  const digest = (bytes: Uint8Array) => der.octetString(createHash(hash).update(bytes).digest());
  const algorithm = der.sequence(HASH_OIDS[hash], der.nil());
  return der.sequence(
    algorithm,
    digest(issuer.subject),
    digest(point(issuer.publicKey)),
    der.integer(certificate.serial),
  );
}

function certStatus(status: CertificateStatus): Buffer {
  if (status === 'good') return der.contextPrimitive(0, Buffer.alloc(0));
  if (status === 'unknown') return der.contextPrimitive(2, Buffer.alloc(0));
  const reason = status.reason === undefined ? [] : [der.context(0, der.enumerated(status.reason))];
  return der.context(1, der.generalizedTime(status.revokedAt), ...reason);
}

/** §4.2.1.12: a delegated OCSP responder (RFC 6960 §4.2.2.2). */
const ocspSigning = (): Buffer => ext.extension('2.5.29.37', der.sequence(der.oid('1.3.6.1.5.5.7.3.9')), true);

/** RFC 6960 §4.2.2.2.1 */
export const ocspNoCheck = (): Buffer => ext.extension('1.3.6.1.5.5.7.48.1.5', der.nil());
