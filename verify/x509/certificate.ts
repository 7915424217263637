// Parses X.509 certificates (RFC 5280 §4.1). A parsed certificate is not trusted until verifyChain in chain.ts has verified it.
import { equal, fromBase64, toHex } from '../common/bytes.ts';
import {
  bitString,
  boolean,
  children,
  DerError,
  type DerValue,
  expectTag,
  integer,
  namedBits,
  oid,
  readOne,
  sequence,
  TAG,
  time,
} from './der.ts';

interface Extension {
  readonly critical: boolean;
  /** The content of extnValue: DER of the extension. */
  readonly value: Uint8Array;
}

/** The signed bytes and the signature, which a certificate and a revocation list have in common. */
export interface Signed {
  /** The signed part: tbsCertificate or tbsCertList. */
  readonly tbs: Uint8Array;
  /** AMD uses RSA-PSS: SHA-384 throughout, a salt of 48 bytes. */
  readonly signatureScheme: 'ECDSA' | 'RSA-PSS';
  readonly signatureHash: 'SHA-256' | 'SHA-384';
  /** DER of ECDSA-Sig-Value, or the octets of RSASSA-PSS. */
  readonly signature: Uint8Array;
}

export interface Certificate extends Signed {
  readonly der: Uint8Array;
  readonly serial: bigint;
  /** DER of the names. */
  readonly issuer: Uint8Array;
  readonly subject: Uint8Array;
  /** Empty when the subject has none. */
  readonly subjectCommonName: string;
  readonly notBefore: Date;
  readonly notAfter: Date;
  /** SubjectPublicKeyInfo. */
  readonly spki: Uint8Array;
  /** null for a key that is not on one of the two curves. */
  readonly curve: 'P-256' | 'P-384' | null;
  /** The key's bits, over which RFC 5280 and RFC 6960 compute key hashes. */
  readonly publicKeyBits: Uint8Array;
  readonly isCa: boolean;
  readonly pathLength: number | null;
  /** null: the extension is absent, every usage is allowed. */
  readonly keyUsage: ReadonlySet<string> | null;
  readonly extendedKeyUsage: readonly string[] | null;
  readonly subjectKeyId: Uint8Array | null;
  readonly authorityKeyId: Uint8Array | null;
  /** By dotted object identifier. */
  readonly extensions: ReadonlyMap<string, Extension>;
}

/** NVIDIA's certificates are near 700 bytes, its RIM signers near 1,500. */
const MAX_CERTIFICATE_BYTES = 16 * 1024;
const MAX_PEM_BYTES = 256 * 1024;
const MAX_CERTIFICATES = 16;

const ECDSA_HASHES: Readonly<Record<string, 'SHA-256' | 'SHA-384'>> = {
  '1.2.840.10045.4.3.2': 'SHA-256',
  '1.2.840.10045.4.3.3': 'SHA-384',
};
const RSASSA_PSS = '1.2.840.113549.1.1.10';
/** RFC 4055 §3.1: SHA-384, MGF1 over SHA-384, 48 bytes of salt; the default trailer may be stated. */
const PSS_SHA384 =
  /^a00f300d06096086480165030402020500a11c301a06092a864886f70d010108300d06096086480165030402020500a203020130(a303020101)?$/;
const EC_PUBLIC_KEY = '1.2.840.10045.2.1';
const CURVES: Readonly<Record<string, 'P-256' | 'P-384'>> = { '1.2.840.10045.3.1.7': 'P-256', '1.3.132.0.34': 'P-384' };
const COMMON_NAME = '2.5.4.3';
export const EXTENSION = {
  subjectKeyId: '2.5.29.14',
  keyUsage: '2.5.29.15',
  basicConstraints: '2.5.29.19',
  authorityKeyId: '2.5.29.35',
  extendedKeyUsage: '2.5.29.37',
} as const;
const KEY_USAGES = [
  'digitalSignature',
  'nonRepudiation',
  'keyEncipherment',
  'dataEncipherment',
  'keyAgreement',
  'keyCertSign',
  'cRLSign',
  'encipherOnly',
  'decipherOnly',
];

/** @throws {DerError} */
export function parseCertificate(der: Uint8Array): Certificate {
  if (der.length > MAX_CERTIFICATE_BYTES) throw new DerError('a certificate is too large');
  const [tbs, algorithm, signature, ...more] = sequence(readOne(der));
  if (more.length > 0) throw new DerError('a certificate has more than three parts');
  const parts = sequence(tbs);
  const version = parts[0]?.tag === 0xa0 ? integer(readOne(parts.shift()?.content ?? new Uint8Array())) : 0n;
  const [serial, innerAlgorithm, issuer, validity, subject, spki, ...tail] = parts;
  if (
    tbs === undefined ||
    issuer === undefined ||
    subject === undefined ||
    spki === undefined ||
    innerAlgorithm === undefined ||
    algorithm === undefined
  )
    throw new DerError('a certificate lacks a part');
  const signed = readSignature(tbs, innerAlgorithm, algorithm, signature);
  const [notBefore, notAfter] = sequence(validity);
  const extensions = readExtensions(tail, version);
  const { isCa, pathLength } = basicConstraints(extensions.get(EXTENSION.basicConstraints));
  return {
    ...signed,
    der,
    serial: integer(serial),
    issuer: expectTag(issuer, TAG.sequence).whole,
    subject: expectTag(subject, TAG.sequence).whole,
    subjectCommonName: commonName(subject),
    notBefore: time(notBefore),
    notAfter: time(notAfter),
    ...publicKey(spki),
    isCa,
    pathLength,
    keyUsage: keyUsage(extensions.get(EXTENSION.keyUsage)),
    extendedKeyUsage: extendedKeyUsage(extensions.get(EXTENSION.extendedKeyUsage)),
    subjectKeyId: octets(extensions.get(EXTENSION.subjectKeyId)),
    authorityKeyId: authorityKeyId(extensions.get(EXTENSION.authorityKeyId)),
    extensions,
  };
}

