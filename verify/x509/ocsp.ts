// OCSP requests and responses as bytes (RFC 6960).
import { type Bytes, concat, digest } from '../common/bytes.ts';
import { type Certificate, parseCertificate, parseExtensions } from './certificate.ts';
import {
  bitString,
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
} from './der.ts';

// Writes OCSP requests (RFC 6960 §4.1.1) with a nonce (RFC 8954).

/** The longest nonce that RFC 8954 §2.1 allows. */
export const OCSP_NONCE_BYTES = 32;

const SHA384 = Uint8Array.of(0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x02);
const NONCE = Uint8Array.of(0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x02);

/** The DER of a request for one certificate. Its CertID uses SHA-384, as that of NVIDIA's verifiers does. */
export async function makeOcspRequest(
  certificate: Certificate,
  issuer: Certificate,
  nonce: Uint8Array,
): Promise<Bytes> {
  return ocspRequestOf(await makeCertId(certificate, issuer), nonce);
}

/** The same for a CertID in DER. @param nonce null: without one. */
export function ocspRequestOf(id: Uint8Array, nonce: Uint8Array | null): Bytes {
  const requests = value(TAG.sequence, value(TAG.sequence, id));
  if (nonce === null) return value(TAG.sequence, value(TAG.sequence, requests));
  const extension = value(TAG.sequence, value(TAG.oid, NONCE), value(TAG.octetString, value(TAG.octetString, nonce)));
  const extensions = value(0xa2, value(TAG.sequence, extension));
  return value(TAG.sequence, value(TAG.sequence, requests, extensions));
}

/** DER of the CertID, which is also the key of a cached response. */
export async function makeCertId(certificate: Certificate, issuer: Certificate): Promise<Bytes> {
  const { name, key } = await issuerHashes(issuer, 'SHA-384');
  return value(
    TAG.sequence,
    value(TAG.sequence, value(TAG.oid, SHA384), value(TAG.null)),
    value(TAG.octetString, name),
    value(TAG.octetString, key),
    value(TAG.integer, serialBytes(certificate.serial)),
  );
}

/** Hash functions by which a CertID may name an issuer: those of WebCrypto. */
type CertIdHash = 'SHA-1' | 'SHA-256' | 'SHA-384' | 'SHA-512';

interface IssuerHashes {
  readonly name: Bytes;
  readonly key: Bytes;
}

const known = new WeakMap<Certificate, Map<string, IssuerHashes>>();

/** §4.1.1: hashes of the issuer's name and of its public key's bits. */
export async function issuerHashes(issuer: Certificate, hash: CertIdHash): Promise<IssuerHashes> {
  const hashes = known.get(issuer) ?? new Map<string, IssuerHashes>();
  known.set(issuer, hashes);
  const before = hashes.get(hash);
  if (before !== undefined) return before;
  const [name, key] = await Promise.all([digest(hash, issuer.subject), digest(hash, issuer.publicKeyBits)]);
  hashes.set(hash, { name, key });
  return { name, key };
}

function serialBytes(serial: bigint): Uint8Array {
  const bytes: number[] = [];
  for (let rest = serial; rest > 0n || bytes.length === 0; rest >>= 8n) bytes.unshift(Number(rest & 0xffn));
  if ((bytes[0] ?? 0) >= 0x80) bytes.unshift(0);
  return Uint8Array.from(bytes);
}

/** One DER value of at most 65,535 bytes. */
function value(tag: number, ...contents: readonly Uint8Array[]): Bytes {
  const { length } = concat(contents);
  const head =
    length < 0x80 ? [tag, length] : length < 0x100 ? [tag, 0x81, length] : [tag, 0x82, length >> 8, length & 0xff];
  return concat([Uint8Array.from(head), ...contents]);
}

// Reads OCSP requests about one certificate, as NVIDIA's verifiers write them: neither signed nor in anyone's name.

interface OcspRequest {
  /** DER of the CertID. */
  readonly id: Uint8Array;
  readonly certId: CertId;
  readonly nonce: Uint8Array | null;
}

