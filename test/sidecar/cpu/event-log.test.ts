// The log of a guest's measured boot, as the collector adds it to a quote.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { TSM_ENTRY } from '../../../sidecar/common/config.ts';
import { createTsmCollector } from '../../../sidecar/cpu/tsm.ts';
import { cutEventLog } from '../../../verify/cpu/evidence/event-log.ts';
import { vector, vectorsPresent } from '../../support/vectors.ts';
import { makeCcel } from '../../verify/cpu/ccel.ts';
import { createFakeTsm, tdxBlobs } from './fake-tsm.ts';

const CCEL = '/sys/firmware/acpi/tables/data/CCEL';
const EV_EVENT_TAG = 6;
/** As makeCcel writes it: register, type, count, algorithm, SHA-384, size, four bytes. */
const EVENT_BYTES = 70;
const events = [1, 2, 3].map((register) => [register, EV_EVENT_TAG, Buffer.alloc(48, register)] as const);
const log = makeCcel(events);
const HEAD_BYTES = log.length - 3 * EVENT_BYTES;

/** Collects over the report data of `quote`, which the processor gives for everything. */
async function collect(files: Record<string, Buffer>, quote?: Buffer) {
  const report = quote === undefined ? tdxBlobs() : () => ({ outblob: quote });
  const { fs } = createFakeTsm({ provider: 'tdx_guest', report, files });
  const collector = await createTsmCollector({ entry: TSM_ENTRY, fs, endorse: async () => ({}) });
  const reportData = quote === undefined ? new Uint8Array(64) : quote.subarray(48 + 520, 48 + 584);
  return collector.collect(reportData, new AbortController().signal);
}

describe('the event log', () => {
  it.each([
    ['ones', 0xff],
    ['zeros', 0],
  ])('comes with a quote of TDX, without the %s behind it', async (_, fill) => {
    const files = { [CCEL]: Buffer.concat([log, Buffer.alloc(1000, fill)]) };
    expect((await collect(files)).event_log).toBe(log.toString('base64'));
  });

  it.each([
    ['absent', {}],
    ['unused memory alone', { [CCEL]: Buffer.alloc(1000, 0xff) }],
    ['empty', { [CCEL]: Buffer.alloc(0) }],
    [
      'longer than what verifiers read',
      { [CCEL]: Buffer.concat([log, ...Array(15_000).fill(log.subarray(-EVENT_BYTES))]) },
    ],
  ])('is left out where it is %s', async (_, files) => {
    expect(await collect(files)).not.toHaveProperty('event_log');
  });

  it('is not read on SEV-SNP', async () => {
    const { fs, operations } = createFakeTsm({ files: { [CCEL]: log } });
    const collector = await createTsmCollector({ entry: TSM_ENTRY, fs, endorse: async () => ({}) });
    const evidence = await collector.collect(new Uint8Array(64), new AbortController().signal);
    expect(evidence).not.toHaveProperty('event_log');
    expect(operations).not.toContain(`read ${CCEL}`);
  });
});

describe('a log', () => {
  it('ends behind any of its events, and nowhere else', () => {
    const ends = Array.from({ length: log.length + 1 }, (_, length) => cutEventLog(log.subarray(0, length)));
    const complete = ends.flatMap((cut) => (cut === null ? [] : [cut.length]));
    expect(complete).toEqual([0, 1, 2, 3].map((count) => HEAD_BYTES + count * EVENT_BYTES));
    expect(ends.at(-1)).toEqual(log);
  });

  it.each([
    ['other bytes behind its events', (bytes: Buffer) => Buffer.concat([bytes, Buffer.from('something else')])],
    ['a digest of an algorithm that its head does not name', (bytes: Buffer) => with16(bytes, 0x0b, HEAD_BYTES + 12)],
    ['another head', (bytes: Buffer) => with16(bytes, 0, 32)],
  ])('is none with %s', (_, edit) => {
    expect(cutEventLog(edit(Buffer.from(log)))).toBe(null);
  });

  const with16 = (bytes: Buffer, value: number, at: number) => {
    bytes.writeUInt16LE(value, at);
    return bytes;
  };
});

describe.skipIf(!vectorsPresent)('a genuine log', () => {
  beforeEach(() => {
    // Within the validity of the certificates in the quotes.
    vi.useFakeTimers({ toFake: ['Date'], now: new Date('2026-11-22') });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const file = (name: string) => vector(`cpu/tdx/${name}.bin`);
  const inMemory = (bytes: Buffer) => ({ [CCEL]: Buffer.concat([bytes, Buffer.alloc(262_144 - bytes.length, 0xff)]) });

  it.each(['v4-gcp-cos113', 'v4-ccel'])('replays to its quote, and is cut: %s', async (name) => {
    const ccel = file(`${name}/ccel`);
    const { event_log } = await collect(inMemory(ccel), file(`${name}/quote`));
    expect(event_log).toBe(ccel.toString('base64'));
  });

  it('that does not replay to the quote is left out: it would make the whole attestation invalid', async () => {
    const evidence = await collect(inMemory(file('v4-ccel/ccel-other-boot')), file('v4-ccel/quote'));
    expect(evidence).not.toHaveProperty('event_log');
  });
});
