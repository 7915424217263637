// Several at once ask the kernel for a report: other processes on the same entry, and callers of one collector.
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { TSM_ENTRY } from '../../../sidecar/common/config.ts';
import { createTsmCollector } from '../../../sidecar/cpu/tsm.ts';
import { createFakeTsm, type FakeTsm, KEPT, REPORTS, snpBlobs } from './fake-tsm.ts';
import { bytes, dataIn, GENERATION, gate, NEVER, PROVIDER, reason, STEPS, settled, start } from './tsm-collector.ts';

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
