// Reads the opaque data of NVIDIA's attestation reports, in both of its formats. It is signed with the report.

import { concat, equal, toHex, utf8 } from '../../common/bytes.ts';
import { CheckFailure } from '../../common/checks.ts';

/** The known field types, by the names of NVIDIA's verifiers. Others are skipped. */
const FIELD = {
  driverVersion: 3,
  vbiosVersion: 6,
  nvdec0Status: 11,
  measurementCounts: 12,
  chipSku: 15,
  project: 17,
  projectSku: 18,
  fwid: 20,
  protectedPcieStatus: 21,
  fabricIds: 22,
  gpuIds: 26,
  opaqueDataVersion: 34,
  chipInfo: 35,
  featureFlag: 36,
} as const;

/** How a GPU is passed through: one to a guest, several to a guest, or several over a protected PCIe bus. */
export type PassThrough = 'spt' | 'mpt' | 'ppcie';

/** Every member is null where the report does not have its field: which fields there are depends on the driver. */
export interface OpaqueData {
  readonly format: 'legacy' | 'NVDAOD';
  /** 0 for drivers that name no version. */
  readonly version: number;
  readonly driverVersion: string | null;
  /** As NVIDIA writes it: `96.00.9F.00.01`. */
  readonly vbiosVersion: string | null;
  readonly project: string | null;
  readonly projectSku: string | null;
  readonly chipSku: string | null;
  /** `GB100`; Hopper names none. */
  readonly chip: string | null;
  /** The firmware's digest, lowercase hex. */
  readonly fwid: string | null;
  /** The video decoder is fused off, and its measurement (RIM index 35) stays empty. */
  readonly nvdec0Disabled: boolean | null;
  readonly protectedPcie: boolean | null;
  readonly passThrough: PassThrough | null;
  /** Ids on the NVLink fabric, as hex of the bytes: a switch's own; on a GPU one for each of its links. topology.ts reads them. */
  readonly fabricIds: readonly string[] | null;
  /** Ids of the GPUs at a switch's ports. */
  readonly gpuIds: readonly string[] | null;
  /** How often each measurement was extended. */
  readonly measurementCounts: readonly number[] | null;
  /** Security version numbers by field type; NVDAOD alone has them. */
  readonly svns: ReadonlyMap<number, number>;
}

interface Field {
  readonly type: number;
  /** NVDAOD's type of the value; 0 in the legacy format. */
  readonly valueType: number;
  readonly value: Uint8Array;
}

const MAGIC = utf8('NVDAOD');
/** Magic (6), profile (2), major, minor, reserved (2). */
const HEADER_BYTES = 12;
/** Newer majors may mean other things by the same types. */
const MAX_VERSION = 2;
const SVN_VALUE_TYPE = 0x87;
const KNOWN: ReadonlySet<number> = new Set(Object.values(FIELD));
/** How the hardware writes yes and no. */
const STATUS: ReadonlyMap<number, boolean> = new Map([
  [0xaa, true],
  [0x55, false],
]);
const PASS_THROUGH: readonly PassThrough[] = ['spt', 'mpt', 'ppcie'];

const bad = (message: string) => new CheckFailure('report_malformed', `opaque data: ${message}`);

/** @throws {CheckFailure} report_malformed */
export function parseOpaque(bytes: Uint8Array): OpaqueData {
  const headed = bytes.length >= HEADER_BYTES && equal(bytes.subarray(0, MAGIC.length), MAGIC);
  if (headed && (bytes[6] !== 0 || bytes[7] !== 0)) throw bad('an unknown profile');
  const fields = byType(readFields(bytes, headed));
  const version = headed ? (bytes[8] ?? 0) : number(fields, FIELD.opaqueDataVersion);
  if (version > MAX_VERSION) throw bad(`version ${version} is not known`);
  const nvdec0 = status(fields, FIELD.nvdec0Status);
  return {
    format: headed ? 'NVDAOD' : 'legacy',
    version,
    driverVersion: text(fields, FIELD.driverVersion),
    vbiosVersion: vbiosVersion(fields),
    project: text(fields, FIELD.project),
    projectSku: text(fields, FIELD.projectSku),
    chipSku: text(fields, FIELD.chipSku),
    chip: text(fields, FIELD.chipInfo),
    fwid: hex(fields, FIELD.fwid),
    nvdec0Disabled: nvdec0 === null ? null : !nvdec0,
    protectedPcie: status(fields, FIELD.protectedPcieStatus),
    passThrough: passThrough(fields, version),
    fabricIds: ids(fields, FIELD.fabricIds),
    gpuIds: ids(fields, FIELD.gpuIds, GPU_IDS),
    measurementCounts: counts(fields),
    svns: new Map([...fields.values()].filter(isSvn).map(({ type, value }) => [type, littleEndian(value)])),
  };
}

