import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { AttesterError } from '../../../sidecar/common/attester.ts';
import { TSM_ENTRY } from '../../../sidecar/config.ts';
import { pem } from '../../../sidecar/cpu/simulated/authority.ts';
import { createTsmCollector, type TsmEvidence } from '../../../sidecar/cpu/tsm.ts';
import { appraiseCpu } from '../../../verify/cpu/index.ts';
import { vector, vectorsPresent } from '../../vectors.ts';
import { createFakeTsm, errno, type FakeTsm, INTEL_ROOT, KEPT, REPORTS, snpBlobs, tdxBlobs } from './fake-tsm.ts';

const NEVER = new AbortController().signal;
const GENERATION = 'read countersign/generation';
const PROVIDER = 'read countersign/provider';
/** One undisturbed report over the kept entry. */
const STEPS = ['write countersign/inblob', 'read countersign/outblob', 'read countersign/auxblob', GENERATION];

const bytes = (fill: number) => new Uint8Array(64).fill(fill);
const dataIn = (report: string) => Buffer.from(report, 'base64').subarray(0x50, 0x90);
const reason = (of: string, words = /./) => ({
  name: 'AttesterError',
  reason: of,
  message: expect.stringMatching(words),
});

type Options = Partial<Parameters<typeof createTsmCollector>[0]>;

async function start(fake: FakeTsm, options: Options = {}) {
  const endorsed: TsmEvidence[] = [];
  const collector = await createTsmCollector({
    entry: TSM_ENTRY,
    fs: fake.fs,
    async endorse(evidence) {
      endorsed.push(evidence);
      return { certificates: 'given' };
    },
    ...options,
  });
  return { collector, endorsed, collect: (fill: number, signal = NEVER) => collector.collect(bytes(fill), signal) };
}

/** A promise that a test keeps. */
function gate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** Lets everything happen that waits for no gate. */
const settled = () => new Promise((resolve) => setTimeout(resolve, 20));

describe('the kernel that the tests have in its place', () => {
  const write = (fake: FakeTsm, value: Uint8Array, entry = KEPT) => fake.fs.write(`${entry}/inblob`, value);
  const read = (fake: FakeTsm, name: string, entry = KEPT) => fake.fs.read(`${entry}/${name}`);

  it('makes the report when it is read, once for each generation', async () => {
    const fake = createFakeTsm();
    await write(fake, bytes(1));
    await write(fake, bytes(2));
    expect(fake.reports).toBe(0);
    expect(String(await read(fake, 'generation'))).toBe('2\n');
    expect((await read(fake, 'outblob')).subarray(0x50, 0x90)).toEqual(Buffer.from(bytes(2)));
    await read(fake, 'auxblob');
    expect(fake.reports).toBe(1);
  });

  it('says of an inblob of another size only when it is read that it cannot be used', async () => {
    const fake = createFakeTsm();
    await expect(read(fake, 'outblob')).rejects.toMatchObject({ code: 'EINVAL' });
    await write(fake, bytes(1).subarray(1));
    await expect(read(fake, 'outblob')).rejects.toMatchObject({ code: 'EINVAL' });
    await expect(write(fake, new Uint8Array(65))).rejects.toMatchObject({ code: 'EFBIG' });
  });

  it('leaves the generation alone when a read fails: reading again is the retry', async () => {
    const codes = ['EBUSY'];
    const fake = createFakeTsm({
      report(inblob) {
        const code = codes.pop();
        if (code !== undefined) throw errno(code);
        return snpBlobs(inblob);
      },
    });
    await write(fake, bytes(3));
    await expect(read(fake, 'outblob')).rejects.toMatchObject({ code: 'EBUSY' });
    expect(String(await read(fake, 'generation'))).toBe('1\n');
    expect((await read(fake, 'outblob')).subarray(0x50, 0x90)).toEqual(Buffer.from(bytes(3)));
  });

  it("lets another entry's write wait while a report is made", async () => {
    const { opened, open } = gate();
    const fake = createFakeTsm({ report: (inblob) => opened.then(() => snpBlobs(inblob)) });
    await fake.fs.mkdir(`${REPORTS}/other`);
    await write(fake, bytes(1));
    const order: string[] = [];
    const report = read(fake, 'outblob').then(() => order.push('report'));
    const written = write(fake, bytes(2), `${REPORTS}/other`).then(() => order.push('write'));
    await settled();
    expect(order).toEqual([]);
    open();
    await Promise.all([report, written]);
    expect(order.sort()).toEqual(['report', 'write']);
    expect(String(await read(fake, 'generation', `${REPORTS}/other`))).toBe('1\n');
  });

  it('makes no entry without a driver', async () => {
    const { fs } = createFakeTsm({ provider: null, kept: false });
    await expect(fs.mkdir(`${REPORTS}/mine`)).rejects.toMatchObject({ code: 'ENXIO' });
  });
});

