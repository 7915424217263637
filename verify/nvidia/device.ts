// What a device is, by the certificates that its maker issued to it and the opaque data that it signed.
import { driverRimId, switchBiosRimId, vbiosRimId } from '../rim/index.ts';
import type { OpaqueData } from '../spdm/opaque.ts';
import type { Certificate } from '../x509/certificate.ts';

/** As NVIDIA's evidence files name them. */
export type Architecture = 'HOPPER' | 'BLACKWELL' | 'LS10';

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

/** LS10 reports carry no project, and NVIDIA's verifiers take these. */
const LS10_BOARD = { project: '5612', projectSku: '0002', chipSku: '890' } as const;

/** null for a chip that is none of these. `path`: leaf first, as verifyChain returned it. */
export function identify(path: readonly Certificate[]): DeviceIdentity | null {
  const [leaf, above] = path;
  if (leaf === undefined || above === undefined) return null;
  const chip = /\b(GH1|GB[12]|LS_?1)\d+\b/.exec(leaf.subjectCommonName)?.[0].replace('_', '');
  if (chip === undefined) return null;
  const arch = chip.startsWith('GH') ? 'HOPPER' : chip.startsWith('GB') ? 'BLACKWELL' : 'LS10';
  const kind = arch === 'LS10' ? 'switch' : 'gpu';
  return { kind, arch, chip, model: above.subjectCommonName, ueid: leaf.serial.toString() };
}

/** The names of the reference values that the signed opaque data asks for; null where it does not say enough. */
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