/** Type (2), in NVDAOD the value's type (2), size (2), all little-endian; then the value. Up to the last byte. */
function* readFields(bytes: Uint8Array, headed: boolean): Generator<Field> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const head = headed ? 6 : 4;
  for (let at = headed ? HEADER_BYTES : 0; at < bytes.length; ) {
    if (at + head > bytes.length) throw bad('a field breaks off');
    const size = view.getUint16(at + head - 2, true);
    const end = at + head + size;
    if (end > bytes.length) throw bad('a field runs past the end');
    const valueType = headed ? view.getUint16(at + 2, true) : 0;
    yield { type: view.getUint16(at, true), valueType, value: bytes.subarray(at + head, end) };
    at = end;
  }
}

function byType(fields: Iterable<Field>): Map<number, Field> {
  const map = new Map<number, Field>();
  for (const field of fields) {
    if (KNOWN.has(field.type) && map.has(field.type)) throw bad(`field ${field.type} stands twice`);
    map.set(field.type, field);
  }
  return map;
}

type Fields = ReadonlyMap<number, Field>;

const isSvn = ({ valueType, value }: Field) => valueType === SVN_VALUE_TYPE && value.length === 2;

/** ASCII up to the first zero byte. */
function text(fields: Fields, type: number): string | null {
  const value = fields.get(type)?.value;
  if (value === undefined) return null;
  const end = value.indexOf(0);
  const ascii = String.fromCharCode(...value.subarray(0, end < 0 ? Math.min(value.length, 256) : end)).trim();
  if (!/^[!-~]{1,64}$/.test(ascii)) return ascii === '' ? null : fail(type);
  return ascii;
}

function hex(fields: Fields, type: number): string | null {
  const value = fields.get(type)?.value;
  return value === undefined ? null : toHex(value);
}

function number(fields: Fields, type: number): number {
  const value = fields.get(type)?.value;
  if (value === undefined) return 0;
  return value.length > 6 ? fail(type) : littleEndian(value);
}

function status(fields: Fields, type: number): boolean | null {
  const value = fields.get(type)?.value;
  if (value === undefined) return null;
  return STATUS.get(value.length === 1 ? (value[0] ?? 0) : 0) ?? fail(type);
}

/** The flag exists from version 1 on; before, a field of this type is ignored. */
function passThrough(fields: Fields, version: number): PassThrough | null {
  if (version < 1 || !fields.has(FIELD.featureFlag)) return null;
  return PASS_THROUGH[number(fields, FIELD.featureFlag)] ?? fail(FIELD.featureFlag);
}

/**
 * GPUs write two little-endian words, of which the first four bytes and the fifth are the version; switches write the text.
 */
function vbiosVersion(fields: Fields): string | null {
  const value = fields.get(FIELD.vbiosVersion)?.value;
  if (value === undefined) return null;
  if (value.length === 8) {
    const digits = concat([Uint8Array.from(value.subarray(0, 4)).reverse(), value.subarray(4, 5)]);
    return Array.from(digits, (byte) => toHex(Uint8Array.of(byte)).toUpperCase()).join('.');
  }
  const version = text(fields, FIELD.vbiosVersion)?.toUpperCase() ?? '';
  return /^[0-9A-F]{2}(\.[0-9A-F]{2}){4}$/.test(version) ? version : fail(FIELD.vbiosVersion);
}

const ID_BYTES = 8;
/** The number of ids in a switch's field. The bytes after them map ports to GPUs. */
const GPU_IDS = 8;

/** @param count the number of ids; by default as many as fill the field. */
function ids(fields: Fields, type: number, count?: number): string[] | null {
  const value = fields.get(type)?.value;
  if (value === undefined) return null;
  const length = count ?? value.length / ID_BYTES;
  if (!Number.isInteger(length) || length * ID_BYTES > value.length) return fail(type);
  return Array.from({ length }, (_, i) => toHex(value.subarray(i * ID_BYTES, (i + 1) * ID_BYTES)));
}

function counts(fields: Fields): number[] | null {
  const value = fields.get(FIELD.measurementCounts)?.value;
  if (value === undefined) return null;
  if (value.length % 4 !== 0) return fail(FIELD.measurementCounts);
  const view = new DataView(value.buffer, value.byteOffset, value.byteLength);
  return Array.from({ length: value.length / 4 }, (_, i) => view.getUint32(4 * i, true));
}

function littleEndian(value: Uint8Array): number {
  return value.reduceRight((sum, byte) => sum * 256 + byte, 0);
}

function fail(type: number): never {
  throw bad(`field ${type} is malformed`);
}
