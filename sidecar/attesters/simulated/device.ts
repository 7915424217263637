// One simulated device: the five-certificate chain of a genuine one, leaf first, made at start under the kept root.
import { type KeyObject, randomBytes } from 'node:crypto';
import * as ext from './certificate.ts';
import {
  type Certificate,
  type CertificateSpec,
  type Holder,
  issue,
  keyIdentifier,
  name,
  newKey,
  spki,
} from './certificate.ts';
import { NOT_AFTER, NOT_BEFORE, positive, randomSerial } from './pki.ts';
import { FWID, TWIN } from './twin.ts';

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

/** The levels between root and devices, with their keys: they issue certificates, and OCSP answers about them. */
export interface Issuers {
  readonly chip: Chip;
  readonly root: Holder;
  readonly identity: Holder;
  readonly provisioner: Holder;
}

export interface Device {
  /** Leaf, boot ROM, provisioner, identity, root. */
  readonly chain: readonly [Certificate, Certificate, Certificate, Certificate, Certificate];
  /** Issued the leaf. */
  readonly brom: Holder;
  /** Signs reports. */
  readonly key: KeyObject;
  /** What `nvtrust` reports as `hwmodel` and `ueid`: the second certificate's common name, the leaf's serial in decimal. */
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
 * `fwid`: what the leaf's extension names, for vectors whose report names another. `brom`: of a device that there is, which
 * then has a second leaf.
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
