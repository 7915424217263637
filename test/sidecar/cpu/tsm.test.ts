// The collector of configfs-tsm: its steps, the entry it works on, and the errors of the kernel.
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AttesterError } from '../../../sidecar/common/attester.ts';
import { createTsmCollector } from '../../../sidecar/cpu/tsm.ts';
import { createFakeTsm, errno, type FakeTsm, KEPT, snpBlobs } from './fake-tsm.ts';
import { bytes, dataIn, GENERATION, NEVER, PROVIDER, reason, STEPS, start } from './tsm-collector.ts';

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
