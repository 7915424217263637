// Reads the logs of a guest's measured events, and replays them: CCEL, which firmware and kernel write (TCG "PC
// Client Platform Firmware Profile", §10), and the JSON that dstack and our own unit write for RTMR3.

import { concat, digest, EncodingError, equal, fromHex, fromUtf8, utf8 } from '../../common/bytes.ts';
import { CheckFailure, type Passed, passed } from '../../common/checks.ts';
import { ByteReader } from './byte-reader.ts';

/** One event that was extended into a register. */
export interface LogEvent {
  /** 0 to 3. */
  readonly rtmr: number;
  readonly type: number;
  /** SHA-384, as extended into the register. It is checked against the data only where `name` is set. */
  readonly digest: Uint8Array;
  /** Only of events of dstack's form in RTMR3, whose digest is over type, name and data. */
  readonly name: string | null;
  readonly data: Uint8Array;
}

const MAX_LOG_BYTES = 1024 * 1024;
const MAX_EVENTS = 8192;
const MAX_ALGORITHMS = 16;
const SHA384 = 0x000c;
const SHA384_BYTES = 48;
const EV_NO_ACTION = 3;
/** Fills the unused memory of a log. */
const UNUSED = 0xffffffff;
const RUNTIME_RTMR = 3;

const bad = (message: string, cause?: unknown) =>
  new CheckFailure('event_log_mismatch', `the event log: ${message}`, { cause });

/** @throws {CheckFailure} event_log_mismatch */
export async function checkEventLog(rtmrs: readonly Uint8Array[], log: Uint8Array): Promise<Passed<LogEvent[]>> {
  const events = await readEventLog(log);
  const replayed = await replay(events);
  const wrong = replayed.findIndex((register, i) => !equal(register, rtmrs[i] ?? new Uint8Array()));
  if (wrong >= 0) throw bad(`it does not replay to RTMR${wrong}`);
  return passed(`${events.length} events replay to all four RTMRs`, events);
}

/** Replays the events into four registers that begin as zero: each becomes SHA-384(register ‖ digest). */
async function replay(events: readonly LogEvent[]): Promise<Uint8Array[]> {
  const registers: Uint8Array[] = Array.from({ length: 4 }, () => new Uint8Array(SHA384_BYTES));
  for (const { rtmr, digest: extended } of events)
    registers[rtmr] = await digest('SHA-384', concat([registers[rtmr] ?? new Uint8Array(), extended]));
  return registers;
}

/** @throws {CheckFailure} event_log_mismatch */
export async function readEventLog(log: Uint8Array): Promise<LogEvent[]> {
  if (log.length > MAX_LOG_BYTES) throw bad('it is too large');
  return log[0] === 0x5b ? readJsonLog(log) : readCcel(log);
}

/** CCEL: an event in the old form, which lists the digests, then events with several digests each. */
function readCcel(log: Uint8Array): LogEvent[] {
  const reader = new ByteReader(log, bad);
  const sizes = readHead(reader);
  const events: LogEvent[] = [];
  for (let count = 0; reader.left >= 4; count++) {
    const register = reader.number(4);
    if (register === UNUSED) break;
    if (count === MAX_EVENTS) throw bad('it has too many events');
    const type = reader.number(4);
    const extended = readDigests(reader, sizes);
    const data = reader.take(reader.number(4));
    if (type === EV_NO_ACTION) continue;
    // Index 0 is MRTD, which cannot be extended once a guest runs.
    if (register < 1 || register > 4) throw bad('an event of a register that there is not');
    events.push({ rtmr: register - 1, type, digest: extended, name: null, data });
  }
  return events;
}

/** The log up to its last event, without the unused memory of ones or zeros behind it; null where it is no log that verifiers read. */
export function cutEventLog(log: Uint8Array): Uint8Array | null {
  const isUnused = (bytes: Uint8Array) => [0xff, 0].some((fill) => bytes.every((byte) => byte === fill));
  try {
    const reader = new ByteReader(log, bad);
    const sizes = readHead(reader);
    while (reader.left > 0 && !isUnused(log.subarray(-reader.left).subarray(0, 8))) {
      reader.take(8);
      readDigests(reader, sizes);
      reader.take(reader.number(4));
    }
    return reader.taken.length > MAX_LOG_BYTES ? null : reader.taken;
  } catch (error) {
    if (error instanceof CheckFailure) return null;
    throw error;
  }
}

