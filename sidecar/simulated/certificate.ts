// Makes X.509 v3 certificates (RFC 5280) with ECDSA P-384 / SHA-384, the only algorithms of NVIDIA's device and RIM chains.
import { createHash, generateKeyPairSync, type KeyObject, sign, X509Certificate } from 'node:crypto';
import * as der from './der.ts';
import { authorityKeyIdentifier, subjectKeyIdentifier } from './extensions.ts';

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