/** RFC 5280 §4.1.1.2: the algorithm is named in the signed part and again beside the signature. @throws {DerError} */
export function readSignature(
  tbs: DerValue,
  inner: DerValue,
  outer: DerValue,
  signature: DerValue | undefined,
): Signed {
  const [name, parameters] = sequence(outer);
  const id = oid(name);
  if (id !== oid(sequence(inner)[0])) throw new DerError('two signature algorithms are named');
  const isPss = id === RSASSA_PSS;
  if (isPss && !(equal(inner.whole, outer.whole) && PSS_SHA384.test(toHex(parameters?.content ?? new Uint8Array()))))
    throw new DerError('RSASSA-PSS with parameters that are not supported');
  const signatureHash = isPss ? 'SHA-384' : ECDSA_HASHES[id];
  if (signatureHash === undefined) throw new DerError('a signature algorithm that is not supported');
  const signatureScheme = isPss ? 'RSA-PSS' : 'ECDSA';
  return { tbs: tbs.whole, signatureScheme, signatureHash, signature: bitString(signature) };
}

/** Every certificate of a PEM text, in order. Text around the blocks is ignored (RFC 7468 §2). @throws {DerError} */
export function parsePem(text: string): Certificate[] {
  if (text.length > MAX_PEM_BYTES) throw new DerError('a PEM text is too large');
  const blocks = [...text.matchAll(/-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----/g)];
  if (blocks.length === 0) throw new DerError('a PEM text holds no certificate');
  if (blocks.length !== text.split('-----BEGIN ').length - 1)
    throw new DerError('a PEM text holds something else than certificates');
  if (blocks.length > MAX_CERTIFICATES) throw new DerError('a PEM text holds too many certificates');
  return blocks.map(([, base64 = '']) => {
    let der: Uint8Array;
    try {
      der = fromBase64(base64.replace(/\s+/g, ''));
    } catch (cause) {
      throw new DerError('a PEM block is not base64', { cause });
    }
    return parseCertificate(der);
  });
}

function publicKey(value: DerValue): Pick<Certificate, 'spki' | 'curve' | 'publicKeyBits'> {
  const [algorithm, bits] = sequence(value);
  const [name, parameters] = sequence(algorithm);
  const curve = oid(name) === EC_PUBLIC_KEY && parameters?.tag === TAG.oid ? (CURVES[oid(parameters)] ?? null) : null;
  return { spki: value.whole, curve, publicKeyBits: bitString(bits) };
}

/** [1] and [2] are unique identifiers, which nobody uses; [3] holds the extensions. */
function readExtensions(tail: readonly DerValue[], version: bigint): Map<string, Extension> {
  const [part, ...more] = tail;
  if (part === undefined) return new Map();
  if (part.tag !== 0xa3 || version !== 2n || more.length > 0) throw new DerError('a certificate has an unknown part');
  return parseExtensions(part);
}

/** The list of extensions inside an explicit tag, as certificates and OCSP responses carry it; each occurs once. @throws {DerError} */
export function parseExtensions(tagged: DerValue): Map<string, Extension> {
  const extensions = new Map<string, Extension>();
  for (const entry of sequence(readOne(tagged.content))) {
    const [name, ...rest] = sequence(entry);
    const critical = rest[0]?.tag === TAG.boolean ? boolean(rest.shift() as DerValue) : false;
    const [value, ...more] = rest;
    const id = oid(name);
    if (more.length > 0) throw new DerError('an extension has other parts');
    if (extensions.has(id)) throw new DerError('an extension stands twice');
    extensions.set(id, { critical, value: expectTag(value, TAG.octetString).content });
  }
  return extensions;
}

function basicConstraints(extension: Extension | undefined): { isCa: boolean; pathLength: number | null } {
  if (extension === undefined) return { isCa: false, pathLength: null };
  const parts = sequence(readOne(extension.value));
  const isCa = parts[0]?.tag === TAG.boolean ? boolean(parts.shift() as DerValue) : false;
  const pathLength = parts[0] === undefined ? null : Number(integer(parts[0]));
  return { isCa, pathLength };
}

function keyUsage(extension: Extension | undefined): Set<string> | null {
  if (extension === undefined) return null;
  const bits = namedBits(readOne(extension.value));
  return new Set(KEY_USAGES.filter((_, i) => bits[i] === true));
}

function extendedKeyUsage(extension: Extension | undefined): string[] | null {
  return extension === undefined ? null : sequence(readOne(extension.value)).map(oid);
}

function octets(extension: Extension | undefined): Uint8Array | null {
  return extension === undefined ? null : readOne(extension.value, TAG.octetString).content;
}

function authorityKeyId(extension: Extension | undefined): Uint8Array | null {
  if (extension === undefined) return null;
  return sequence(readOne(extension.value)).find((part) => part.tag === 0x80)?.content ?? null;
}

function commonName(name: DerValue): string {
  for (const set of sequence(name))
    for (const attribute of children(expectTag(set, TAG.set).content)) {
      const [type, value] = sequence(attribute);
      if (value !== undefined && oid(type) === COMMON_NAME) return new TextDecoder().decode(value.content);
    }
  return '';
}

// Certificates in messages.

/** The subject's name, quoted. */
export const label = ({ subjectCommonName }: Certificate): string =>
  `'${subjectCommonName.replace(/[^ -~]/g, '?').slice(0, 80)}'`;

export const iso = (date: Date): string => date.toISOString().replace('.000Z', 'Z');