describe('the collector', () => {
  it('takes the steps that the ABI names, on the kept entry', async () => {
    const fake = createFakeTsm();
    const { collector, collect, endorsed } = await start(fake);
    expect(collector).toMatchObject({ type: 'SEV_SNP', simulated: null });
    const { report, ...rest } = await collect(7);
    expect(rest).toEqual({ type: 'SEV_SNP', certificates: 'given' });
    const { outblob, auxblob } = snpBlobs(Buffer.from(bytes(7)));
    expect(Buffer.from(report, 'base64')).toEqual(outblob);
    expect(endorsed).toEqual([{ type: 'SEV_SNP', report: outblob, auxblob }]);
    expect(fake.operations).toEqual([PROVIDER, PROVIDER, GENERATION, ...STEPS]);
    expect(fake.entries).toEqual([KEPT]);
  });

  it('hands the abort of the caller to those who find endorsements, and their failure to the caller', async () => {
    const caller = new AbortController();
    const failure = new AttesterError('collection_failed', 'no certificates', true);
    const signals: AbortSignal[] = [];
    const { collect } = await start(createFakeTsm(), {
      async endorse(_, signal) {
        signals.push(signal);
        throw failure;
      },
    });
    await expect(collect(1, caller.signal)).rejects.toBe(failure);
    caller.abort();
    expect(signals.map(({ aborted }) => aborted)).toEqual([true]);
  });

  it.each([
    ['absent', (path: string) => (path.endsWith('auxblob') ? errno('ENOENT', path) : null), snpBlobs],
    ['empty', () => null, (inblob: Buffer) => ({ ...snpBlobs(inblob), auxblob: Buffer.alloc(0) })],
  ])('does without an auxblob that is %s', async (_, fails, report) => {
    const fake = createFakeTsm({
      report,
      before(operation, path) {
        const error = operation === 'read' ? fails(path) : null;
        if (error !== null) throw error;
      },
    });
    const { collect, endorsed } = await start(fake);
    await collect(1);
    expect(endorsed).toMatchObject([{ auxblob: Buffer.alloc(0) }]);
  });

  it('takes of a longer outblob what is the report', async () => {
    const padded = (inblob: Buffer) => ({ outblob: Buffer.concat([snpBlobs(inblob).outblob, Buffer.alloc(100, 9)]) });
    const { collect } = await start(createFakeTsm({ report: padded }));
    expect(Buffer.from((await collect(1)).report, 'base64')).toEqual(snpBlobs(Buffer.from(bytes(1))).outblob);
  });
});

