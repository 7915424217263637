// Reads an attestation report: an SPDM 1.1 GET_MEASUREMENTS request and the signed MEASUREMENTS response (DMTF DSP0274 §10.11).
// A parsed report is not trusted until verifyReportSignature has verified it under a leaf whose chain verifyChain has verified.

import { toHex } from '../../common/bytes.ts';
import { CheckFailure } from '../../common/checks.ts';
import { ecdsaVerifyRaw, type PublicKey } from '../../x509/public-key.ts';
import { type OpaqueData, parseOpaque } from './opaque.ts';

export interface Report {
  readonly bytes: Uint8Array;
  /** The requester's nonce, bytes 4..35: 64 lowercase hex digits. */
  readonly nonce: string;
  /** The values of the measurement blocks as lowercase hex, by SPDM's index, which counts from 1. */
  readonly blocks: ReadonlyMap<number, string>;
  readonly opaque: OpaqueData;
  /** Everything before the signature. */
  readonly signed: Uint8Array;
  /** ECDSA P-384, raw r ‖ s. */
  readonly signature: Uint8Array;
}

const SPDM_1_1 = 0x11;
const GET_MEASUREMENTS = 0xe0;
const MEASUREMENTS = 0x60;
const REQUEST_BYTES = 37;
const NONCE_BYTES = 32;
const SIGNATURE_BYTES = 96;
/** Genuine reports have 2,168 (switch) to 4,262 bytes. */
const MAX_REPORT_BYTES = 64 * 1024;
const DMTF = 0x01;

const bad = (message: string) => new CheckFailure('report_malformed', message);

/**
 * The signature is at the offset that the lengths before it give, and ends the report. No known genuine report, from drivers
 * 535 to 590 or from switches, has a byte after it; such bytes would be unsigned, and are refused.
 * @throws {CheckFailure} report_malformed
 */
export function parseReport(bytes: Uint8Array): Report {
  if (bytes.length > MAX_REPORT_BYTES) throw bad('the report is too large');
  if (bytes.length < REQUEST_BYTES + 8 + NONCE_BYTES + 2 + SIGNATURE_BYTES) throw bad('the report is too short');
  if (bytes[0] !== SPDM_1_1 || bytes[1] !== GET_MEASUREMENTS)
    throw bad('the report does not begin with an SPDM 1.1 GET_MEASUREMENTS request');
  if (bytes[37] !== SPDM_1_1 || bytes[38] !== MEASUREMENTS)
    throw bad('the request is not followed by an SPDM 1.1 MEASUREMENTS response');
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const count = view.getUint8(41);
  const record = { start: 45, length: view.getUint8(42) | (view.getUint16(43, true) << 8) };
  const nonceAt = record.start + record.length;
  const opaqueAt = nonceAt + NONCE_BYTES + 2;
  if (opaqueAt > bytes.length) throw bad('the measurement record runs past the end');
  const opaqueLength = view.getUint16(opaqueAt - 2, true);
  const signatureAt = opaqueAt + opaqueLength;
  if (signatureAt + SIGNATURE_BYTES > bytes.length) throw bad('the opaque data runs past the end');
  if (signatureAt + SIGNATURE_BYTES < bytes.length) throw bad('bytes follow the signature');
  return {
    bytes,
    nonce: toHex(bytes.subarray(4, 36)),
    blocks: readBlocks(view, record.start, nonceAt, count),
    opaque: parseOpaque(bytes.subarray(opaqueAt, signatureAt)),
    signed: bytes.subarray(0, signatureAt),
    signature: bytes.subarray(signatureAt),
  };
}

/** DSP0274 table 54: index, specification, size; for the DMTF specification (table 55) type, size, value. */
function readBlocks(view: DataView, start: number, end: number, count: number): Map<number, string> {
  const blocks = new Map<number, string>();
  let at = start;
  for (let i = 0; i < count; i++) {
    if (at + 7 > end) throw bad('a measurement block runs past its record');
    const index = view.getUint8(at);
    const size = view.getUint16(at + 2, true);
    const valueSize = view.getUint16(at + 5, true);
    if (view.getUint8(at + 1) !== DMTF) throw bad('a measurement block is not of the DMTF specification');
    if (valueSize + 3 !== size || at + 4 + size > end) throw bad('a measurement block has a wrong size');
    if (blocks.has(index)) throw bad('a measurement block stands twice');
    blocks.set(index, toHex(new Uint8Array(view.buffer, view.byteOffset + at + 7, valueSize)));
    at += 4 + size;
  }
  if (at !== end) throw bad('bytes follow the measurement blocks');
  return blocks;
}

/** Decided by the report's own magic, never by a driver's version. @throws {CheckFailure} report_malformed */
export const opaqueFormat = (report: Uint8Array): OpaqueData['format'] => parseReport(report).opaque.format;

/** Of each report the key that it was verified under: it does not depend on time or policy, and is not computed twice for a bundle. */
const signers = new WeakMap<Report, PublicKey>();

/** Whether the leaf's key signed this report. */
export async function verifyReportSignature(report: Report, leaf: PublicKey): Promise<boolean> {
  if (signers.get(report) === leaf) return true;
  const holds = await ecdsaVerifyRaw(leaf, 'SHA-384', report.signature, report.signed);
  if (holds) signers.set(report, leaf);
  return holds;
}
