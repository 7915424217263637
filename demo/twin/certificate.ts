// Makes X.509 v3 certificates (RFC 5280) with ECDSA P-384 / SHA-384, the only algorithms of NVIDIA's device and RIM chains.
import { createHash, generateKeyPairSync, type KeyObject, sign, X509Certificate } from 'node:crypto';

// A small DER writer (ITU-T X.690): definite lengths, shortest form, the universal types that X.509 and OCSP need.

/** One tag-length-value. `tag` is the identifier octet itself; tags above 30 are never needed here. */
function tlv(tag: number, ...contents: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(contents);
  return Buffer.concat([Buffer.of(tag), lengthOctets(content.length), content]);
}

function lengthOctets(length: number): Buffer {
  if (length < 0x80) return Buffer.of(length);
  if (length < 0x1_00) return Buffer.of(0x81, length);
  if (length < 0x1_00_00) return Buffer.of(0x82, length >> 8, length & 0xff);
  throw new RangeError(`no DER value here is as long as ${length} bytes`);
}

export const sequence = (...items: readonly Uint8Array[]): Buffer => tlv(0x30, ...items);
export const set = (...items: readonly Uint8Array[]): Buffer => tlv(0x31, ...items);
export const octetString = (bytes: Uint8Array): Buffer => tlv(0x04, bytes);
export const utf8String = (text: string): Buffer => tlv(0x0c, Buffer.from(text, 'utf8'));
export const printableString = (text: string): Buffer => tlv(0x13, Buffer.from(text, 'ascii'));
export const boolean = (value: boolean): Buffer => tlv(0x01, Buffer.of(value ? 0xff : 0));
export const nil = (): Buffer => tlv(0x05);
/** `[n]` around whole values (EXPLICIT), or in place of a constructed type's own tag (IMPLICIT). */
export const context = (n: number, ...items: readonly Uint8Array[]): Buffer => tlv(0xa0 | n, ...items);
/** `[n]` in place of a primitive type's own tag (IMPLICIT). */
export const contextPrimitive = (n: number, bytes: Uint8Array): Buffer => tlv(0x80 | n, bytes);

/** A non-negative INTEGER from its big-endian bytes (X.690 §8.3). */
export function integer(magnitude: Uint8Array | number): Buffer {
  let bytes = typeof magnitude === 'number' ? Buffer.of(magnitude) : Buffer.from(magnitude);
  while (bytes.length > 1 && bytes[0] === 0) bytes = bytes.subarray(1);
  return tlv(0x02, (bytes[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.of(0), bytes]) : bytes);
}

/** BIT STRING of whole bytes, or of named bits when `unused` low bits of the last byte are not part of it (§8.6). */
export const bitString = (bytes: Uint8Array, unused = 0): Buffer => tlv(0x03, Buffer.of(unused), bytes);

/** OBJECT IDENTIFIER from its dotted form (§8.19). */
export function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number);
  return tlv(0x06, Buffer.from([first * 40 + second, ...rest].flatMap(base128)));
}

function base128(arc: number): number[] {
  const digits = [arc % 128];
  for (let left = Math.floor(arc / 128); left > 0; left = Math.floor(left / 128)) digits.unshift(0x80 | (left % 128));
  return digits;
}

/** ENUMERATED, below 128. */
export const enumerated = (value: number): Buffer => tlv(0x0a, Buffer.of(value));

/** GeneralizedTime in whole seconds, UTC (RFC 5280 §4.1.2.5.2). */
export const generalizedTime = (date: Date): Buffer => tlv(0x18, Buffer.from(`${compact(date)}Z`, 'ascii'));

/** UTCTime through 2049, GeneralizedTime from 2050 (RFC 5280 §4.1.2.5). */
export function time(date: Date): Buffer {
  if (date.getUTCFullYear() >= 2050) return generalizedTime(date);
  return tlv(0x17, Buffer.from(`${compact(date).slice(2)}Z`, 'ascii'));
}

const compact = (date: Date): string => date.toISOString().slice(0, 19).replace(/[-:T]/g, '');

// The X.509 extensions that the genuine device, RIM and OCSP responder certificates carry.

export function extension(id: string, value: Buffer, critical = false): Buffer {
  return sequence(oid(id), ...(critical ? [boolean(true)] : []), octetString(value));
}

/** RFC 5280 §4.2.1.9. `ca: false` is the empty sequence. */
export function basicConstraints(ca: boolean, pathLength?: number): Buffer {
  const path = pathLength === undefined ? [] : [integer(pathLength)];
  return extension('2.5.29.19', sequence(...(ca ? [boolean(true), ...path] : [])), true);
}

/** §4.2.1.3: the named bits as a DER BIT STRING, trailing zeros cut. */
const KEY_USAGE = {
  digitalSignature: bitString(Buffer.of(0x80), 7),
  keyCertSign: bitString(Buffer.of(0x04), 2),
  keyCertSignAndCrlSign: bitString(Buffer.of(0x06), 1),
} as const;

export const keyUsage = (use: keyof typeof KEY_USAGE): Buffer => extension('2.5.29.15', KEY_USAGE[use], true);

/** §4.2.1.2 */
const subjectKeyIdentifier = (id: Buffer): Buffer => extension('2.5.29.14', octetString(id));

