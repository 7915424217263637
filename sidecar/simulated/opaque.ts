// NVIDIA's opaque data in its legacy form, as Hopper writes it: type (2 bytes, little-endian), length (2), value; no header.
import { extensionsAt, FWID, MEASUREMENT_COUNT, TWIN } from './twin.ts';

export interface OpaqueOptions {
  readonly driverVersion?: string;
  /** `xx.xx.xx.xx.xx`, hex. */
  readonly vbiosVersion?: string;
  /** null leaves the field out, as drivers before 550 do. */
  readonly fwid?: Uint8Array | null;
  /** 0x55 off, 0xAA on: several GPUs behind one protected PCIe domain. */
  readonly protectedPcie?: number;
  /** Behind protected PCIe: the ids of the switches at each link, 8 bytes each, as they write them themselves. A switch's own. */
  readonly fabricIds?: readonly Uint8Array[];
  /** Of the GPUs at a switch's ports, up to eight. */
  readonly gpuIds?: readonly Uint8Array[];
}

/** The field types in the order in which a 550 driver writes them. */
export function opaqueData(options: OpaqueOptions = {}): Buffer {
  const fwid = options.fwid === undefined ? FWID : options.fwid;
  return Buffer.concat([
    field(6, vbiosBytes(options.vbiosVersion ?? TWIN.vbios_version)),
    field(14, Buffer.from('SIM0')), // board id
    field(15, padded(TWIN.chip_sku, 9)),
    field(16, padded('0', 5)), // chip SKU, modification
    field(17, padded(TWIN.project, 5)),
    field(18, padded(TWIN.project_sku, 5)),
    field(19, Buffer.alloc(2)), // project SKU, modification
    field(3, Buffer.from(`${options.driverVersion ?? TWIN.driver_version}\0`)),
    field(4, Buffer.from('8001000000000000', 'hex')), // GPU info
    field(12, measurementCounts()),
    field(13, Buffer.from('00c00100', 'hex')), // compute protected region
    field(11, OFF), // NVDEC0: locked
    ...(fwid === null ? [] : [field(20, fwid)]),
    field(21, options.protectedPcie === undefined ? OFF : Buffer.of(options.protectedPcie)),
    ...(options.fabricIds === undefined ? [] : [field(22, Buffer.concat(options.fabricIds.map(reversed)))]),
  ]);
}

const OFF = Buffer.of(0x55);
/** GPUs write a switch's id from its other end. */
const reversed = (id: Uint8Array): Buffer => Buffer.from(id).reverse();

export function field(type: number, value: Uint8Array): Buffer {
  const header = Buffer.alloc(4);
  header.writeUInt16LE(type, 0);
  header.writeUInt16LE(value.length, 2);
  return Buffer.concat([header, value]);
}

const padded = (text: string, length: number): Buffer => Buffer.concat([Buffer.from(text)], length);

/** Two little-endian words: the first four parts of the version, then the fifth. */
function vbiosBytes(version: string): Buffer {
  const parts = Buffer.from(version.replaceAll('.', ''), 'hex');
  return Buffer.concat([Buffer.from(parts.subarray(0, 4)).reverse(), parts.subarray(4)], 8);
}

/** How often each measurement was extended: little-endian words, 64 of them on a GPU. */
export function measurementCounts(blocks = MEASUREMENT_COUNT): Buffer {
  const counts = Buffer.alloc(blocks * 4);
  for (let index = 0; index < blocks; index++) counts.writeUInt32LE(extensionsAt(index), index * 4);
  return counts;
}
