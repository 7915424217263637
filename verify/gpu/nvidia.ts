// NVIDIA's specifics: the pinned roots, the device that a chain identifies, the names of its RIMs, and its certified firmware id.

import { toHex } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import { type Certificate, parsePem } from '../x509/certificate.ts';
import { children, DerError, type DerValue, expectTag, oid, readOne, sequence, TAG } from '../x509/der.ts';
import type { OpaqueData } from './spdm/opaque.ts';

// The identity of a device, by its certificates and the opaque data that it signed.

/** As NVIDIA's evidence files name them. */
type Architecture = 'HOPPER' | 'BLACKWELL' | 'LS10';

export interface DeviceIdentity {
  readonly kind: 'gpu' | 'switch';
  readonly arch: Architecture;
  /** `GH100`, `GB100`, `LS10`. */
  readonly chip: string;
  /** The common name of the certificate above the leaf, as NVIDIA's verifiers report it: `GH100 A01 GSP BROM`. */
  readonly model: string;
  /** The leaf's serial number in decimal: `ueid` in NVIDIA's tokens. */
  readonly ueid: string;
}

/** LS10 reports name no project; NVIDIA's verifiers use these values. */
const LS10_BOARD = { project: '5612', projectSku: '0002', chipSku: '890' } as const;

// The names of documents in NVIDIA's RIM service, built from the signed opaque data.

interface BiosIdParts {
  readonly project: string;
  readonly projectSku: string;
  readonly chipSku: string;
  /** Five pairs of hexadecimal digits: `96.00.9F.00.01`. */
  readonly version: string;
}

/** `NV_GPU_DRIVER_GH100_550.90.07` on Hopper; `NV_GPU_CC_DRIVER_…` with the chip that the report names since Blackwell. */
function driverRimId(arch: string, chip: string, version: string): string {
  return arch === 'HOPPER' ? `NV_GPU_DRIVER_GH100_${version}` : `NV_GPU_CC_DRIVER_${chip}_${version}`;
}

/** `NV_GPU_VBIOS_1010_0200_882_96009F0001` */
function vbiosRimId(parts: BiosIdParts): string {
  return `NV_GPU_VBIOS_${biosId(parts)}`;
}

/** `NV_SWITCH_BIOS_5612_0002_890_9610550001` */
function switchBiosRimId(parts: BiosIdParts): string {
  return `NV_SWITCH_BIOS_${biosId(parts)}`;
}

function biosId({ project, projectSku, chipSku, version }: BiosIdParts): string {
  return [project, projectSku, chipSku, version.replaceAll('.', '')].join('_').toUpperCase();
}

// The device that a chain identifies.

/** null for an unknown chip. @param path leaf first, as verifyChain returned it. */
function identify(path: readonly Certificate[]): DeviceIdentity | null {
  const [leaf, above] = path;
  if (leaf === undefined || above === undefined) return null;
  const chip = /\b(GH1|GB[12]|LS_?1)\d+\b/.exec(leaf.subjectCommonName)?.[0].replace('_', '');
  if (chip === undefined) return null;
  const arch = chip.startsWith('GH') ? 'HOPPER' : chip.startsWith('GB') ? 'BLACKWELL' : 'LS10';
  const kind = arch === 'LS10' ? 'switch' : 'gpu';
  return { kind, arch, chip, model: above.subjectCommonName, ueid: leaf.serial.toString() };
}

/**
 * @param path verified, leaf first. @param arch as the evidence states it.
 * @throws {CheckFailure} chain_invalid where the leaf's key is not that of such a device.
 */
export function deviceOf(path: readonly Certificate[], arch: string): DeviceIdentity {
  if (!isDeviceKey(path[0])) throw new CheckFailure('chain_invalid', 'the leaf certificate is not one of a device');
  const identity = identify(path);
  if (identity === null)
    throw new CheckFailure('chain_invalid', 'the certificates are of no GPU or switch that is known');
  if (identity.arch !== arch.toUpperCase())
    throw new CheckFailure('chain_invalid', `the evidence says ${arch}, the certificates are of a ${identity.chip}`);
  return identity;
}

/** id-DMTF-eku-responder-auth (DSP0274): the one purpose that a device's key may be limited to. */
const RESPONDER_AUTH = '1.3.6.1.4.1.412.274.3';

/** NVIDIA's authorities certify OCSP responders too, so a chain up to the root does not prove a device. */
function isDeviceKey(leaf: Certificate | undefined): boolean {
  return leaf !== undefined && !leaf.isCa && (leaf.extendedKeyUsage?.includes(RESPONDER_AUTH) ?? true);
}

/** The names of the device's RIMs, from the signed opaque data; null where it lacks a part of them. */
export function rimIds(identity: DeviceIdentity, opaque: OpaqueData): { driver: string | null; vbios: string } | null {
  const { vbiosVersion: version, driverVersion, project, projectSku, chipSku } = opaque;
  if (version === null) return null;
  if (identity.kind === 'switch') return { driver: null, vbios: switchBiosRimId({ ...LS10_BOARD, version }) };
  if (driverVersion === null || project === null || projectSku === null || chipSku === null) return null;
  return {
    driver: driverRimId(identity.arch, opaque.chip ?? identity.chip, driverVersion),
    vbios: vbiosRimId({ project, projectSku, chipSku, version }),
  };
}

// The firmware id in a leaf certificate: the digest of the firmware for which the boot ROM certified the signing key.

/** Hopper and LS10: SEQUENCE { version, SubjectPublicKeyInfo, FWID }. */
const COMPOSITE_DEVICE_ID = '2.23.133.5.4.1';
/** Blackwell: DiceTcbInfo (TCG DICE Attestation Architecture §6.1.1), with its FWIDs in the member [6]. */
const TCB_INFO = '2.23.133.5.4.1.1';
const FWIDS = 0xa6;

