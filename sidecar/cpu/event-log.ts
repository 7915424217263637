// Reads the log of a TDX guest's measured boot, which firmware and kernel wrote into the memory that ACPI's table CCEL names (TCG "PC
// Client Platform Firmware Profile", §10).
import { appraiseCpu } from '../../verify/cpu/index.ts';

/** The largest log that verifiers read. */
const MAX_BYTES = 1024 * 1024;

/**
 * The log as base64; null where this process can read none, or where it does not replay to the quote's registers, for example after
 * software extended RTMR3: relying parties refuse evidence with such a log.
 */
export async function readEventLog(read: () => Promise<Buffer>, quote: Buffer): Promise<string | null> {
  const log = await read().then(cutEventLog, () => null);
  if (log === null || log.length > MAX_BYTES) return null;
  const event_log = log.toString('base64');
  const { checks } = await appraiseCpu({ type: 'TDX', report: quote.toString('base64'), event_log });
  return checks.some(({ name, status }) => name === 'cpu_software' && status === 'fail') ? null : event_log;
}

const HEAD_SIGNATURE = 'Spec ID Event03\0';
const HEAD_AT = 32;
const HEAD_SIZE_AT = 28;
const ALGORITHMS_AT = HEAD_AT + 24;

/** The log up to its last event, without the unused memory behind it; null where it is no such log. */
export function cutEventLog(log: Buffer): Buffer | null {
  try {
    if (log.toString('latin1', HEAD_AT, HEAD_AT + HEAD_SIGNATURE.length) !== HEAD_SIGNATURE) return null;
    const sizes = digestSizes(log);
    let end = HEAD_AT + log.readUInt32LE(HEAD_SIZE_AT);
    while (end < log.length && !isUnused(log.subarray(end, end + 8))) end = endOfEvent(log, end, sizes);
    return end > log.length ? null : log.subarray(0, end);
  } catch (error) {
    // Buffer throws this for a read behind its end.
    if (error instanceof RangeError) return null;
    throw error;
  }
}

/** Digest sizes by algorithm, from the log's head. */
function digestSizes(log: Buffer): ReadonlyMap<number, number> {
  const sizes = new Map<number, number>();
  const count = log.readUInt32LE(ALGORITHMS_AT);
  for (let i = 0, at = ALGORITHMS_AT + 4; i < count; i++, at += 4)
    sizes.set(log.readUInt16LE(at), log.readUInt16LE(at + 2));
  return sizes;
}

/** A TCG_PCR_EVENT2 has register and type, a count of digests, the digests, and data after its length. */
function endOfEvent(log: Buffer, start: number, sizes: ReadonlyMap<number, number>): number {
  let at = start + 12;
  for (let left = log.readUInt32LE(start + 8); left > 0; left--) {
    const size = sizes.get(log.readUInt16LE(at));
    if (size === undefined) throw new RangeError('a digest of an algorithm that the head does not name');
    at += 2 + size;
  }
  return at + 4 + log.readUInt32LE(at);
}

/** Whether register and type are unused memory, which firmware fills with ones or leaves as zeros. */
const isUnused = (bytes: Buffer): boolean => bytes.every((byte) => byte === 0xff) || bytes.every((byte) => byte === 0);