/** An event in the old form that holds TCG_EfiSpecIdEvent: the sizes of digests by algorithm. */
function readHead(log: ByteReader): Map<number, number> {
  log.number(4);
  if (log.number(4) !== EV_NO_ACTION) throw bad('it has no head');
  log.take(20);
  const reader = new ByteReader(log.take(log.number(4)), bad);
  if (new TextDecoder().decode(reader.take(16)) !== 'Spec ID Event03\0') throw bad('it is of another form');
  reader.take(8);
  const count = reader.number(4);
  if (count > MAX_ALGORITHMS) throw bad('it names too many algorithms');
  const sizes = new Map(Array.from({ length: count }, () => [reader.number(2), reader.number(2)] as const));
  if (sizes.get(SHA384) !== SHA384_BYTES) throw bad('it has no SHA-384 digests');
  return sizes;
}

function readDigests(reader: ByteReader, sizes: ReadonlyMap<number, number>): Uint8Array {
  const count = reader.number(4);
  if (count > MAX_ALGORITHMS) throw bad('an event has too many digests');
  let extended: Uint8Array | undefined;
  for (let i = 0; i < count; i++) {
    const algorithm = reader.number(2);
    const size = sizes.get(algorithm);
    if (size === undefined) throw bad('a digest of an algorithm that the head does not name');
    const value = reader.take(size);
    if (algorithm === SHA384) extended ??= value;
  }
  if (extended === undefined) throw bad('an event without a SHA-384 digest');
  return extended;
}

/** `[{imr, event_type, digest, event, event_payload}]`: of RTMR3 the digest is over the type, the name and the payload. */
async function readJsonLog(log: Uint8Array): Promise<LogEvent[]> {
  let value: unknown;
  try {
    value = JSON.parse(fromUtf8(log));
  } catch (cause) {
    throw bad('it is not JSON', cause);
  }
  if (!Array.isArray(value) || value.length > MAX_EVENTS) throw bad('it is no list of events, or too long');
  const events = value.map(readJsonEvent);
  for (const event of events) {
    if (event.name === null) continue;
    const type = Uint8Array.of(event.type, event.type >> 8, event.type >> 16, event.type >> 24);
    const own = await digest('SHA-384', concat([type, utf8(`:${event.name}:`), event.data]));
    if (!equal(own, event.digest)) throw bad('the digest of an event in RTMR3 is not over its name and data');
  }
  return events;
}

const isUint32 = (value: unknown): value is number =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= UNUSED;

function readJsonEvent(value: unknown): LogEvent {
  const {
    imr,
    event_type: type,
    digest: extended,
    event,
    event_payload: data,
  } = (value ?? {}) as Record<string, unknown>;
  const isEvent =
    (imr === 0 || imr === 1 || imr === 2 || imr === RUNTIME_RTMR) &&
    isUint32(type) &&
    typeof extended === 'string' &&
    extended.length === 2 * SHA384_BYTES &&
    typeof event === 'string' &&
    typeof data === 'string';
  if (!isEvent) throw bad('it has an event of another form');
  try {
    const name = imr === RUNTIME_RTMR ? event : null;
    // The digest is over "type:name:payload": if a name could hold a colon, several names could have one digest.
    if (name?.includes(':')) throw bad('the name of an event in RTMR3 has a colon');
    return { rtmr: imr, type, digest: fromHex(extended), name, data: fromHex(data) };
  } catch (cause) {
    throw cause instanceof EncodingError ? bad('an event is not in hex', cause) : cause;
  }
}

/** The payload of the one event of that name in RTMR3; undefined where there is none, or several. @param events replayed. */
export function runtimePayload(events: readonly LogEvent[], name: string): Uint8Array | undefined {
  const own = events.filter((event) => event.name === name);
  return own.length === 1 ? own[0]?.data : undefined;
}