/** The digest as lowercase hex; null where the certificate has no such extension. @throws {DerError} */
export function fwidOf(leaf: Certificate): string | null {
  const tcbInfo = leaf.extensions.get(TCB_INFO);
  if (tcbInfo !== undefined) {
    const fwids = sequence(readOne(tcbInfo.value)).find(({ tag }) => tag === FWIDS);
    if (fwids === undefined) throw new DerError('the TCB info names no firmware');
    // The first is the firmware's; Blackwell leaves the second zero.
    return digestOf(children(fwids.content)[0]);
  }
  const composite = leaf.extensions.get(COMPOSITE_DEVICE_ID);
  return composite === undefined ? null : digestOf(sequence(readOne(composite.value))[2]);
}

/** FWID ::= SEQUENCE { hashAlg OBJECT IDENTIFIER, digest OCTET STRING } */
function digestOf(fwid: DerValue | undefined): string {
  const [algorithm, digest] = sequence(fwid);
  oid(algorithm);
  return toHex(expectTag(digest, TAG.octetString).content);
}

// NVIDIA's two roots, pinned: no certificate that comes with evidence or reference values is ever a root.

/** `NVIDIA Device Identity CA`, SHA-256 10:2B:F6:59:D5:41:96:14:…: above every GPU and switch. */
const DEVICE_ROOT_PEM = `-----BEGIN CERTIFICATE-----
MIICCzCCAZCgAwIBAgIQLTZwscoQBBHB/sDoKgZbVDAKBggqhkjOPQQDAzA1MSIw
IAYDVQQDDBlOVklESUEgRGV2aWNlIElkZW50aXR5IENBMQ8wDQYDVQQKDAZOVklE
SUEwIBcNMjExMTA1MDAwMDAwWhgPOTk5OTEyMzEyMzU5NTlaMDUxIjAgBgNVBAMM
GU5WSURJQSBEZXZpY2UgSWRlbnRpdHkgQ0ExDzANBgNVBAoMBk5WSURJQTB2MBAG
ByqGSM49AgEGBSuBBAAiA2IABA5MFKM7+KViZljbQSlgfky/RRnEQScW9NDZF8SX
gAW96r6u/Ve8ZggtcYpPi2BS4VFu6KfEIrhN6FcHG7WP05W+oM+hxj7nyA1r1jkB
2Ry70YfThX3Ba1zOryOP+MJ9vaNjMGEwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8B
Af8EBAMCAQYwHQYDVR0OBBYEFFeF/4PyY8xlfWi3Olv0jUrL+0lfMB8GA1UdIwQY
MBaAFFeF/4PyY8xlfWi3Olv0jUrL+0lfMAoGCCqGSM49BAMDA2kAMGYCMQCPeFM3
TASsKQVaT+8S0sO9u97PVGCpE9d/I42IT7k3UUOLSR/qvJynVOD1vQKVXf0CMQC+
EY55WYoDBvs2wPAH1Gw4LbcwUN8QCff8bFmV4ZxjCRr4WXTLFHBKjbfneGSBWwA=
-----END CERTIFICATE-----
`;

/** `NVIDIA CoRIM signing Root CA`, SHA-256 12:97:7B:51:15:AC:B0:38:…: above those who sign reference values. */
const RIM_ROOT_PEM = `-----BEGIN CERTIFICATE-----
MIICKTCCAbCgAwIBAgIQRdrjoA5QN73fh1N17LXicDAKBggqhkjOPQQDAzBFMQsw
CQYDVQQGEwJVUzEPMA0GA1UECgwGTlZJRElBMSUwIwYDVQQDDBxOVklESUEgQ29S
SU0gc2lnbmluZyBSb290IENBMCAXDTIzMDMxNjE1MzczNFoYDzIwNTMwMzA4MTUz
NzM0WjBFMQswCQYDVQQGEwJVUzEPMA0GA1UECgwGTlZJRElBMSUwIwYDVQQDDBxO
VklESUEgQ29SSU0gc2lnbmluZyBSb290IENBMHYwEAYHKoZIzj0CAQYFK4EEACID
YgAEuECyi9vNM+Iw2lfUzyBldHAwaC1HF7TCgp12QcEyUTm3Tagxwr48d55+K2VI
lWYIDk7NlAIQdcV/Ff7euGLI+Qauj93HsSI4WX298PpW54RTgz9tC+Q684caR/BX
WEeZo2MwYTAdBgNVHQ4EFgQUpaXrOPK4ZDAk08DBskn594zeZjAwHwYDVR0jBBgw
FoAUpaXrOPK4ZDAk08DBskn594zeZjAwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8B
Af8EBAMCAQYwCgYIKoZIzj0EAwMDZwAwZAIwHGDyscDP6ihHqRvZlI3eqZ4YkvjE
1duaN84tAHRVgxVMvNrp5Tnom3idHYGW/dskAjATvjIx6VzHm/4e2GiZAyZEIUBD
OKPzp5ei/A0iUZpdvngenDwV8Qa/wGdiTmJ7Bp4=
-----END CERTIFICATE-----
`;

let device: readonly Certificate[] | undefined;
let rim: readonly Certificate[] | undefined;

export function deviceRoots(): readonly Certificate[] {
  device ??= parsePem(DEVICE_ROOT_PEM);
  return device;
}

export function rimRoots(): readonly Certificate[] {
  rim ??= parsePem(RIM_ROOT_PEM);
  return rim;
}
