// The relying party's reference values: guests that it knows by their measurements, and launch files that it accepts.

import type { Launch } from '../../proto/attestation/launch.ts';
import { isObject, JsonTextError, parseStrict } from '../../proto/json.ts';
import { isDigest, isZero, toHex } from '../common/bytes.ts';
import { CheckFailure, type Passed, passed } from '../common/checks.ts';
import type { CpuReference, CpuSoftware, CpuType, GuestReference } from './cpu-options.ts';
import { type LogEvent, type ReplayedLog, runtimePayload } from './evidence/event-log.ts';
import type { SnpReport } from './evidence/snp-report.ts';
import type { TdReport } from './evidence/tdx-quote.ts';

/** The measured values that are compared. */
interface Measured {
  readonly type: CpuType;
  readonly snp: SnpReport | null;
  readonly tdx: TdReport | null;
  readonly pcrs: readonly Uint8Array[] | null;
  readonly hasEventLog: boolean;
}

// Reads the list.

const MAX_CHARACTERS = 1024 * 1024;
const MAX_ENTRIES = 1024;
const PCRS = 24;
const isSha384 = (value: unknown) => typeof value === 'string' && /^[0-9a-f]{96}$/.test(value);

/** @param input the list: JSON text, or parsed. @throws {TypeError} naming what is wrong. */
export function readReference(input: unknown): CpuReference {
  const value = record(typeof input === 'string' ? parsed(input) : input, 'it');
  only(value, ['version', 'cpu', 'launch'], []);
  if (value.version !== 1) throw wrong('version is not 1');
  values(value.launch, 'launch', isDigest);
  for (const [index, entry] of list(value.cpu, 'cpu').entries()) checkEntry(record(entry, `cpu[${index}]`), index);
  return value as unknown as CpuReference;
}

function checkEntry(entry: Json, index: number): void {
  const at = (name: string) => `cpu[${index}].${name}`;
  const of = (name: string) => values(entry[name], at(name), isSha384);
  const launchIn = (...fields: readonly string[]) => {
    if (!fields.includes(entry.launch_in as string)) throw wrong(`${at('launch_in')} is not ${fields.join(' or ')}`);
  };
  const { type, vmpl } = entry;
  if (vmpl !== undefined && !list(vmpl, at('vmpl')).every((level) => [0, 1, 2, 3].includes(level as number)))
    throw wrong(`${at('vmpl')} is not a list of 0 to 3`);
  switch (type) {
    case 'SEV_SNP':
      only(entry, ['type', 'measurement', 'vmpl', 'id_key_digest', 'launch_in'], [at('')]);
      of('measurement');
      if (entry.id_key_digest !== undefined) of('id_key_digest');
      return launchIn('host_data', 'measurement');
    case 'TDX':
      only(entry, ['type', 'mrtd', 'rtmr0', 'rtmr1', 'rtmr2', 'rtmr3', 'launch_in'], [at('')]);
      for (const name of ['mrtd', 'rtmr1', 'rtmr2']) of(name);
      if (entry.rtmr0 !== null) of('rtmr0');
      if (entry.rtmr3 !== undefined) of('rtmr3');
      return launchIn('mrconfigid', 'rtmr3', 'measurement');
    case 'AZURE_SEV_SNP':
    case 'AZURE_TDX': {
      only(entry, ['type', 'measurement', 'vmpl', 'pcrs', 'launch_in'], [at('')]);
      of('measurement');
      const pcrs = Object.entries(record(entry.pcrs, at('pcrs')));
      if (pcrs.length === 0) throw wrong(`${at('pcrs')} names no register`);
      for (const [pcr, digests] of pcrs) {
        if (!/^(0|[1-9]\d?)$/.test(pcr) || Number(pcr) >= PCRS)
          throw wrong(`${at('pcrs')} has a register that there is not`);
        values(digests, `${at('pcrs')}[${pcr}]`, isDigest);
      }
      return launchIn('measurement');
    }
    default:
      throw wrong(`${at('type')} is not known`);
  }
}