/** @throws {DerError} it is no such request. */
export function parseOcspRequest(der: Uint8Array): OcspRequest {
  if (der.length > MAX_OCSP_BYTES) throw new DerError('an OCSP request is too large');
  const [data, ...signature] = sequence(readOne(der));
  const [list, extensions, ...more] = sequence(data);
  const [request, ...others] = sequence(list);
  const [id, ...rest] = sequence(request);
  if (id === undefined || [signature, more, others, rest].some(({ length }) => length > 0))
    throw new DerError('an OCSP request has other parts');
  const nonce = nonceOf(extensions, 0xa2);
  return { id: id.whole, certId: parseCertId(id), nonce };
}

// Reads OCSP responses (RFC 6960 §4.2.1). A parsed response is not trusted until verifyOcsp has verified it.

/** §4.1.1: identifies a certificate by its serial number and by hashes of its issuer's name and key. */
export interface CertId {
  /** null: a hash that is not supported. */
  readonly hash: CertIdHash | null;
  readonly issuerNameHash: Uint8Array;
  readonly issuerKeyHash: Uint8Array;
  readonly serial: bigint;
}

type CertStatus = 'good' | 'unknown' | { readonly revokedAt: Date; readonly reason: number | null };

export interface SingleResponse {
  readonly certId: CertId;
  readonly status: CertStatus;
  readonly thisUpdate: Date;
  readonly nextUpdate: Date | null;
}

export interface OcspResponse {
  /** DER of ResponseData, which the responder signed. */
  readonly signed: Uint8Array;
  readonly signatureHash: 'SHA-256' | 'SHA-384';
  readonly signature: Uint8Array;
  /** DER of the responder's name, or the SHA-1 of its key. */
  readonly responder: { readonly name: Uint8Array } | { readonly keyHash: Uint8Array };
  readonly responses: readonly SingleResponse[];
  readonly nonce: Uint8Array | null;
  readonly certificates: readonly Certificate[];
}

/** The responder refused the request. §4.2.1: 1 malformed request, 2 internal error, 3 try later, 5 sign first, 6 unauthorized. */
export class OcspRefusal extends Error {
  override readonly name = 'OcspRefusal';

  readonly status: number;
  constructor(status: number) {
    super(`the responder refused with status ${status}`);
    this.status = status;
  }
}

export const MAX_OCSP_BYTES = 64 * 1024;
const MAX_RESPONSES = 64;
const MAX_CERTIFICATES = 8;

const BASIC_RESPONSE = '1.3.6.1.5.5.7.48.1.1';
const OCSP_NONCE = '1.3.6.1.5.5.7.48.1.2';
const HASHES: Readonly<Record<string, CertIdHash>> = {
  '1.3.14.3.2.26': 'SHA-1',
  '2.16.840.1.101.3.4.2.1': 'SHA-256',
  '2.16.840.1.101.3.4.2.2': 'SHA-384',
  '2.16.840.1.101.3.4.2.3': 'SHA-512',
};
const SIGNATURES: Readonly<Record<string, 'SHA-256' | 'SHA-384'>> = {
  '1.2.840.10045.4.3.2': 'SHA-256',
  '1.2.840.10045.4.3.3': 'SHA-384',
};

/** @throws {DerError} it is not a response. @throws {OcspRefusal} the responder refused the request. */
export function parseOcspResponse(der: Uint8Array): OcspResponse {
  if (der.length > MAX_OCSP_BYTES) throw new DerError('an OCSP response is too large');
  const [statusValue, body, ...others] = sequence(readOne(der));
  if (others.length > 0) throw new DerError('an OCSP response has other parts');
  const status = expectTag(statusValue, TAG.enumerated).content;
  if (status.length !== 1) throw new DerError('a response status is malformed');
  if (status[0] !== 0) throw new OcspRefusal(status[0] ?? 0);
  const [type, octets, ...more] = sequence(readOne(expectTag(body, 0xa0).content));
  if (oid(type) !== BASIC_RESPONSE || more.length > 0) throw new DerError('not a basic OCSP response');
  return parseBasic(expectTag(octets, TAG.octetString).content);
}

function parseBasic(der: Uint8Array): OcspResponse {
  const [data, algorithm, signature, certificates, ...more] = sequence(readOne(der));
  if (data === undefined || more.length > 0) throw new DerError('a basic response has other parts');
  const signatureHash = SIGNATURES[oid(sequence(algorithm)[0])];
  if (signatureHash === undefined) throw new DerError('a response is signed by an algorithm that is not supported');
  const embedded = certificates === undefined ? [] : sequence(readOne(expectTag(certificates, 0xa0).content));
  if (embedded.length > MAX_CERTIFICATES) throw new DerError('a response has too many certificates');
  return {
    signed: data.whole,
    signatureHash,
    signature: bitString(signature),
    ...parseData(sequence(data)),
    certificates: embedded.map(({ whole }) => parseCertificate(whole)),
  };
}

