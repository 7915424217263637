// Makes X.509 v3 certificates (RFC 5280) with ECDSA P-384 / SHA-384, the only algorithms of NVIDIA's device and RIM chains.
import { createHash, generateKeyPairSync, type KeyObject, sign, X509Certificate } from 'node:crypto';
import * as der from './der.ts';

// The X.509 extensions that the genuine device, RIM and OCSP responder certificates carry.

export function extension(id: string, value: Buffer, critical = false): Buffer {
  return der.sequence(der.oid(id), ...(critical ? [der.boolean(true)] : []), der.octetString(value));
}

/** RFC 5280 §4.2.1.9. `ca: false` is the empty sequence. */
export function basicConstraints(ca: boolean, pathLength?: number): Buffer {
  const path = pathLength === undefined ? [] : [der.integer(pathLength)];
  return extension('2.5.29.19', der.sequence(...(ca ? [der.boolean(true), ...path] : [])), true);
}

/** §4.2.1.3: the named bits as a DER BIT STRING, trailing zeros cut. */
const KEY_USAGE = {
  digitalSignature: der.bitString(Buffer.of(0x80), 7),
  keyCertSign: der.bitString(Buffer.of(0x04), 2),
  keyCertSignAndCrlSign: der.bitString(Buffer.of(0x06), 1),
} as const;

export const keyUsage = (use: keyof typeof KEY_USAGE): Buffer => extension('2.5.29.15', KEY_USAGE[use], true);

/** §4.2.1.2 */
export const subjectKeyIdentifier = (id: Buffer): Buffer => extension('2.5.29.14', der.octetString(id));

/** §4.2.1.1 */
export const authorityKeyIdentifier = (id: Buffer): Buffer =>
  extension('2.5.29.35', der.sequence(der.contextPrimitive(0, id)));

const uri = (text: string): Buffer => der.contextPrimitive(6, Buffer.from(text, 'ascii'));

/** §4.2.1.13 */
export const crlDistributionPoint = (url: string): Buffer =>
  extension('2.5.29.31', der.sequence(der.sequence(der.context(0, der.context(0, uri(url))))));

/** §4.2.2.1, the OCSP access method. */
export const ocspAccess = (url: string): Buffer =>
  extension('1.3.6.1.5.5.7.1.1', der.sequence(der.sequence(der.oid('1.3.6.1.5.5.7.48.1'), uri(url))));

/** §4.2.1.12: a delegated OCSP responder (RFC 6960 §4.2.2.2). */
export const ocspSigning = (): Buffer => extension('2.5.29.37', der.sequence(der.oid('1.3.6.1.5.5.7.3.9')), true);

/** RFC 6960 §4.2.2.2.1 */
export const ocspNoCheck = (): Buffer => extension('1.3.6.1.5.5.7.48.1.5', der.nil());

/** DMTF DSP0274 (SPDM), subjectAltName of a leaf certificate: otherName of type id-DMTF-device-info, `manufacturer:product:serial`. */
export const deviceInfo = (text: string): Buffer =>
  extension(
    '2.5.29.17',
    der.sequence(der.context(0, der.oid('1.3.6.1.4.1.412.274.1'), der.context(0, der.utf8String(text)))),
  );

/** TCG DICE's composite device id as Hopper writes it: version 1, the issuing layer's public key, the firmware's SHA-384. */
export const firmwareId = (issuerSpki: Buffer, fwid: Uint8Array): Buffer =>
  extension(
    '2.23.133.5.4.1',
    der.sequence(der.integer(1), issuerSpki, der.sequence(der.oid('2.16.840.1.101.3.4.2.2'), der.octetString(fwid))),
  );

/** DiceTcbInfo (TCG DICE Attestation Architecture §6.1.1) as Blackwell writes it: two firmware ids, the second left zero. */
export function tcbInfo(model: string, fwid: Uint8Array): Buffer {
  const one = (digest: Uint8Array) => der.sequence(der.oid('2.16.840.1.101.3.4.2.2'), der.octetString(digest));
  return extension(
    '2.23.133.5.4.1.1',
    der.sequence(
      der.contextPrimitive(0, Buffer.from('SIMULATED')),
      der.contextPrimitive(1, Buffer.from(model)),
      der.contextPrimitive(2, Buffer.from('01')),
      der.contextPrimitive(3, Buffer.of(1)),
      der.contextPrimitive(4, Buffer.of(0)),
      der.contextPrimitive(5, Buffer.of(0)),
      der.context(6, one(fwid), one(Buffer.alloc(fwid.length))),
      der.contextPrimitive(7, Buffer.from('0080000000', 'hex')),
      der.contextPrimitive(8, Buffer.of(0x1c)),
      der.contextPrimitive(9, Buffer.of(0)),
    ),
  );
}

export interface Certificate {
  readonly der: Buffer;
  readonly pem: string;
  /** The subject as DER: what an issuer's name and an OCSP certID are made of. */
  readonly subject: Buffer;
  /** Big-endian, as in the certificate. */
  readonly serial: Buffer;
  readonly publicKey: KeyObject;
}

/** A certificate together with the key that it speaks for. */
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

export const ECDSA_WITH_SHA384 = der.sequence(der.oid('1.2.840.10045.4.3.3'));

export function newKey(): { key: KeyObject; publicKey: KeyObject } {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-384' });
  return { key: privateKey, publicKey };
}

/** The subject public key info, whole. */
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
  const tbs = der.sequence(
    der.context(0, der.integer(2)),
    der.integer(spec.serial),
    ECDSA_WITH_SHA384,
    issuerName,
    der.sequence(der.time(spec.notBefore), der.time(spec.notAfter)),
    spec.subject,
    spki(publicKey),
    der.context(
      3,
      der.sequence(
        ...spec.extensions,
        subjectKeyIdentifier(keyIdentifier(publicKey)),
        authorityKeyIdentifier(issuerKeyId),
        ...(spec.lateExtensions ?? []),
      ),
    ),
  );
  const signature = sign('sha384', tbs, self ? issuer.selfKey : issuer.key);
  return fromDer(der.sequence(tbs, ECDSA_WITH_SHA384, der.bitString(signature)), spec.subject, spec.serial);
}

function fromDer(bytes: Buffer, subject: Buffer, serial: Buffer): Certificate {
  const parsed = new X509Certificate(bytes);
  return { der: bytes, pem: parsed.toString(), subject, serial, publicKey: parsed.publicKey };
}

/** A Name: attributes in the order given, each in an RDN of its own, with the string types of the genuine certificates. */
export function name(...attributes: readonly (readonly [keyof typeof ATTRIBUTES, string])[]): Buffer {
  const rdns = attributes.map(([type, value]) => {
    const { id, string } = ATTRIBUTES[type];
    return der.set(der.sequence(der.oid(id), string(value)));
  });
  return der.sequence(...rdns);
}

const ATTRIBUTES = {
  CN: { id: '2.5.4.3', string: der.utf8String },
  serialNumber: { id: '2.5.4.5', string: der.printableString },
  C: { id: '2.5.4.6', string: der.printableString },
  O: { id: '2.5.4.10', string: der.utf8String },
} as const;