type Json = Readonly<Record<string, unknown>>;

const wrong = (message: string, cause?: unknown) => new TypeError(`reference cannot be used: ${message}`, { cause });

function parsed(text: string): unknown {
  if (text.length > MAX_CHARACTERS) throw wrong(`more than ${MAX_CHARACTERS} characters`);
  try {
    return parseStrict(text);
  } catch (cause) {
    throw wrong(cause instanceof JsonTextError ? cause.message : 'it is not JSON', cause);
  }
}

function record(value: unknown, name: string): Json {
  if (!isObject(value)) throw wrong(`${name} is not an object`);
  return { ...value };
}

function only(value: Json, names: readonly string[], [where = '']: readonly string[]): void {
  const other = Object.keys(value).find((name) => !names.includes(name));
  if (other !== undefined) throw wrong(`${where}${other.slice(0, 64)} is no member of it`);
}

function list(value: unknown, name: string): readonly unknown[] {
  if (!Array.isArray(value) || value.length === 0 || value.length > MAX_ENTRIES)
    throw wrong(`${name} is not a list of 1 to ${MAX_ENTRIES}`);
  return value;
}

function values(value: unknown, name: string, isRight: (value: unknown) => boolean): void {
  if (!list(value, name).every(isRight))
    throw wrong(`${name} is not a list of ${isRight === isDigest ? 64 : 96} lowercase hex digits`);
}

// Compares a guest with the list.

/** @throws {CheckFailure} measurement_mismatch */
export function checkMeasurement(measured: Measured, { cpu }: CpuReference): Passed<GuestReference> {
  const ofType = cpu.filter(({ type }) => type === measured.type);
  const mismatches = ofType.map((entry) => mismatch(entry, measured));
  const found = ofType[mismatches.indexOf(null)];
  if (found !== undefined) {
    const left = uncompared(found);
    return passed(`the guest is one of the caller's${left === null ? '' : `; ${left}`}`, found);
  }
  const reason = ofType.length === 1 ? `: ${mismatches[0]} is another` : '';
  throw new CheckFailure(
    'measurement_mismatch',
    `the guest is none of the caller's ${ofType.length} of type ${measured.type}${reason}`,
  );
}

/** Returns the first value in which the guest differs from the reference; null where it matches. */
function mismatch(entry: GuestReference, { snp, tdx, pcrs, hasEventLog }: Measured): string | null {
  const differs = (of: readonly string[] | null | undefined, value: Uint8Array | undefined) =>
    of != null && (value === undefined || !of.includes(toHex(value)));
  if (entry.type === 'TDX') {
    const { rtmrs = [] } = tdx ?? {};
    if (differs(entry.mrtd, tdx?.mrTd)) return 'MRTD';
    for (const [i, of] of [entry.rtmr0, entry.rtmr1, entry.rtmr2, entry.rtmr3].entries())
      if (differs(of, rtmrs[i])) return `RTMR${i}`;
    const isOpen = entry.rtmr3 === undefined && !hasEventLog && (rtmrs[3] === undefined || !isZero(rtmrs[3]));
    return isOpen ? 'RTMR3, which no event log explains,' : null;
  }
  if (differs(entry.measurement, snp?.measurement ?? tdx?.mrTd)) return snp === null ? 'MRTD' : 'MEASUREMENT';
  if (snp !== null && !(entry.vmpl ?? [0]).includes(snp.vmpl)) return `VMPL ${snp.vmpl}`;
  if (entry.type === 'SEV_SNP') return differs(entry.id_key_digest, snp?.idKeyDigest) ? 'ID_KEY_DIGEST' : null;
  const pcr = Object.entries(entry.pcrs).find(([index, of]) => differs(of, pcrs?.[Number(index)]));
  return pcr === undefined ? null : `PCR ${pcr[0]}`;
}

