// What the twin can be: an H100, a B200, and the NVSwitch between them: names, signed self-descriptions and manifests of each.
//
// Form and field types are those of genuine reports (H100 550.90.07, Blackwell 575.32, LS10). Guessed, for no genuine evidence
// shows them: that Blackwell's newer drivers state their chip as field 35 and opaque-data version 1 (NVIDIA's verifier asks for
// the first), what a switch's manifest calls its product, and which of a Blackwell's or a switch's measurements are active.

import {
  context,
  contextPrimitive,
  extension,
  firmwareId,
  octetString,
  oid,
  sequence,
} from '../../demo/twin/certificate.ts';
import { TWIN } from '../../demo/twin/identity.ts';
import { type Chip, GH100 } from '../../demo/twin/pki.ts';
import { field, measurementCounts } from '../../demo/twin/report.ts';
import { type OpaqueOptions, opaqueData, type ReportOptions } from './report.ts';
import { makeRim, RIM_IDS } from './rim.ts';
import type { RimSigner } from './rim-signer.ts';

export interface Model {
  readonly arch: 'HOPPER' | 'BLACKWELL' | 'LS10';
  /** For people. */
  readonly name: string;
  /** nvmlDeviceArchitecture_t, or nscq_arch_t. */
  readonly architecture: number;
  readonly chip: Chip;
  /** What its report says, except for the nonce. */
  report(options?: ReportOptions): ReportOptions;
  /** By id: what a RIM service keeps for it. */
  manifests(signer: RimSigner): readonly (readonly [id: string, xml: string])[];
}

export const H100: Model = {
  arch: 'HOPPER',
  name: TWIN.model,
  architecture: 9,
  chip: GH100,
  report: (options = {}) => options,
  manifests: (signer) => (['driver', 'vbios'] as const).map((kind) => [RIM_IDS[kind], makeRim(kind, signer)]),
};

const GB100: Chip = {
  name: 'GB100',
  identity: 'SIMULATED GB100 Identity',
  provisioner: 'SIMULATED GB100 Provisioner ICA 00000',
  brom: 'SIMULATED GB100 A01 GSP BROM',
  leaf: 'SIMULATED GB100 A01 GSP FMC LF',
  firmwareId: (_issuerSpki, fwid) => tcbInfo('GB100 A01 GSP', fwid),
};

const littleEndian = (value: number) => Buffer.of(value & 0xff, value >> 8);

const blackwellOpaque = (options: OpaqueOptions) =>
  Buffer.concat([
    opaqueData(options),
    field(33, Buffer.of(7, 7)),
    field(34, littleEndian(1)), // opaque data version
    field(35, Buffer.from('GB100\0\0\0')), // chip
    field(36, littleEndian(options.protectedPcie === 0xaa ? 2 : 0)),
  ]);

export const B200: Model = {
  arch: 'BLACKWELL',
  name: 'SIMULATED B200',
  architecture: 10,
  chip: GB100,
  report: (options = {}) => ({ opaque: blackwellOpaque(options), ...options }),
  manifests: (signer) => [
    [`NV_GPU_CC_DRIVER_GB100_${TWIN.driver_version}`, makeRim('driver', signer, { chip: 'GB100' })],
    [RIM_IDS.vbios, makeRim('vbios', signer, { chip: 'GB100' })],
  ],
};

const LS10: Chip = {
  name: 'LS10',
  identity: 'SIMULATED GH100 Identity',
  provisioner: 'SIMULATED LS_10 Provisioner ICA 1',
  brom: 'SIMULATED LS_10 A01 FSP BROM',
  leaf: 'SIMULATED LS_10 A01 FSP FMC LF',
  firmwareId,
};

const SWITCH_BIOS = '53.49.4D.00.02';
const SWITCH_BLOCKS = 31;
/** A switch's firmware measures less than a GPU's; its last five blocks are constants in genuine reports. */
const SWITCH_ACTIVE: ReadonlySet<number> = new Set([1, 2, 3, 4, 5, 6, 9, 11, 21, 22, 25]);

const SWITCH_ID = Buffer.from('53494d0000000001', 'hex');
/** Eight GPUs, and behind them 64 bytes that say which port leads to which. */
const GPU_IDS_BYTES = 128;

const switchOpaque = ({ fabricIds = [SWITCH_ID], gpuIds = [] }: OpaqueOptions) =>
  Buffer.concat([
    field(6, Buffer.from(SWITCH_BIOS)),
    field(22, Buffer.concat(fabricIds)), // its own id on the fabric
    field(12, measurementCounts(26)),
    field(26, Buffer.concat([...gpuIds, Buffer.alloc(GPU_IDS_BYTES)], GPU_IDS_BYTES)), // the GPUs at its ports
    field(23, Buffer.of(0xec, 0)),
    field(24, littleEndian(2)),
    field(25, littleEndian(1)), // locked
  ]);

export const NVSWITCH: Model = {
  arch: 'LS10',
  name: 'NVSwitch LS10',
  architecture: 2,
  chip: LS10,
  report: (options = {}) => ({ opaque: switchOpaque(options), blocks: SWITCH_BLOCKS, ...options }),
  manifests: (signer) => [
    [
      // Project and SKUs are constants of NVIDIA's verifiers: no switch states them.
      `NV_SWITCH_BIOS_5612_0002_890_${SWITCH_BIOS.replaceAll('.', '')}`,
      makeRim('vbios', signer, { version: SWITCH_BIOS, active: SWITCH_ACTIVE, chip: 'LS10', edition: 'SWITCH' }),
    ],
  ],
};

/** DiceTcbInfo (TCG DICE Attestation Architecture §6.1.1) as Blackwell writes it: two firmware ids, the second left zero. */
function tcbInfo(model: string, fwid: Uint8Array): Buffer {
  const one = (digest: Uint8Array) => sequence(oid('2.16.840.1.101.3.4.2.2'), octetString(digest));
  return extension(
    '2.23.133.5.4.1.1',
    sequence(
      contextPrimitive(0, Buffer.from('SIMULATED')),
      contextPrimitive(1, Buffer.from(model)),
      contextPrimitive(2, Buffer.from('01')),
      contextPrimitive(3, Buffer.of(1)),
      contextPrimitive(4, Buffer.of(0)),
      contextPrimitive(5, Buffer.of(0)),
      context(6, one(fwid), one(Buffer.alloc(fwid.length))),
      contextPrimitive(7, Buffer.from('0080000000', 'hex')),
      contextPrimitive(8, Buffer.of(0x1c)),
      contextPrimitive(9, Buffer.of(0)),
    ),
  );
}
