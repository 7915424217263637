// Makes certificates and revocation lists as AMD's and Intel's authorities do: RSASSA-PSS with SHA-384, ECDSA P-256 or P-384. Tests use
// the options of the same functions to forge.
import { constants, generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import * as der from './certificate.ts';
import { basicConstraints, name, spki } from './certificate.ts';

export interface Holder {
  readonly key: KeyObject;
  readonly publicKey: KeyObject;
  readonly subject: Buffer;
  readonly der: Buffer;
}

export interface Spec {
  readonly cn: string;
  readonly organization?: string;
  readonly ca?: boolean;
  readonly serial?: number;
  readonly notBefore?: Date;
  readonly notAfter?: Date;
  readonly extensions?: readonly Buffer[];
}

type KeyType = 'rsa' | 'P-256' | 'P-384';

const PSS_PARAMETERS = der.sequence(
  der.context(0, der.sequence(der.oid('2.16.840.1.101.3.4.2.2'), der.nil())),
  der.context(
    1,
    der.sequence(der.oid('1.2.840.113549.1.1.8'), der.sequence(der.oid('2.16.840.1.101.3.4.2.2'), der.nil())),
  ),
  der.context(2, der.integer(48)),
);
const ALGORITHMS: Readonly<Record<KeyType, Buffer>> = {
  rsa: der.sequence(der.oid('1.2.840.113549.1.1.10'), PSS_PARAMETERS),
  'P-256': der.sequence(der.oid('1.2.840.10045.4.3.2')),
  'P-384': der.sequence(der.oid('1.2.840.10045.4.3.3')),
};
const SINCE = new Date('2024-01-01T00:00:00Z');
const UNTIL = new Date('2034-01-01T00:00:00Z');

/** RSA of 2,048 bits: AMD's has 4,096, which takes seconds to make. */
export function newKeys(type: KeyType) {
  const { privateKey, publicKey } =
    type === 'rsa'
      ? generateKeyPairSync('rsa', { modulusLength: 2048 })
      : generateKeyPairSync('ec', { namedCurve: type });
  return { key: privateKey, publicKey };
}

const typeOf = (key: KeyObject): KeyType => {
  if (key.asymmetricKeyType === 'rsa') return 'rsa';
  return key.asymmetricKeyDetails?.namedCurve === 'prime256v1' ? 'P-256' : 'P-384';
};

export const nameOf = (cn: string, organization = 'SIMULATED'): Buffer => name(['CN', cn], ['O', organization]);

/** The signed structure: content, algorithm, signature. */
function signed(content: (algorithm: Buffer) => Buffer, key: KeyObject): Buffer {
  const type = typeOf(key);
  const algorithm = ALGORITHMS[type];
  const tbs = content(algorithm);
  const pss = { key, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 48 };
  const signature = sign(type === 'P-256' ? 'sha256' : 'sha384', tbs, type === 'rsa' ? pss : key);
  return der.sequence(tbs, algorithm, der.bitString(signature));
}

/** @param issuer null: self-signed. */
export function certify(spec: Spec, keys: { key: KeyObject; publicKey: KeyObject }, issuer: Holder | null): Holder {
  const { cn, organization, ca = false, serial = 1, notBefore = SINCE, notAfter = UNTIL } = spec;
  const subject = nameOf(cn, organization);
  const extensions = [...(ca ? [basicConstraints(true)] : []), ...(spec.extensions ?? [])];
  const content = (algorithm: Buffer) =>
    der.sequence(
      der.context(0, der.integer(2)),
      der.integer(serial),
      algorithm,
      issuer?.subject ?? subject,
      der.sequence(der.time(notBefore), der.time(notAfter)),
      subject,
      spki(keys.publicKey),
      ...(extensions.length > 0 ? [der.context(3, der.sequence(...extensions))] : []),
    );
  return { ...keys, subject, der: signed(content, issuer?.key ?? keys.key) };
}

interface CrlSpec {
  readonly thisUpdate: Date;
  readonly nextUpdate: Date;
  readonly serials?: readonly number[];
  /** The holder that the list names as issuer, where it is not the signer. */
  readonly issuer?: Holder;
}

export function makeCrl(signer: Holder, { thisUpdate, nextUpdate, serials = [], issuer = signer }: CrlSpec): Buffer {
  const entries = serials.map((serial) => der.sequence(der.integer(serial), der.time(thisUpdate)));
  const content = (algorithm: Buffer) =>
    der.sequence(
      der.integer(1),
      algorithm,
      issuer.subject,
      der.time(thisUpdate),
      der.time(nextUpdate),
      ...(entries.length > 0 ? [der.sequence(...entries)] : []),
    );
  return signed(content, signer.key);
}

export const pem = (...holders: readonly Holder[]): string =>
  holders
    .map(({ der: bytes }) => bytes.toString('base64').replace(/.{1,64}/g, '$&\n'))
    .map((text) => `-----BEGIN CERTIFICATE-----\n${text}-----END CERTIFICATE-----\n`)
    .join('');
