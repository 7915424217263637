// What the tests have in the kernel's place behaves as the ABI of configfs-tsm says.
import { describe, expect, it } from 'vitest';
import { createFakeTsm, errno, type FakeTsm, KEPT, REPORTS, snpBlobs } from './fake-tsm.ts';
import { bytes, gate, settled } from './tsm-collector.ts';

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
