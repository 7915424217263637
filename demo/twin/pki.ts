// The twin's test root: made at the first start and kept in a folder, so that its signatures still verify after a restart.

import { createPrivateKey, type KeyObject, randomBytes, X509Certificate } from 'node:crypto';
import { link, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import * as ext from './certificate.ts';
import {
  basicConstraints,
  type Certificate,
  type CertificateSpec,
  type Holder,
  issue,
  keyIdentifier,
  keyUsage,
  name,
  newKey,
  spki,
} from './certificate.ts';
import { FWID, TWIN } from './identity.ts';

/** The kept root cannot be used. The message is one line that names the file. */
export class RootError extends Error {
  override readonly name = 'RootError';
}

/** Only the certificate, for clients to trust. */
export const ROOT_FILE = 'root.pem';
/**
 * The private key *and* the certificate in one file, because one file can be published atomically: the first process to link
 * it has made the root, and `root.pem` is only ever a copy of its certificate.
 */
export const KEY_FILE = 'root.key';

export const DEVICE_ROOT = 'Countersign SIMULATED Device Identity CA';
const subjectOf = (root: string) => name(['CN', root], ['O', TWIN.organization]);

export const NOT_BEFORE = new Date('2022-01-01T00:00:00Z');
/** "No well-defined expiration date" (RFC 5280 §4.1.2.5), as in the genuine device certificates. */
export const NOT_AFTER = new Date('9999-12-31T23:59:59Z');

/** Reads the root of that name kept in `dir`, or makes one there. Safe to call from several processes at once. @throws {RootError} */
export async function loadOrMakeRoot(dir: string, root: string = DEVICE_ROOT): Promise<Holder> {
  const keyFile = join(dir, KEY_FILE);
  const rootFile = join(dir, ROOT_FILE);
  try {
    // The socket's folder, by default: others may not write in it, whatever the umask.
    await mkdir(dirname(dir), { recursive: true, mode: 0o750 });
    await mkdir(dir, { mode: 0o700 }).catch(unless('EEXIST'));
    if ((await read(keyFile)) === undefined) {
      // The key is always written before its copy: where a copy has no key, also at a second look, the key was lost.
      if ((await read(rootFile)) !== undefined && (await read(keyFile)) === undefined)
        throw new RootError(`${rootFile} stands without its key ${keyFile}; remove it to make a new root`);
      await publish(keyFile, toText(makeRoot(root)));
    }
    const kept = parse((await read(keyFile)) ?? '', keyFile, root);
    const copy = await read(rootFile);
    if (copy === undefined) await replace(rootFile, kept.certificate.pem);
    else if (!sameCertificate(copy, kept))
      throw new RootError(`${rootFile} is not the certificate of the key in ${keyFile}`);
    return kept;
  } catch (cause) {
    if (cause instanceof RootError) throw cause;
    throw new RootError(`cannot keep the simulated root in ${dir}: ${(cause as NodeJS.ErrnoException).code}`, {
      cause,
    });
  }
}

/** A root that is not saved. */
export function makeRoot(root: string): Holder {
  const { key, publicKey } = newKey();
  const extensions = [basicConstraints(true), keyUsage('keyCertSignAndCrlSign')];
  const spec = {
    subject: subjectOf(root),
    serial: randomSerial(),
    notBefore: NOT_BEFORE,
    notAfter: NOT_AFTER,
    extensions,
  };
  return { key, certificate: issue(spec, publicKey, { selfKey: key }) };
}

const toText = ({ key, certificate }: Holder): string =>
  `${key.export({ type: 'pkcs8', format: 'pem' })}${certificate.pem}`;

/** 16 bytes, positive and not starting with zero (RFC 5280 §4.1.2.2). */
export function randomSerial(): Buffer {
  const serial = randomBytes(16);
  serial[0] = positive(serial[0]);
  return serial;
}

/** A first byte that keeps an INTEGER positive and at its full length. */
export const positive = (byte = 0): number => (byte & 0x3f) | 0x40;

function parse(text: string, file: string, root: string): Holder {
  let key: KeyObject;
  let certificate: X509Certificate;
  try {
    key = createPrivateKey(text);
    certificate = new X509Certificate(text.slice(text.indexOf('-----BEGIN CERTIFICATE-----')));
  } catch (cause) {
    throw new RootError(`${file} is damaged: it must hold a private key and a certificate in PEM`, { cause });
  }
  if (key.asymmetricKeyDetails?.namedCurve !== 'secp384r1')
    throw new RootError(`${file} holds a key that is not P-384`);
  if (!certificate.checkPrivateKey(key)) throw new RootError(`${file} holds a certificate of another key`);
  const { subject } = certificate;
  const isRoot = subject === `CN=${root}\nO=${TWIN.organization}` && certificate.checkIssued(certificate);
  if (!isRoot || !certificate.verify(certificate.publicKey))
    throw new RootError(`${file} holds a certificate that is not the root '${root}'`);
  const { raw, publicKey } = certificate;
  const serial = Buffer.from(certificate.serialNumber, 'hex');
  return { key, certificate: { der: raw, pem: certificate.toString(), subject: subjectOf(root), serial, publicKey } };
}

function sameCertificate(pem: string, root: Holder): boolean {
  try {
    return new X509Certificate(pem).raw.equals(root.certificate.der);
  } catch {
    return false;
  }
}

async function read(file: string): Promise<string | undefined> {
  return readFile(file, 'utf8').catch(unless('ENOENT'));
}

/** The text in `file`; where there is none, the result of `make`, which is saved there. */
export async function keptOrMade(file: string, make: () => string): Promise<string> {
  const kept = await read(file);
  if (kept !== undefined) return kept;
  await publish(file, make());
  return (await read(file)) ?? '';
}

/** Creates `file` atomically, or leaves an existing one as it is. */
async function publish(file: string, text: string): Promise<void> {
  await throughTemporary(file, text, 0o600, (temporary) => link(temporary, file).catch(unless('EEXIST')));
}

export async function replace(file: string, text: string): Promise<void> {
  await throughTemporary(file, text, 0o644, (temporary) => rename(temporary, file));
}

async function throughTemporary(file: string, text: string, mode: number, put: (temporary: string) => Promise<void>) {
  const temporary = `${file}.${randomBytes(6).toString('hex')}`;
  try {
    await writeFile(temporary, text, { mode, flag: 'wx', flush: true });
    await put(temporary);
  } finally {
    await rm(temporary, { force: true });
  }
}

function unless(code: string): (error: NodeJS.ErrnoException) => undefined {
  return (error) => {
    if (error.code === code) return undefined;
    throw error;
  };
}

// One simulated device: the five-certificate chain of a genuine one, leaf first, made at start under the kept root.

/** How a chip's certificates are named, and how its leaf names the firmware. */
export interface Chip {
  /** `GH100`. */
  readonly name: string;
  readonly identity: string;
  readonly provisioner: string;
  readonly brom: string;
  readonly leaf: string;
  readonly firmwareId: (issuerSpki: Buffer, fwid: Uint8Array) => Buffer;
}

export const GH100: Chip = {
  name: 'GH100',
  identity: 'SIMULATED GH100 Identity',
  provisioner: 'SIMULATED GH100 Provisioner ICA 1',
  brom: 'SIMULATED GH100 A01 GSP BROM',
  leaf: 'SIMULATED GH100 A01 GSP FMC LF',
  firmwareId: ext.firmwareId,
};

/** The levels between root and devices, with their keys: they issue certificates, and OCSP responses about them. */
export interface Issuers {
  readonly chip: Chip;
  readonly root: Holder;
  readonly identity: Holder;
  readonly provisioner: Holder;
}

export interface Device {
  /** Leaf, boot ROM, provisioner, identity, root. */
  readonly chain: readonly [Certificate, Certificate, Certificate, Certificate, Certificate];
  /** The issuer of the leaf. */
  readonly brom: Holder;
  /** Signs reports. */
  readonly key: KeyObject;
  /** `nvtrust` reports the same: the second certificate's common name as `hwmodel`, the leaf's serial in decimal as `ueid`. */
  readonly hwmodel: string;
  readonly ueid: string;
}

const validity = { notBefore: NOT_BEFORE, notAfter: NOT_AFTER };
const O = ['O', TWIN.organization] as const;
const C = ['C', TWIN.country] as const;

export function makeIssuers(root: Holder, chip: Chip = GH100): Issuers {
  const identity = authority(root, name(['CN', chip.identity], O), 'l1-root');
  const ica = name(['CN', chip.provisioner], O, C);
  return { chip, root, identity, provisioner: authority(identity, ica, `l2-${chip.name.toLowerCase()}`) };
}

function authority(issuer: Holder, subject: Buffer, crl: string): Holder {
  const extensions = [
    ext.basicConstraints(true),
    ext.keyUsage('keyCertSignAndCrlSign'),
    ext.crlDistributionPoint(`${TWIN.crl_url}/${crl}.crl`),
    ext.ocspAccess(TWIN.ocsp_url),
  ];
  const { key, publicKey } = newKey();
  const spec = { subject, serial: randomSerial(), ...validity, extensions };
  return { key, certificate: issue(spec, publicKey, issuer) };
}

/**
 * `fwid`: the firmware that the leaf names, for vectors whose report names another. `brom`: that of an existing device, which then has
 * a second leaf.
 */
export function makeDevice(
  issuers: Issuers,
  options: { readonly fwid?: Uint8Array; readonly brom?: Holder } = {},
): Device {
  const { chip } = issuers;
  const brom = options.brom ?? makeBrom(issuers.provisioner, chip);
  const leaf = makeLeaf(brom, options.fwid ?? FWID, chip);
  const { root, identity, provisioner } = issuers;
  return {
    chain: [leaf.certificate, brom.certificate, provisioner.certificate, identity.certificate, root.certificate],
    brom,
    key: leaf.key,
    hwmodel: chip.brom,
    ueid: BigInt(`0x${leaf.certificate.serial.toString('hex')}`).toString(),
  };
}

function makeBrom(provisioner: Holder, chip: Chip): Holder {
  const serial = Buffer.concat([Buffer.of(0x41), randomBytes(8)]);
  const extensions = [ext.basicConstraints(true), ext.keyUsage('keyCertSign')];
  const { key, publicKey } = newKey();
  const spec: CertificateSpec = { subject: numbered(serial, chip.brom), serial, ...validity, extensions };
  return { key, certificate: issue(spec, publicKey, provisioner) };
}

/** The leaf's serial is its own key identifier, its first byte made positive. */
function makeLeaf(brom: Holder, fwid: Uint8Array, chip: Chip): Holder {
  const { key, publicKey } = newKey();
  const serial = keyIdentifier(publicKey);
  serial[0] = positive(serial[0]);
  const spec: CertificateSpec = {
    subject: numbered(serial, chip.leaf),
    serial,
    ...validity,
    extensions: [ext.keyUsage('digitalSignature')],
    lateExtensions: [
      ext.deviceInfo(`SIMULATED:${chip.name}:${randomBytes(8).toString('hex').toUpperCase()}`),
      chip.firmwareId(spki(brom.certificate.publicKey), fwid),
    ],
  };
  return { key, certificate: issue(spec, publicKey, brom) };
}

function numbered(serial: Buffer, commonName: string): Buffer {
  return name(['serialNumber', serial.toString('hex').toUpperCase()], C, O, ['CN', commonName]);
}

/** Leaf first, as `certificate_chain` carries it. */
export const chainPem = (device: Device): string => device.chain.map(({ pem }) => pem).join('');
