// What the collector hands on of what the kernel gives: reports of SEV-SNP and quotes of TDX, made and genuine.
import { describe, expect, it } from 'vitest';
import { pem } from '../../../demo/twin/authority.ts';
import { appraiseCpu } from '../../../verify/cpu.ts';
import { vector, vectorsPresent } from '../../support/vectors.ts';
import { createFakeTsm, INTEL_ROOT, snpBlobs, tdxBlobs } from './fake-tsm.ts';
import { bytes, NEVER, reason, start } from './tsm-collector.ts';

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
