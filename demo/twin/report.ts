// Writes the attestation report: an SPDM 1.1 GET_MEASUREMENTS request and its signed MEASUREMENTS response (DMTF DSP0274).
import { type KeyObject, randomBytes, sign } from 'node:crypto';
import { promisify } from 'node:util';
import { extensionsAt, FWID, MEASUREMENT_COUNT, measurementAt, range, TWIN } from './identity.ts';

// NVIDIA's opaque data in its legacy form, as Hopper writes it: type (2 bytes, little-endian), length (2), value; no header.

const OFF = Buffer.of(0x55);

/** The fields in the order in which a 550 driver writes them. */
export const OPAQUE_FIELDS: readonly (readonly [type: number, value: Uint8Array])[] = [
  [6, vbiosBytes(TWIN.vbios_version)],
  [14, Buffer.from('SIM0')], // board id
  [15, padded(TWIN.chip_sku, 9)],
  [16, padded('0', 5)], // chip SKU, modification
  [17, padded(TWIN.project, 5)],
  [18, padded(TWIN.project_sku, 5)],
  [19, Buffer.alloc(2)], // project SKU, modification
  [3, driverBytes(TWIN.driver_version)],
  [4, Buffer.from('8001000000000000', 'hex')], // GPU info
  [12, measurementCounts()],
  [13, Buffer.from('00c00100', 'hex')], // compute protected region
  [11, OFF], // NVDEC0: locked
  [20, FWID],
  [21, OFF], // protected PCIe
];

export function field(type: number, value: Uint8Array): Buffer {
  return Buffer.concat([littleEndian(type, 2), littleEndian(value.length, 2), value]);
}

function padded(text: string, length: number): Buffer {
  return Buffer.concat([Buffer.from(text)], length);
}

export function driverBytes(version: string): Buffer {
  return Buffer.from(`${version}\0`);
}

/** Two little-endian words: the first four parts of the version, then the fifth. */
export function vbiosBytes(version: string): Buffer {
  const parts = Buffer.from(version.replaceAll('.', ''), 'hex');
  return Buffer.concat([Buffer.from(parts.subarray(0, 4)).reverse(), parts.subarray(4)], 8);
}

/** How often each measurement was extended: little-endian words, 64 of them on a GPU. */
export function measurementCounts(blocks = MEASUREMENT_COUNT): Buffer {
  const counts = Buffer.alloc(blocks * 4);
  for (let index = 0; index < blocks; index++) counts.writeUInt32LE(extensionsAt(index), index * 4);
  return counts;
}

/** A report's content, without the nonces. */
interface ReportContent {
  /** By RIM index, from 0. */
  readonly measurements: readonly Uint8Array[];
  readonly opaque: Uint8Array;
}

const CONTENT: ReportContent = {
  measurements: range(0, MEASUREMENT_COUNT - 1).map(measurementAt),
  opaque: Buffer.concat(OPAQUE_FIELDS.map(([type, value]) => field(type, value))),
};

const signAsync = promisify<string, Uint8Array, { key: KeyObject; dsaEncoding: 'ieee-p1363' }, Buffer>(sign);

const SPDM_1_1 = 0x11;
const GET_MEASUREMENTS = 0xe0;
const MEASUREMENTS = 0x60;
/** Param1 of the request: with a signature; Param2: all measurements. */
const SIGNED = 0x01;
const ALL = 0xff;
const SLOT = 0x00;

/** `nonce`: 32 bytes, at 4..35 of the report. `key`: the leaf's. By default the report passes every check. */
export async function makeReport(
  nonce: Uint8Array,
  key: KeyObject,
  { measurements, opaque }: ReportContent = CONTENT,
  responseNonce: Uint8Array = randomBytes(32),
): Promise<Buffer> {
  const record = Buffer.concat(measurements.map((value, index) => block(index, value)));
  const signed = Buffer.concat([
    Buffer.of(SPDM_1_1, GET_MEASUREMENTS, SIGNED, ALL),
    nonce,
    Buffer.of(SLOT),
    Buffer.of(SPDM_1_1, MEASUREMENTS, 0, 0, measurements.length),
    littleEndian(record.length, 3),
    record,
    responseNonce,
    littleEndian(opaque.length, 2),
    opaque,
  ]);
  return Buffer.concat([signed, await signAsync('sha384', signed, { key, dsaEncoding: 'ieee-p1363' })]);
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
