// configfs-tsm in memory, with the kernel's rules (fs/configfs/file.c, drivers/virt/coco/guest/report.c): one machine, on which
// several processes have the same or different entries.
import { basename, dirname } from 'node:path';
import { makeIntel, makePck, makeQuote, type QuoteSpec } from '../../../demo/twin/tdx.ts';
import type { createTsmCollector } from '../../../sidecar/cpu/tsm.ts';

type TsmFs = NonNullable<Parameters<typeof createTsmCollector>[0]['fs']>;

export const REPORTS = '/sys/kernel/config/tsm/report';
export const KEPT = `${REPORTS}/countersign`;

export interface Blobs {
  readonly outblob: Buffer;
  /** Not of TDX. */
  readonly auxblob?: Buffer;
}

/** `fill` is the second half of a read of a blob: the kernel asks for its length first, and lets go of its lock between. */
type Operation = 'mkdir' | 'write' | 'read' | 'fill' | 'rmdir';

interface FakeOptions {
  /** `sev_guest`, `tdx_guest`; null: no driver is loaded. */
  readonly provider?: string | null;
  /** Root made the kept entry. */
  readonly kept?: boolean;
  /** Makes a report while the machine's lock is held. It may wait, throw what {@link errno} makes, or return another's report. */
  readonly report?: (inblob: Buffer) => Blobs | Promise<Blobs>;
  /** Called before each operation without any lock held. It may wait, throw, or do something else first. */
  readonly before?: (operation: Operation, path: string) => void | Promise<void>;
  /** Other files, by path. */
  readonly files?: Readonly<Record<string, Buffer>>;
}

interface Entry {
  written: number;
  read: number;
  inblob: Buffer;
  blobs: Blobs | null;
}

export interface FakeTsm {
  readonly fs: TsmFs;
  /** As {@link fs}, but without `before`: for another process that a test steps by hand. */
  readonly other: TsmFs;
  /** Operations of `fs`, as 'read countersign/outblob'. */
  readonly operations: readonly string[];
  /** How many reports were made. */
  readonly reports: number;
  readonly entries: readonly string[];
  /** rmdir by root. */
  remove(path: string): void;
}

const MAX_INBLOB_BYTES = 64;

export function errno(code: string, path?: string): NodeJS.ErrnoException {
  return Object.assign(new Error(code), { code, ...(path === undefined ? {} : { path }) });
}

