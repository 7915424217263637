// Collects a confidential VM's evidence from Linux's configfs-tsm: a process that writes 64 bytes to an entry's `inblob` and reads its
// `outblob` has the processor sign them (Linux, Documentation/ABI/testing/configfs-tsm-report).
import { randomBytes } from 'node:crypto';
import { constants, mkdir, open, readFile, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { appraiseCpu, type CpuType } from '../../verify/cpu.ts';
import { CheckFailure } from '../../verify/index.ts';
import { cutEventLog, parseSnpReport, parseTdxQuote, SNP_REPORT_BYTES } from '../../verify/service.ts';
import { AttesterError } from '../common/attester.ts';
import { createLock, holding } from '../common/lock.ts';
import { DRIVER_READ_RETRY, withRetries } from '../common/retry.ts';
import {
  type CpuCollector,
  type CpuEvidence,
  PROVIDERS,
  REPORT_DEADLINE_MS,
  refused,
  unavailable,
  unsupported,
} from './cpu-collector.ts';

/** File system calls; they reject with the system's errors, which have a `code`. */
interface TsmFs {
  mkdir(path: string): Promise<void>;
  /** Opens a file that exists, writes to it once, and closes it: the kernel takes the bytes at the close, and reports no failure then. */
  write(path: string, bytes: Uint8Array): Promise<void>;
  read(path: string): Promise<Buffer>;
  rmdir(path: string): Promise<void>;
}

/** Not yet trusted: the only check so far is that `report` is over the right bytes. */
interface TsmEvidence {
  readonly type: CpuType;
  /** The attestation report, or the quote without the host's padding. */
  readonly report: Buffer;
  /** AMD: the host's certificate table, not yet parsed; empty without one. */
  readonly auxblob: Buffer;
}

interface TsmCollectorOptions {
  /** The entry that root made for the sidecar. Where it does not exist, a private one is made beside it for each report. */
  readonly entry: string;
  /** The log of the guest's measured boot, in the memory that ACPI's table CCEL names; only root may read it on most systems. */
  readonly event_log?: string;
  readonly fs?: TsmFs;
  /** Gets the endorsements of the processor's key. @throws {AttesterError} */
  readonly endorse: (
    evidence: TsmEvidence,
    signal: AbortSignal,
  ) => Promise<Pick<CpuEvidence, 'certificates' | 'collateral'>>;
  /** How long a report may take before further ones are refused. */
  readonly deadline_ms?: number;
}

const CCEL = '/sys/firmware/acpi/tables/data/CCEL';
/** Attempts at a report while other processes write to the same entry. */
const MAX_ATTEMPTS = 2;
const NOTHING: Buffer = Buffer.alloc(0);

/** @throws {AttesterError} there is no entry and none can be made, or the processor is of another kind. */
export async function createTsmCollector(options: TsmCollectorOptions): Promise<CpuCollector> {
  const { entry, event_log = CCEL, fs = nodeFs, endorse, deadline_ms = REPORT_DEADLINE_MS } = options;
  const exclusive = oneAtATime(deadline_ms);
  const type = await exclusive(() => withEntry(fs, entry, async (_, found) => found), new AbortController().signal);

  /** Every step except the endorsements. @throws {AttesterError} */
  async function collectReport(reportData: Buffer, signal: AbortSignal): Promise<TsmEvidence> {
    const { outblob, auxblob } = await exclusive(
      (ended) => withEntry(fs, entry, (path) => readBlobs(fs, path, type, reportData, ended)),
      signal,
    );
    const signed = readSigned(type, outblob);
    if (!reportData.equals(signed.reportData)) throw refused('the report is over other bytes than were asked for');
    return { type, report: Buffer.from(signed.report), auxblob };
  }

  return {
    type,
    simulated: null,
    async collect(reportData, signal) {
      const evidence = await collectReport(Buffer.from(reportData), signal);
      const report = evidence.report.toString('base64');
      const log = type === 'TDX' ? await readEventLog(() => fs.read(event_log), report) : null;
      return {
        type,
        report,
        ...(await endorse(evidence, signal)),
        ...(log === null ? {} : { event_log: log }),
      };
    },
  };
}

/**
 * Runs one call of `work` after the other. A read that hangs in the kernel cannot be cancelled: an abort ends only the wait for it, the
 * next call begins when the read has ended, and once it is overdue every call is refused until then.
 */
function oneAtATime(deadline_ms: number) {
  const lock = createLock();
  let overdue = new AbortController();
  return <T>(work: (ended: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> => {
    const ended = AbortSignal.any([signal, overdue.signal]);
    const timed = async () => {
      const stuck = unavailable(
        `a read is not answered by the kernel for more than ${deadline_ms} ms, and no other starts before it is`,
      );
      const timer = setTimeout(() => overdue.abort(stuck), deadline_ms);
      try {
        return await work(ended);
      } catch (error) {
        throw error instanceof AttesterError || ended.aborted ? error : unavailable(wordsOf(error), { cause: error });
      } finally {
        clearTimeout(timer);
        if (overdue.signal.aborted) overdue = new AbortController();
      }
    };
    return holding([lock], timed, ended);
  };
}

/** Uses the kept entry, or where it does not exist, a temporary one of this process. */
async function withEntry<T>(fs: TsmFs, kept: string, use: (path: string, type: CpuType) => Promise<T>): Promise<T> {
  const provider = await orIfAbsent(fs.read(join(kept, 'provider')), null);
  if (provider !== null) return use(kept, typeOf(provider));
  const own = join(dirname(kept), `countersign-${process.pid}-${randomBytes(4).toString('hex')}`);
  try {
    await fs.mkdir(own);
  } catch (cause) {
    throw unavailable(`there is no ${kept}, and no other entry can be made: ${wordsOf(cause)}`, { cause });
  }
  try {
    return await use(own, typeOf(await fs.read(join(own, 'provider'))));
  } finally {
    // An entry that cannot be removed costs some kernel memory; the report is still valid.
    await fs.rmdir(own).catch(() => {});
  }
}

function typeOf(provider: Buffer): CpuType {
  const name = provider.toString().trim();
  const type = Object.hasOwn(PROVIDERS, name) ? PROVIDERS[name] : undefined;
  if (type === undefined) throw unsupported(`reports of ${JSON.stringify(name.slice(0, 64))}, not of SEV-SNP or TDX`);
  return type;
}

interface Blobs {
  readonly outblob: Buffer;
  readonly auxblob: Buffer;
}

/** Each write advances `generation`; a jump of more than one means that another process wrote, so read again. */
async function readBlobs(
  fs: TsmFs,
  path: string,
  type: CpuType,
  reportData: Buffer,
  ended: AbortSignal,
): Promise<Blobs> {
  const read = async (name: string) => {
    ended.throwIfAborted();
    return withRetries(() => fs.read(join(path, name)), { ...DRIVER_READ_RETRY, isRetryable: isBusy, signal: ended });
  };
  const generation = async () => Number(await fs.read(join(path, 'generation')));
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const before = await generation();
    ended.throwIfAborted();
    await fs.write(join(path, 'inblob'), reportData);
    const outblob = await read('outblob');
    const auxblob = type === 'SEV_SNP' ? await orIfAbsent(read('auxblob'), NOTHING) : NOTHING;
    if ((await generation()) === before + 1) return { outblob, auxblob };
  }
  throw unavailable(`another process writes to ${path} at the same time`);
}

// What the blobs hold; verify/ reads and, later, checks it.

interface Signed {
  readonly report: Uint8Array;
  readonly reportData: Uint8Array;
}

/** Without the padding: hosts return a quote in a larger buffer. @throws {AttesterError} */
function readSigned(type: CpuType, blob: Buffer): Signed {
  try {
    if (type === 'SEV_SNP') {
      const report = blob.subarray(0, SNP_REPORT_BYTES);
      return { report, reportData: parseSnpReport(report).reportData };
    }
    const { bytes, body } = parseTdxQuote(blob);
    return { report: bytes, reportData: body.reportData };
  } catch (cause) {
    if (!(cause instanceof CheckFailure)) throw cause;
    throw cause.code === 'cpu_unsupported' ? unsupported(cause.message) : refused(cause.message, { cause });
  }
}

/**
 * The log of the measured boot as base64; null where this process can read none, or where it does not replay to RTMR0 to 2:
 * relying parties refuse evidence with such a log. It has no entries for what software extends into RTMR3.
 */
async function readEventLog(read: () => Promise<Buffer>, report: string): Promise<string | null> {
  const log = await read().then(cutEventLog, () => null);
  if (log === null) return null;
  const event_log = Buffer.from(log).toString('base64');
  const { checks } = await appraiseCpu({ type: 'TDX', report, event_log });
  return checks.some(({ name, status }) => name === 'cpu_software' && status === 'fail') ? null : event_log;
}

// Failures of the driver.

const codeOf = (error: unknown): string => String((error as NodeJS.ErrnoException | null)?.code ?? '');
const isBusy = (error: unknown): boolean => ['EBUSY', 'EINTR'].includes(codeOf(error));

/** The driver's errors, in words for an operator. */
const WORDS: Readonly<Record<string, string>> = {
  EACCES: 'this process may not',
  EBUSY: 'the driver has not finished an earlier request',
  ENOENT: 'the entry, or configfs-tsm, is not there',
  ENXIO: "no driver of a confidential VM is loaded, such as 'sev-guest' or 'tdx-guest'",
  EPERM: 'this process may not',
  EROFS: 'the file system is mounted read-only',
  ETIMEDOUT: 'the host did not answer the driver',
};

function wordsOf(error: unknown): string {
  const [code, { path }] = [codeOf(error), error as NodeJS.ErrnoException];
  if (WORDS[code] !== undefined) return `${WORDS[code]} (${code}${path === undefined ? '' : ` at ${path}`})`;
  return error instanceof Error ? error.message : String(error);
}

async function orIfAbsent<T, U>(found: Promise<T>, absent: U): Promise<T | U> {
  try {
    return await found;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return absent;
    throw error;
  }
}

const nodeFs: TsmFs = {
  mkdir: (path) => mkdir(path),
  async write(path, bytes) {
    const file = await open(path, constants.O_WRONLY);
    try {
      const { bytesWritten } = await file.write(bytes);
      if (bytesWritten !== bytes.length) throw new Error(`${path} took ${bytesWritten} bytes of ${bytes.length}`);
    } finally {
      await file.close();
    }
  },
  read: (path) => readFile(path),
  rmdir: (path) => rmdir(path),
};