/** What a reference value leaves out, in words for the verdict. ACPI tables hold code, which the kernel runs with full rights. */
function uncompared(entry: GuestReference): string | null {
  if (entry.type === 'SEV_SNP') return 'nothing measures the ACPI tables that the host supplies, and they are code';
  if (entry.type === 'TDX' && entry.rtmr0 === null)
    return 'the ACPI tables that the host supplies (RTMR0) were not compared, and they are code';
  if (entry.type === 'TDX') return null;
  const compared = Object.keys(entry.pcrs).join(', ');
  return `of the TPM's registers only ${compared} were compared, and Azure's paravisor, which holds them, is trusted`;
}

const RTMR3_OPEN = 'what extended RTMR3 while the guest ran is not explained by the event log';

/** The launch file that a session's statement names. */
export interface NamedLaunch {
  /** SHA-256 in hex; null: the statement names none. */
  readonly sha256: string | null;
  /** null: it is not at hand. */
  readonly file: Launch | null;
}

interface LaunchInput {
  readonly guest: GuestReference;
  readonly reference: CpuReference;
  readonly measured: Measured;
  readonly named: NamedLaunch;
  /** The replayed event log, if there is one. */
  readonly replayed: Passed<ReplayedLog> | null;
}

/** Compares the launch file that the guest was started with. @throws {CheckFailure} software_mismatch */
export function checkLaunch({ guest, reference, measured, named, replayed }: LaunchInput): Passed<CpuSoftware> {
  const launch = launchOf(guest, measured, replayed?.value.events ?? [], named.sha256);
  if (!reference.launch.includes(launch))
    throw new CheckFailure('software_mismatch', `the launch file ${launch} is none of the caller's`);
  const source = guest.launch_in === 'measurement' ? 'by the measured guest' : `in ${FIELDS[guest.launch_in]}`;
  const detail = `${replayed === null ? '' : `${replayed.detail}; `}a launch file of the caller's is named ${source}`;
  const isOpen = guest.type === 'TDX' && guest.rtmr3 === undefined && replayed?.value.explainsRtmr3 === false;
  const left = [uncompared(guest), isOpen ? RTMR3_OPEN : null].filter((one) => one !== null);
  return passed(detail, {
    launch,
    images: named.file?.images ?? null,
    weights: named.file?.weights ?? null,
    model: named.file?.model ?? null,
    uncompared: left.length === 0 ? null : left.join('; '),
  });
}

/** The launch file's digest, from the field that the reference names. @throws {CheckFailure} software_mismatch */
function launchOf(
  { launch_in }: GuestReference,
  { snp, tdx }: Measured,
  events: readonly LogEvent[],
  named: string | null,
): string {
  const found = () => {
    switch (launch_in) {
      case 'host_data':
        return snp?.hostData;
      case 'mrconfigid':
        return unpadded(tdx?.mrConfigId);
      case 'rtmr3':
        return runtimePayload(events, LAUNCH_EVENT);
      case 'measurement':
        return named;
    }
  };
  const digest = found();
  if (digest == null) throw new CheckFailure('software_mismatch', `no launch file is named in ${FIELDS[launch_in]}`);
  const text = typeof digest === 'string' ? digest : toHex(digest);
  if (named !== null && named !== text)
    throw new CheckFailure('software_mismatch', `the statement names another launch file than ${FIELDS[launch_in]}`);
  return text;
}

/** The event in RTMR3 that the image's first unit writes. */
const LAUNCH_EVENT = 'countersign-launch';

const FIELDS = {
  host_data: 'HOST_DATA',
  mrconfigid: 'MRCONFIGID',
  rtmr3: 'RTMR3',
  measurement: 'the statement',
} as const;
const DIGEST_BYTES = 32;

/** The digest in a field of 48 bytes; undefined unless zeros follow its 32 bytes. */
function unpadded(field: Uint8Array | undefined): Uint8Array | undefined {
  return field !== undefined && isZero(field.subarray(DIGEST_BYTES)) ? field.subarray(0, DIGEST_BYTES) : undefined;
}
