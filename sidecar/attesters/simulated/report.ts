// Writes the attestation report: an SPDM 1.1 GET_MEASUREMENTS request and its signed MEASUREMENTS response (DMTF DSP0274).
import { type KeyObject, randomBytes, sign } from 'node:crypto';
import { promisify } from 'node:util';
import { extensionsAt, FWID, MEASUREMENT_COUNT, measurementAt, TWIN } from './twin.ts';

// NVIDIA's opaque data in its legacy form, as Hopper writes it: type (2 bytes, little-endian), length (2), value; no header.

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
/** GPUs write a switch's id in reverse byte order. */
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

/** Deviations, for tests and their vectors. By default the report passes every check. */
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

const signAsync = promisify<string, Uint8Array, { key: KeyObject; dsaEncoding: 'ieee-p1363' }, Buffer>(sign);

const SPDM_1_1 = 0x11;
const GET_MEASUREMENTS = 0xe0;
const MEASUREMENTS = 0x60;
/** Param1 of the request: with a signature; Param2: all measurements. */
const SIGNED = 0x01;
const ALL = 0xff;
const SLOT = 0x00;

/** `nonce`: 32 bytes, at 4..35 of the report. `key`: the leaf's. */
export async function makeReport(nonce: Uint8Array, key: KeyObject, options: ReportOptions = {}): Promise<Buffer> {
  const record = measurementRecord(options);
  const opaque = options.opaque ?? opaqueData(options);
  const signed = Buffer.concat([
    Buffer.of(SPDM_1_1, GET_MEASUREMENTS, SIGNED, ALL),
    nonce,
    Buffer.of(SLOT),
    Buffer.of(SPDM_1_1, MEASUREMENTS, 0, 0, options.blocks ?? MEASUREMENT_COUNT),
    littleEndian(record.length, 3),
    record,
    options.responseNonce ?? randomBytes(32),
    littleEndian(opaque.length, 2),
    opaque,
  ]);
  const signature = await signAsync('sha384', signed, { key, dsaEncoding: 'ieee-p1363' });
  if (options.breakSignature) signature.writeUInt8(signature.readUInt8(95) ^ 1, 95);
  return Buffer.concat([signed, signature]);
}

function measurementRecord(options: ReportOptions): Buffer {
  const blocks: Buffer[] = [];
  for (let index = 0; index < (options.blocks ?? MEASUREMENT_COUNT); index++)
    blocks.push(block(index, options.measurements?.get(index) ?? measurementAt(index)));
  return Buffer.concat(blocks);
}

/** Index from 1, DMTF specification, size; then DMTF's own header: type 1 (a digest of mutable firmware), size, value. */
function block(index: number, value: Uint8Array): Buffer {
  const head = [
    Buffer.of(index + 1, 1),
    littleEndian(value.length + 3, 2),
    Buffer.of(1),
    littleEndian(value.length, 2),
  ];
  return Buffer.concat([...head, value]);
}

function littleEndian(value: number, bytes: number): Buffer {
  const buffer = Buffer.alloc(bytes);
  buffer.writeUIntLE(value, 0, bytes);
  return buffer;
}