/** §4.2.1.1 */
const authorityKeyIdentifier = (id: Buffer): Buffer => extension('2.5.29.35', sequence(contextPrimitive(0, id)));

const uri = (text: string): Buffer => contextPrimitive(6, Buffer.from(text, 'ascii'));

/** §4.2.1.13 */
export const crlDistributionPoint = (url: string): Buffer =>
  extension('2.5.29.31', sequence(sequence(context(0, context(0, uri(url))))));

/** §4.2.2.1, the OCSP access method. */
export const ocspAccess = (url: string): Buffer =>
  extension('1.3.6.1.5.5.7.1.1', sequence(sequence(oid('1.3.6.1.5.5.7.48.1'), uri(url))));

/** DMTF DSP0274 (SPDM), subjectAltName of a leaf certificate: otherName of type id-DMTF-device-info, `manufacturer:product:serial`. */
export const deviceInfo = (text: string): Buffer =>
  extension('2.5.29.17', sequence(context(0, oid('1.3.6.1.4.1.412.274.1'), context(0, utf8String(text)))));

/** TCG DICE's composite device id as Hopper writes it: version 1, the issuing layer's public key, the firmware's SHA-384. */
export const firmwareId = (issuerSpki: Buffer, fwid: Uint8Array): Buffer =>
  extension(
    '2.23.133.5.4.1',
    sequence(integer(1), issuerSpki, sequence(oid('2.16.840.1.101.3.4.2.2'), octetString(fwid))),
  );

export interface Certificate {
  readonly der: Buffer;
  readonly pem: string;
  /** The subject as DER, used in issuer names and OCSP certIDs. */
  readonly subject: Buffer;
  /** Big-endian, as in the certificate. */
  readonly serial: Buffer;
  readonly publicKey: KeyObject;
}

/** A certificate with its private key. */
export interface Holder {
  readonly certificate: Certificate;
  readonly key: KeyObject;
}

export interface CertificateSpec {
  readonly subject: Buffer;
  readonly serial: Buffer;
  readonly notBefore: Date;
  readonly notAfter: Date;
  /** Before the key identifiers, in this order. */
  readonly extensions: readonly Buffer[];
  /** After the key identifiers. */
  readonly lateExtensions?: readonly Buffer[];
  /** In place of the identifier of the issuer's key. */
  readonly authorityKeyId?: Buffer;
}

export const ECDSA_WITH_SHA384 = sequence(oid('1.2.840.10045.4.3.3'));

export function newKey(): { key: KeyObject; publicKey: KeyObject } {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' });
  return { key: privateKey, publicKey };
}

/** SubjectPublicKeyInfo as DER. */
export const spki = (publicKey: KeyObject): Buffer => publicKey.export({ type: 'spki', format: 'der' });

/** The uncompressed point of a P-384 key: 0x04, x, y: the content of its BIT STRING. */
export const point = (publicKey: KeyObject): Buffer => spki(publicKey).subarray(-97);

/** SHA-1 of the public key's bits (RFC 5280 §4.2.1.2, method 1): an identifier, not a protection. */
export const keyIdentifier = (publicKey: KeyObject): Buffer => createHash('sha1').update(point(publicKey)).digest();

/** Issues for `publicKey`; without an issuer the certificate is self-signed with `selfKey`. */
export function issue(
  spec: CertificateSpec,
  publicKey: KeyObject,
  issuer: Holder | { readonly selfKey: KeyObject },
): Certificate {
  const self = 'selfKey' in issuer;
  const issuerName = self ? spec.subject : issuer.certificate.subject;
  const issuerKeyId = spec.authorityKeyId ?? keyIdentifier(self ? publicKey : issuer.certificate.publicKey);
  const tbs = sequence(
    context(0, integer(2)),
    integer(spec.serial),
    ECDSA_WITH_SHA384,
    issuerName,
    sequence(time(spec.notBefore), time(spec.notAfter)),
    spec.subject,
    spki(publicKey),
    context(
      3,
      sequence(
        ...spec.extensions,
        subjectKeyIdentifier(keyIdentifier(publicKey)),
        authorityKeyIdentifier(issuerKeyId),
        ...(spec.lateExtensions ?? []),
      ),
    ),
  );
  const signature = sign('sha384', tbs, self ? issuer.selfKey : issuer.key);
  return fromDer(sequence(tbs, ECDSA_WITH_SHA384, bitString(signature)), spec.subject, spec.serial);
}

function fromDer(bytes: Buffer, subject: Buffer, serial: Buffer): Certificate {
  const parsed = new X509Certificate(bytes);
  return { der: bytes, pem: parsed.toString(), subject, serial, publicKey: parsed.publicKey };
}

/** A Name: attributes in the order given, each in an RDN of its own, with the string types of the genuine certificates. */
export function name(...attributes: readonly (readonly [keyof typeof ATTRIBUTES, string])[]): Buffer {
  const rdns = attributes.map(([type, value]) => {
    const { id, string } = ATTRIBUTES[type];
    return set(sequence(oid(id), string(value)));
  });
  return sequence(...rdns);
}

const ATTRIBUTES = {
  CN: { id: '2.5.4.3', string: utf8String },
  serialNumber: { id: '2.5.4.5', string: printableString },
  C: { id: '2.5.4.6', string: printableString },
  O: { id: '2.5.4.10', string: utf8String },
} as const;
