// Attestation reports as the simulated GPU writes them, with what a test or a vector changes.
import type { KeyObject } from 'node:crypto';
import { MEASUREMENT_COUNT, measurementAt, range } from '../../demo/twin/identity.ts';
import { driverBytes, field, makeReport as makeTwinReport, OPAQUE_FIELDS, vbiosBytes } from '../../demo/twin/report.ts';

export interface OpaqueOptions {
  readonly driverVersion?: string;
  /** `xx.xx.xx.xx.xx`, hex. */
  readonly vbiosVersion?: string;
  /** null leaves the field out, as drivers before 550 do. */
  readonly fwid?: Uint8Array | null;
  /** 0x55 off, 0xAA on: several GPUs behind one protected PCIe domain. */
  readonly protectedPcie?: number;
  /** The id of the switch at each link of a GPU behind protected PCIe, or a switch's own; 8 bytes each, as switches write them. */
  readonly fabricIds?: readonly Uint8Array[];
  /** The ids of the GPUs at a switch's ports, up to eight. */
  readonly gpuIds?: readonly Uint8Array[];
}

/** By default the report passes every check. */
export interface ReportOptions extends OpaqueOptions {
  /** Other values by RIM index, 0 to 63. */
  readonly measurements?: ReadonlyMap<number, Uint8Array>;
  /** The number of blocks, from index 0. */
  readonly blocks?: number;
  readonly responseNonce?: Uint8Array;
  /** In place of the H100's opaque data. */
  readonly opaque?: Uint8Array;
  /** One bit of the signature is flipped. */
  readonly breakSignature?: boolean;
}

/** An H100's. */
export function opaqueData(options: OpaqueOptions = {}): Buffer {
  const { driverVersion, vbiosVersion, fwid, protectedPcie, fabricIds } = options;
  const fields = new Map(OPAQUE_FIELDS);
  if (driverVersion !== undefined) fields.set(3, driverBytes(driverVersion));
  if (vbiosVersion !== undefined) fields.set(6, vbiosBytes(vbiosVersion));
  if (fwid === null) fields.delete(20);
  else if (fwid !== undefined) fields.set(20, fwid);
  if (protectedPcie !== undefined) fields.set(21, Buffer.of(protectedPcie));
  // GPUs write a switch's id in reverse byte order.
  if (fabricIds !== undefined) fields.set(22, Buffer.concat(fabricIds.map((id) => Buffer.from(id).reverse())));
  return Buffer.concat([...fields].map(([type, value]) => field(type, value)));
}

export async function makeReport(nonce: Uint8Array, key: KeyObject, options: ReportOptions = {}): Promise<Buffer> {
  const { blocks = MEASUREMENT_COUNT, opaque = opaqueData(options), responseNonce } = options;
  const measurements = range(0, blocks - 1).map((index) => options.measurements?.get(index) ?? measurementAt(index));
  const report = await makeTwinReport(nonce, key, { measurements, opaque }, responseNonce);
  if (options.breakSignature) report.writeUInt8((report.at(-1) ?? 0) ^ 1, report.length - 1);
  return report;
}
