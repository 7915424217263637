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

export interface ReplayedLog {
  readonly events: readonly LogEvent[];
  /** False where the log has no event of RTMR3, which the guest has extended. Linux's tsm interface extends it without an entry in CCEL. */
  readonly explainsRtmr3: boolean;
}

/** @throws {CheckFailure} event_log_mismatch */
export async function checkEventLog(rtmrs: readonly Uint8Array[], log: Uint8Array): Promise<Passed<ReplayedLog>> {
  const events = await readEventLog(log);
  const replayed = await replay(events);
  const wrong = replayed.findIndex((register, i) => !equal(register, rtmrs[i] ?? new Uint8Array()));
  if (wrong < 0) return passed(`${events.length} events replay to all four RTMRs`, { events, explainsRtmr3: true });
  if (wrong !== RUNTIME_RTMR || events.some(({ rtmr }) => rtmr === RUNTIME_RTMR))
    throw bad(`it does not replay to RTMR${wrong}`);
  const detail = `${events.length} events replay to RTMR0 to 2; RTMR3 is not explained by the log`;
  return passed(detail, { events, explainsRtmr3: false });
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
  const events: LogEvent[] = [];
  for (const event of value.map(readJsonEvent)) {
    const own = event.name === null ? event.digest : await runtimeDigest(event, event.name);
    if (event.digest.length > 0 && !equal(own, event.digest))
      throw bad('the digest of an event in RTMR3 is not over its name and data');
    if (event.type !== EV_NO_ACTION) events.push({ ...event, digest: own });
  }
  return events;
}

function runtimeDigest({ type, data }: LogEvent, name: string): Promise<Uint8Array> {
  const bytes = Uint8Array.of(type, type >> 8, type >> 16, type >> 24);
  return digest('SHA-384', concat([bytes, utf8(`:${name}:`), data]));
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
    // dstack leaves the digest of an event in RTMR3 empty.
    (extended.length === 2 * SHA384_BYTES || (imr === RUNTIME_RTMR && extended === '')) &&
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

/**
 * The payload of the first event of RTMR3; undefined where it has another name, or another event has the same.
 * Software that was launched can add events, but only behind it.
 * @param events replayed.
 */
export function runtimePayload(events: readonly LogEvent[], name: string): Uint8Array | undefined {
  const [first, ...later] = events.filter(({ rtmr }) => rtmr === RUNTIME_RTMR);
  return first?.name === name && later.every((event) => event.name !== name) ? first.data : undefined;
}