export function createFakeTsm(options: FakeOptions = {}): FakeTsm {
  const { provider = 'sev_guest', kept = true, report = snpBlobs, before = () => {}, files = {} } = options;
  const entries = new Map<string, Entry>();
  const operations: string[] = [];
  let reports = 0;
  let lock: Promise<unknown> = Promise.resolve();

  const make = (path: string) => entries.set(path, { written: 0, read: 0, inblob: Buffer.alloc(0), blobs: null });
  if (kept) make(KEPT);

  /** One at a time on the whole machine, also across entries. */
  function locked<T>(work: () => T | Promise<T>): Promise<T> {
    const done = lock.then(work);
    lock = done.catch(() => {});
    return done;
  }

  function find(path: string): Entry {
    const entry = entries.get(dirname(path));
    const isThere = basename(path) !== 'auxblob' || provider === 'sev_guest';
    if (entry === undefined || !isThere) throw errno('ENOENT', path);
    return entry;
  }

  /** The blobs over what is in `inblob` now; a failure leaves everything as it is. */
  async function blobsOf(path: string): Promise<Blobs> {
    const entry = find(path);
    if (entry.inblob.length === 0) throw errno('EINVAL');
    if (entry.blobs !== null && entry.read === entry.written) return entry.blobs;
    if (provider === null) throw errno('ENXIO');
    // Both drivers check it when the report is made.
    if (entry.inblob.length !== MAX_INBLOB_BYTES) throw errno('EINVAL');
    entry.blobs = await report(Buffer.from(entry.inblob));
    reports++;
    entry.read = entry.written;
    return entry.blobs;
  }

  const select = (blobs: Blobs, path: string): Buffer =>
    basename(path) === 'outblob' ? blobs.outblob : (blobs.auxblob ?? Buffer.alloc(0));

  async function readBlob(path: string, step: FakeOptions['before']): Promise<Buffer> {
    const length = await locked(async () => select(await blobsOf(path), path).length);
    if (length === 0) return Buffer.alloc(0);
    await step?.('fill', path);
    // Another's report may have been made meanwhile: its bytes, in a buffer of the first one's size.
    const buffer = Buffer.alloc(length);
    await locked(async () => select(await blobsOf(path), path).copy(buffer));
    return buffer;
  }

  function readText(path: string): string {
    if (basename(path) === 'generation') return `${find(path).written}\n`;
    if (basename(path) !== 'provider') throw errno('ENOENT', path);
    find(path);
    if (provider === null) throw errno('ENXIO');
    return `${provider}\n`;
  }

  function processWith(step: NonNullable<FakeOptions['before']>): TsmFs {
    return {
      async mkdir(path) {
        await step('mkdir', path);
        await locked(() => {
          if (dirname(path) !== REPORTS) throw errno('ENOENT', path);
          if (entries.has(path)) throw errno('EEXIST', path);
          if (provider === null) throw errno('ENXIO', path);
          make(path);
        });
      },
      async write(path, bytes) {
        await step('write', path);
        const entry = find(path);
        const isTooLong = bytes.length > MAX_INBLOB_BYTES;
        // What was written counts at the close, of whose failures nobody hears: the entry may be gone by then.
        await locked(() => {
          if (entries.get(dirname(path)) !== entry) return;
          entry.written++;
          entry.inblob = isTooLong ? Buffer.alloc(0) : Buffer.from(bytes);
        });
        if (isTooLong) throw errno('EFBIG');
      },
      async read(path) {
        await step('read', path);
        if (files[path] !== undefined) return Buffer.from(files[path]);
        find(path);
        if (/^(out|aux)blob$/.test(basename(path))) return readBlob(path, step);
        return locked(() => Buffer.from(readText(path)));
      },
      async rmdir(path) {
        await step('rmdir', path);
        if (!entries.delete(path)) throw errno('ENOENT', path);
      },
    };
  }

  return {
    fs: processWith(async (operation, path) => {
      if (operation !== 'fill') operations.push(`${operation} ${path.replace(`${REPORTS}/`, '')}`);
      await before(operation, path);
    }),
    other: processWith(() => {}),
    operations,
    get reports() {
      return reports;
    },
    get entries() {
      return [...entries.keys()];
    },
    remove: (path) => void entries.delete(path),
  };
}

/** A report without a signature, and in `auxblob` the bytes that it is over. */
export function snpBlobs(inblob: Buffer): Blobs {
  const outblob = Buffer.alloc(1184);
  // Version 2; the bit of the policy that is always one; ECDSA P-384.
  for (const [at, value] of [
    [0, 2],
    [8, 1 << 17],
    [0x34, 1],
  ] as const)
    outblob.writeUInt32LE(value, at);
  inblob.copy(outblob, 0x50);
  return { outblob, auxblob: Buffer.concat([Buffer.from('certificates'), inblob]) };
}

const intel = makeIntel();
const pck = makePck(intel);
export const INTEL_ROOT = intel.root;

/** Quotes that verify under {@link INTEL_ROOT}, in a buffer of the host's size. */
export const tdxBlobs =
  (spec: QuoteSpec = {}, bytes = 8000) =>
  (inblob: Buffer): Blobs => {
    const quote = makeQuote(intel, pck, { ...spec, reportData: inblob, tail: Buffer.alloc(0) });
    return { outblob: Buffer.concat([quote], bytes) };
  };
