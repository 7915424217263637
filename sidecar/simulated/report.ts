// Writes the attestation report: an SPDM 1.1 GET_MEASUREMENTS request and its signed MEASUREMENTS response (DMTF DSP0274).
import { type KeyObject, randomBytes, sign } from 'node:crypto';
import { promisify } from 'node:util';
import { type OpaqueOptions, opaqueData } from './opaque.ts';
import { MEASUREMENT_COUNT, measurementAt } from './twin.ts';

/** What to say differently, for test vectors. By default the report is the one that every check passes. */
export interface ReportOptions extends OpaqueOptions {
  /** Other values by RIM index, 0 to 63. */
  readonly measurements?: ReadonlyMap<number, Uint8Array>;
  /** How many blocks, from index 0. */
  readonly blocks?: number;
  readonly responseNonce?: Uint8Array;
  /** In place of what an H100 says of itself. */
  readonly opaque?: Uint8Array;
  /** One bit of the signature is turned. */
  readonly breakSignature?: boolean;
}

const signAsync = promisify<string, Uint8Array, { key: KeyObject; dsaEncoding: 'ieee-p1363' }, Buffer>(sign);

const SPDM_1_1 = 0x11;
const GET_MEASUREMENTS = 0xe0;
const MEASUREMENTS = 0x60;
/** Param1 of the request: a signature is wanted; Param2: all measurements. */
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