/** [0] version, responder, producedAt, responses, [1] extensions. */
function parseData(parts: DerValue[]): Pick<OcspResponse, 'responder' | 'responses' | 'nonce'> {
  const rest = parts[0]?.tag === 0xa0 ? parts.slice(1) : parts;
  if (rest !== parts && integer(readOne(parts[0]?.content ?? new Uint8Array())) !== 0n)
    throw new DerError('a response of an unknown version');
  const [responder, producedAt, list, extensions, ...more] = rest;
  if (more.length > 0) throw new DerError('response data has other parts');
  expectTag(producedAt, TAG.generalizedTime);
  const responses = sequence(list).map(parseSingle);
  if (responses.length > MAX_RESPONSES) throw new DerError('a response has too many answers');
  return { responder: responderId(responder), responses, nonce: nonceOf(extensions) };
}

function responderId(value: DerValue | undefined): OcspResponse['responder'] {
  if (value?.tag === 0xa1) return { name: readOne(value.content, TAG.sequence).whole };
  return { keyHash: readOne(expectTag(value, 0xa2).content, TAG.octetString).content };
}

/** certID, status, thisUpdate, [0] nextUpdate, [1] extensions. */
function parseSingle(value: DerValue): SingleResponse {
  const [certId, status, thisUpdate, ...rest] = sequence(value);
  const next = rest[0]?.tag === 0xa0 ? rest.shift() : undefined;
  const extensions = rest[0]?.tag === 0xa1 ? rest.shift() : undefined;
  if (rest.length > 0) throw new DerError('an answer has other parts');
  readExtensions(extensions);
  return {
    certId: parseCertId(certId),
    status: parseStatus(status),
    thisUpdate: time(expectTag(thisUpdate, TAG.generalizedTime)),
    nextUpdate: next === undefined ? null : time(readOne(next.content, TAG.generalizedTime)),
  };
}

function parseCertId(value: DerValue | undefined): CertId {
  const [algorithm, nameHash, keyHash, serial, ...more] = sequence(value);
  if (more.length > 0) throw new DerError('a certID has other parts');
  return {
    hash: HASHES[oid(sequence(algorithm)[0])] ?? null,
    issuerNameHash: expectTag(nameHash, TAG.octetString).content,
    issuerKeyHash: expectTag(keyHash, TAG.octetString).content,
    serial: integer(serial),
  };
}

/** good [0] NULL, revoked [1] { time, [0] reason }, unknown [2] NULL; all implicit. */
function parseStatus(value: DerValue | undefined): CertStatus {
  if (value?.tag === 0x80 && value.content.length === 0) return 'good';
  if (value?.tag === 0x82 && value.content.length === 0) return 'unknown';
  const [revokedAt, reason, ...more] = children(expectTag(value, 0xa1).content);
  if (more.length > 0) throw new DerError('a revocation has other parts');
  const code = reason === undefined ? null : readOne(expectTag(reason, 0xa0).content, TAG.enumerated).content;
  if (code !== null && code.length !== 1) throw new DerError('a revocation reason is malformed');
  return { revokedAt: time(expectTag(revokedAt, TAG.generalizedTime)), reason: code?.[0] ?? null };
}

/** RFC 8954 §2.1: an OCTET STRING inside the extension's own. */
function nonceOf(extensions: DerValue | undefined, tag = 0xa1): Uint8Array | null {
  const list = extensions === undefined ? undefined : expectTag(extensions, tag);
  const nonce = readExtensions(list).get(OCSP_NONCE);
  return nonce === undefined ? null : readOne(nonce.value, TAG.octetString).content;
}

/** RFC 5280 §4.2 applies to OCSP's extensions too (RFC 6960 §4.4): a critical one that is not understood invalidates the response. */
function readExtensions(extensions: DerValue | undefined): ReturnType<typeof parseExtensions> {
  const parsed: ReturnType<typeof parseExtensions> = extensions === undefined ? new Map() : parseExtensions(extensions);
  for (const [id, { critical }] of parsed)
    if (critical && id !== OCSP_NONCE) throw new DerError(`a critical extension that is not understood (${id})`);
  return parsed;
}