describe('where there is no kept entry', () => {
  it('makes one of its own for each use, and removes it', async () => {
    const fake = createFakeTsm({ kept: false });
    const { collector, collect } = await start(fake);
    expect(collector.type).toBe('SEV_SNP');
    await collect(1);
    await collect(2);
    expect(fake.entries).toEqual([]);
    const made = fake.operations.filter((one) => one.startsWith('mkdir')).map((one) => one.slice('mkdir '.length));
    expect(made).toHaveLength(3);
    expect(new Set(made).size).toBe(3);
    for (const name of made) expect(name).toMatch(new RegExp(`^countersign-${process.pid}-[0-9a-f]{8}$`));
    expect(fake.operations.filter((one) => one.startsWith('rmdir'))).toEqual(made.map((name) => `rmdir ${name}`));
  });

  it.each(['EIO', 'EBUSY'])('removes it after a failure too: %s', async (code) => {
    const fake = createFakeTsm({
      kept: false,
      report() {
        throw errno(code);
      },
    });
    const { collect } = await start(fake);
    await expect(collect(1)).rejects.toMatchObject(reason('cpu_unavailable', new RegExp(code)));
    expect(fake.operations.filter((one) => one.startsWith('rmdir'))).toHaveLength(2);
    expect(fake.entries).toEqual([]);
  });

  it('gives the report also when its entry cannot be removed', async () => {
    const fake = createFakeTsm({
      kept: false,
      before(operation) {
        if (operation === 'rmdir') throw errno('EBUSY');
      },
    });
    const { collect } = await start(fake);
    expect(dataIn((await collect(4)).report)).toEqual(Buffer.from(bytes(4)));
  });

  it.each([
    ['EACCES', /there is no \S+\/countersign, and no other entry can be made: this process may not \(EACCES/],
    ['EROFS', /read-only \(EROFS/],
    ['ENOENT', /configfs-tsm, is not there \(ENOENT/],
  ])('says why it can make none: %s', async (code, words) => {
    const fake = createFakeTsm({
      kept: false,
      before(operation, path) {
        if (operation === 'mkdir') throw errno(code, path);
      },
    });
    await expect(start(fake)).rejects.toMatchObject(reason('cpu_unavailable', words));
  });
});

describe('a machine whose processor it cannot ask', () => {
  it.each([true, false])('has no driver (kept entry: %s)', async (kept) => {
    const fake = createFakeTsm({ provider: null, kept });
    await expect(start(fake)).rejects.toMatchObject(
      reason('cpu_unavailable', /no driver of a confidential VM is loaded/),
    );
  });

  it.each(['arm_cca_guest', 'constructor', ''])('has another provider: %j', async (provider) => {
    const fake = createFakeTsm({ provider, kept: false });
    await expect(start(fake)).rejects.toMatchObject({ ...reason('cpu_unsupported'), retryable: false });
    expect(fake.entries).toEqual([]);
  });

  it('keeps the entry from this process', async () => {
    const fake = createFakeTsm({
      before(operation, path) {
        if (operation === 'write') throw errno('EACCES', path);
      },
    });
    const { collect } = await start(fake);
    await expect(collect(1)).rejects.toMatchObject(reason('cpu_unavailable', /EACCES at \S+\/countersign\/inblob/));
    expect(fake.reports).toBe(0);
  });
});

describe('a read that fails', () => {
  /** Fails with these codes in turn before it makes a report. */
  const failing = (...codes: string[]) =>
    createFakeTsm({
      report(inblob) {
        const code = codes.shift();
        if (code !== undefined) throw errno(code);
        return snpBlobs(inblob);
      },
    });
  const count = (fake: FakeTsm, operation: string) => fake.operations.filter((one) => one === operation).length;

  it('is repeated while the driver is busy or was interrupted, without another write', async () => {
    const fake = failing('EBUSY', 'EINTR', 'EBUSY');
    const { collect } = await start(fake);
    expect(dataIn((await collect(5)).report)).toEqual(Buffer.from(bytes(5)));
    expect(count(fake, 'read countersign/outblob')).toBe(4);
    expect(count(fake, 'write countersign/inblob')).toBe(1);
  });

  it.each(['EBUSY', 'EINTR'])('is given up after four times of %s; the next collection begins anew', async (code) => {
    const fake = failing(code, code, code, code);
    const { collect } = await start(fake);
    await expect(collect(5)).rejects.toMatchObject({ ...reason('cpu_unavailable', new RegExp(code)), retryable: true });
    expect(count(fake, 'read countersign/outblob')).toBe(4);
    expect(dataIn((await collect(6)).report)).toEqual(Buffer.from(bytes(6)));
  });

  it.each(['EIO', 'ETIMEDOUT', 'EINVAL'])('is not repeated for %s', async (code) => {
    const fake = failing(code);
    const { collect } = await start(fake);
    await expect(collect(5)).rejects.toMatchObject(reason('cpu_unavailable', new RegExp(code)));
    expect(count(fake, 'read countersign/outblob')).toBe(1);
  });

  it('is not repeated for a caller who has gone', async () => {
    const caller = new AbortController();
    const fake = createFakeTsm({
      report(inblob) {
        if (caller.signal.aborted) return snpBlobs(inblob);
        caller.abort(new Error('gone'));
        throw errno('EBUSY');
      },
    });
    const { collect } = await start(fake);
    await expect(collect(1, caller.signal)).rejects.toThrow('gone');
    // It begins when all of the first is over.
    await collect(2);
    expect(count(fake, 'read countersign/outblob')).toBe(2);
  });

  it('says that the entry has disappeared', async () => {
    const fake = createFakeTsm({
      before(operation, path) {
        if (operation === 'read' && path.endsWith('outblob')) fake.remove(KEPT);
      },
    });
    const { collect } = await start(fake);
    await expect(collect(1)).rejects.toMatchObject(reason('cpu_unavailable', /is not there \(ENOENT/));
    // There is none any more: from now on it makes its own.
    await collect(2);
    expect(fake.entries).toEqual([]);
  });

  it('is not made of an inblob of another size than 64 bytes', async () => {
    const { collector } = await start(createFakeTsm());
    await expect(collector.collect(new Uint8Array(63), NEVER)).rejects.toMatchObject(
      reason('cpu_unavailable', /EINVAL/),
    );
  });
});

describe('others who write to the same entry', () => {
  /** Another process writes before the collector's operations of this name, in each of its first `tries`. */
  const disturbed = (before: string, tries: number) => {
    let left = tries;
    const fake: FakeTsm = createFakeTsm({
      async before(operation, path) {
        if (`${operation} ${path}` !== before || left === 0) return;
        left--;
        await fake.other.write(`${KEPT}/inblob`, bytes(0xbb));
      },
    });
    return fake;
  };

  it.each(['write %/inblob', 'read %/outblob', 'fill %/outblob', 'read %/auxblob', 'fill %/auxblob'])(
    'are noticed by the generation: both blobs are thrown away, and asked for again (%s)',
    async (operation) => {
      const fake = disturbed(operation.replace('%', KEPT), 1);
      const { collect, endorsed } = await start(fake);
      const { report } = await collect(0xaa);
      expect(dataIn(report)).toEqual(Buffer.from(bytes(0xaa)));
      expect(endorsed).toEqual([{ type: 'SEV_SNP', ...fieldsOf(0xaa) }]);
      expect(fake.operations.filter((one) => one === 'write countersign/inblob')).toHaveLength(2);
    },
  );

  const fieldsOf = (fill: number) => {
    const { outblob: report, auxblob } = snpBlobs(Buffer.from(bytes(fill)));
    return { report, auxblob };
  };

  it('make it give up after two tries', async () => {
    const fake = disturbed(`read ${KEPT}/outblob`, 2);
    const { collect, endorsed } = await start(fake);
    await expect(collect(0xaa)).rejects.toMatchObject(reason('cpu_unavailable', /another process writes to/));
    expect(fake.operations.filter((one) => one === 'write countersign/inblob')).toHaveLength(2);
    expect(endorsed).toEqual([]);
  });

  it('do not harm a collector that has an entry of its own', async () => {
    const fake: FakeTsm = createFakeTsm({
      kept: false,
      async before(operation, path) {
        if (operation !== 'read' || !path.endsWith('outblob')) return;
        await fake.other.mkdir(`${REPORTS}/other`).catch(() => {});
        await fake.other.write(`${REPORTS}/other/inblob`, bytes(0xbb));
      },
    });
    const { collect } = await start(fake);
    expect(dataIn((await collect(0xaa)).report)).toEqual(Buffer.from(bytes(0xaa)));
    expect(fake.operations.filter((one) => one.endsWith('inblob'))).toHaveLength(1);
  });
});

describe('a report that is not what was asked for', () => {
  it.each([
    ['over other bytes', () => snpBlobs(Buffer.from(bytes(0xbb)))],
    [
      'over bytes that differ in the last',
      (asked: Buffer) => snpBlobs(Buffer.concat([asked.subarray(0, 63), Buffer.of(1)])),
    ],
    ['broken off', (asked: Buffer) => ({ outblob: snpBlobs(asked).outblob.subarray(0, 1183) })],
    ['empty', () => ({ outblob: Buffer.alloc(0) })],
  ])('is refused, whatever the generation says: %s', async (_, report) => {
    const { collect, endorsed } = await start(createFakeTsm({ report }));
    await expect(collect(0xaa)).rejects.toMatchObject({ ...reason('cpu_refused'), code: 'appraisal_failed' });
    expect(endorsed).toEqual([]);
  });
});

describe('reads', () => {
  it('run one at a time', async () => {
    const fake = createFakeTsm();
    const { collect } = await start(fake);
    const found = await Promise.all([1, 2, 3].map((fill) => collect(fill)));
    expect(found.map(({ report }) => dataIn(report)[0])).toEqual([1, 2, 3]);
    const once = [PROVIDER, GENERATION, ...STEPS];
    expect(fake.operations).toEqual([PROVIDER, ...once, ...once, ...once]);
  });

  it('are all refused once one is overdue, until the kernel has answered it', async () => {
    const { opened, open } = gate();
    const fake = createFakeTsm({ report: (inblob) => opened.then(() => snpBlobs(inblob)) });
    const { collect, endorsed } = await start(fake, { deadline_ms: 50 });
    const stuck = reason(
      'cpu_unavailable',
      /a read is not answered by the kernel for more than 50 ms, and no other starts/,
    );
    const [first, waiting] = [collect(1), collect(2)];
    await expect(first).rejects.toMatchObject(stuck);
    await expect(waiting).rejects.toMatchObject(stuck);
    const before = fake.operations.length;
    await expect(collect(3)).rejects.toMatchObject(stuck);
    expect(fake.operations).toHaveLength(before);
    open();
    await vi.waitFor(async () => expect(dataIn((await collect(4)).report)).toEqual(Buffer.from(bytes(4))));
    expect(endorsed).toHaveLength(1);
  });

  it('that are overdue leave no private entry behind', async () => {
    const { opened, open } = gate();
    const fake = createFakeTsm({ kept: false, report: (inblob) => opened.then(() => snpBlobs(inblob)) });
    const { collect } = await start(fake, { deadline_ms: 30 });
    await expect(collect(1)).rejects.toMatchObject(reason('cpu_unavailable', /no other starts before it is/));
    expect(fake.entries).toHaveLength(1);
    open();
    await vi.waitFor(() => expect(fake.entries).toEqual([]));
  });

  it('cannot be taken back: after an abort the next one waits until the kernel has answered', async () => {
    const { opened, open } = gate();
    const fake = createFakeTsm({ report: (inblob) => opened.then(() => snpBlobs(inblob)) });
    const { collect } = await start(fake);
    const caller = new AbortController();
    const first = collect(1, caller.signal);
    await settled();
    caller.abort(new Error('too late'));
    await expect(first).rejects.toThrow('too late');
    const second = collect(2);
    await settled();
    expect(fake.operations.filter((one) => one === 'write countersign/inblob')).toHaveLength(1);
    open();
    expect(dataIn((await second).report)).toEqual(Buffer.from(bytes(2)));
    // Nobody wants the first report any more: its other steps are left out.
    expect(fake.operations.filter((one) => one === 'read countersign/auxblob')).toHaveLength(1);
  });

  it('do not begin for a caller who has gone', async () => {
    const fake = createFakeTsm();
    const { collect } = await start(fake);
    await expect(collect(1, AbortSignal.abort(new Error('gone')))).rejects.toThrow('gone');
    expect(fake.operations).toEqual([PROVIDER]);
  });

  it('are not asked for when the caller goes before that', async () => {
    const caller = new AbortController();
    const fake = createFakeTsm({
      before(_, path) {
        if (path.endsWith('generation')) caller.abort(new Error('gone'));
      },
    });
    const { collect } = await start(fake);
    await expect(collect(1, caller.signal)).rejects.toThrow('gone');
    await collect(2);
    expect(fake.operations.filter((one) => one === 'write countersign/inblob')).toHaveLength(1);
  });
});

describe('a quote of TDX', () => {
  const tdx = (report: ReturnType<typeof tdxBlobs>) => createFakeTsm({ provider: 'tdx_guest', report });

  it.each([
    ['4', { version: 4 }],
    ['5 with the body of TDX 1.0', { version: 5, body: 2 }],
    ['5 with the body of TDX 1.5', { version: 5, body: 3 }],
  ] as const)('of version %s is cut at its own length, and verifies', async (_, spec) => {
    const fake = tdx(tdxBlobs(spec));
    const { collector, collect, endorsed } = await start(fake, { endorse: async () => ({}) });
    expect(collector.type).toBe('TDX');
    const evidence = await collect(9);
    const report = Buffer.from(evidence.report, 'base64');
    // The chain is the last thing in a quote, and a NUL its end.
    expect(report.length).toBeLessThan(8000);
    expect(report.toString('latin1').endsWith('-----END CERTIFICATE-----\n\0')).toBe(true);
    const reportData = Buffer.from(bytes(9)).toString('hex');
    const { checks } = await appraiseCpu(evidence, { roots: { intel: pem(INTEL_ROOT) }, expected: { reportData } });
    for (const name of ['cpu_form', 'cpu_signature', 'cpu_chain', 'cpu_binding'])
      expect(checks.find((check) => check.name === name)).toMatchObject({ status: 'pass' });
    expect(endorsed).toEqual([]);
    expect(fake.operations).not.toContain('read countersign/auxblob');
  });

  const quote = (spec = {}) => tdxBlobs(spec)(Buffer.from(bytes(9))).outblob;
  const edited = (edit: (blob: Buffer) => unknown, spec = {}) => {
    const blob = quote(spec);
    edit(blob);
    return blob;
  };

  it.each([
    ['breaks off', quote().subarray(0, 1000), 'cpu_refused'],
    ['breaks off in its body', quote().subarray(0, 640), 'cpu_refused'],
    ['breaks off in its header', quote().subarray(0, 40), 'cpu_refused'],
    ['is empty', Buffer.alloc(0), 'cpu_refused'],
    ['claims to be longer', edited((blob) => blob.writeUInt32LE(0xffffffff, 54 + 648)), 'cpu_refused'],
    ['is over other bytes', tdxBlobs()(Buffer.from(bytes(8))).outblob, 'cpu_refused'],
    ['has other bytes in its last byte', edited((blob) => blob.writeUInt8(1, 54 + 520 + 63)), 'cpu_refused'],
    ['is of version 3', edited((blob) => blob.writeUInt16LE(3, 0)), 'cpu_unsupported'],
    ['has a body of type 4', edited((blob) => blob.writeUInt16LE(4, 48)), 'cpu_unsupported'],
  ])('that %s is refused', async (_, outblob, why) => {
    const { collect } = await start(tdx(() => ({ outblob })));
    await expect(collect(9)).rejects.toMatchObject(reason(why));
  });
});

describe.skipIf(!vectorsPresent)('over genuine blobs', () => {
  const file = (name: string) => vector(`cpu/${name}`);

  it("a host's certificate table comes with the report of Genoa", async () => {
    const [outblob, auxblob] = ['outblob', 'auxblob'].map((name) => file(`snp/genoa-v3-auxblob/${name}.bin`));
    const blobs = { outblob: outblob as Buffer, auxblob: auxblob as Buffer };
    const { collector, endorsed } = await start(createFakeTsm({ report: () => blobs }));
    const { report } = await collector.collect(blobs.outblob.subarray(0x50, 0x90), NEVER);
    expect(Buffer.from(report, 'base64')).toEqual(outblob);
    expect(endorsed).toEqual([{ type: 'SEV_SNP', report: outblob, auxblob }]);
  });

  it("Google's quote is cut where only padding follows", async () => {
    const quote = file('tdx/v4-gcp-cos113/quote.bin');
    const fake = createFakeTsm({ provider: 'tdx_guest', report: () => ({ outblob: quote }) });
    const { collector } = await start(fake, { endorse: async () => ({}) });
    const evidence = await collector.collect(quote.subarray(48 + 520, 48 + 584), NEVER);
    const report = Buffer.from(evidence.report, 'base64');
    expect(quote.length).toBe(8000);
    expect(report).toEqual(quote.subarray(0, report.length));
    expect(quote.subarray(report.length).every((byte) => byte === 0)).toBe(true);
    const { checks } = await appraiseCpu(evidence, { at: new Date('2026-11-22') });
    for (const name of ['cpu_form', 'cpu_signature', 'cpu_chain'])
      expect(checks.find((check) => check.name === name)).toMatchObject({ status: 'pass' });
  });
});

it('random interleavings of several processes on one entry give nobody a blob over bytes of another', async () => {
  const seen = { collected: 0, refused: 0 };
  const processes = fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 2, maxLength: 4 });
  const property = fc.asyncProperty(fc.scheduler(), processes, fc.nat(4), async (s, counts, strangers) => {
    const fake = createFakeTsm({ before: (operation, path) => s.schedule(Promise.resolve(), `${operation} ${path}`) });
    let made = 0;
    const process = async (reports: number) => {
      let auxblob: Buffer = Buffer.alloc(0);
      const collector = await createTsmCollector({
        entry: TSM_ENTRY,
        fs: fake.fs,
        async endorse(evidence) {
          auxblob = evidence.auxblob;
          return {};
        },
      });
      for (let i = 0; i < reports; i++) {
        const asked = bytes(++made);
        try {
          const { report } = await collector.collect(asked, NEVER);
          expect(dataIn(report)).toEqual(Buffer.from(asked));
          expect(auxblob).toEqual(snpBlobs(Buffer.from(asked)).auxblob);
          seen.collected++;
        } catch (error) {
          expect(error).toMatchObject(reason('cpu_unavailable', /another process writes to/));
          seen.refused++;
        }
      }
    };
    /** Writes without reading the generation, and reads or not. */
    const stranger = async (_: unknown, i: number) => {
      await fake.fs.write(`${KEPT}/inblob`, bytes(0xf0 + i));
      if (i % 2 === 0) await fake.fs.read(`${KEPT}/outblob`);
    };
    const all = [...counts.map(process), ...Array.from({ length: strangers }, stranger)];
    await s.waitFor(Promise.all(all));
  });
  await fc.assert(property, { numRuns: 200 });
  expect(seen.collected).toBeGreaterThan(0);
  expect(seen.refused).toBeGreaterThan(0);
});

describe('the file system itself', () => {
  let entry: string;
  beforeEach(() => {
    entry = join(mkdtempSync(join(tmpdir(), 'tsm-')), 'countersign');
  });
  afterEach(() => rmSync(join(entry, '..'), { recursive: true }));

  it('is written to in place, 64 bytes and no more files', async () => {
    mkdirSync(entry);
    const given = randomBytes(64);
    const { outblob } = snpBlobs(given);
    const files = { provider: 'sev_guest\n', generation: '1\n', inblob: Buffer.alloc(64), outblob };
    for (const [name, content] of Object.entries(files)) writeFileSync(join(entry, name), content);
    const collector = await createTsmCollector({ entry, endorse: async () => ({}) });
    // No kernel is behind these files: the generation stays.
    await expect(collector.collect(given, NEVER)).rejects.toMatchObject(reason('cpu_unavailable', /another process/));
    expect(readFileSync(join(entry, 'inblob'))).toEqual(given);
    expect(existsSync(join(entry, 'auxblob'))).toBe(false);
  });

  it('makes no file where the kernel has none', async () => {
    mkdirSync(entry);
    for (const [name, content] of [
      ['provider', 'tdx_guest'],
      ['generation', '1'],
    ] as const)
      writeFileSync(join(entry, name), content);
    const collector = await createTsmCollector({ entry, endorse: async () => ({}) });
    await expect(collector.collect(bytes(1), NEVER)).rejects.toMatchObject(reason('cpu_unavailable', /ENOENT/));
    expect(existsSync(join(entry, 'inblob'))).toBe(false);
  });

  it('gets its private entry back when there is no kernel behind it', async () => {
    await expect(createTsmCollector({ entry, endorse: async () => ({}) })).rejects.toMatchObject(
      reason('cpu_unavailable', /ENOENT at \S+countersign-\d+-[0-9a-f]{8}\/provider/),
    );
    expect(existsSync(join(entry, '..'))).toBe(true);
  });
});
