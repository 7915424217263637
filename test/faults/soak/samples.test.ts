import { describe, expect, it } from 'vitest';
import { wrongIn } from './load.ts';
import { readOptions } from './options.ts';
import { growth, memoryAround, settledAt_s } from './samples.ts';

const came = { start: 40, end: 45 };

describe('the soak', () => {
  it('fails on memory that is more than a tenth over its value at five minutes', () => {
    expect(growth({ settled: 200, end: 219 }, came, 10)).toEqual([]);
    expect(growth({ settled: 200, end: 221 }, came, 10)).toEqual([
      expect.stringContaining('memory grew from 200 to 221'),
    ]);
  });

  it('leaves a shorter run some room, and no more', () => {
    expect(growth({ settled: 200, end: 240 }, came, 2)).toEqual([]);
    expect(growth({ settled: 200, end: 250 }, came, 2)).toHaveLength(1);
  });

  it('fails on descriptors that do not come back', () => {
    expect(growth({ settled: 200, end: 200 }, { start: 40, end: 60 }, 10)).toEqual([
      expect.stringContaining('descriptors did not come back'),
    ]);
  });

  it('fails when nothing was measured', () => {
    expect(growth({ settled: Number.NaN, end: Number.NaN }, came, 10)).toHaveLength(1);
  });

  it('measures at five minutes, or at half of a shorter run, by the median', () => {
    expect([settledAt_s(60), settledAt_s(10), settledAt_s(4)]).toEqual([300, 300, 120]);
    const samples = [10, 90, 20, 500].map((rss_mib, i) => ({ rss_mib, descriptors: 1, at_s: i }));
    expect(memoryAround(samples, 1, 1)).toBe(20);
  });

  it('fails on one answer of thousands that must never be', () => {
    const fine: [string, number][] = [['stop with its proof', 9_999]];
    expect(wrongIn(new Map(fine))).toEqual([]);
    expect(wrongIn(new Map([...fine, ['NEVER: hung', 1]]))).toEqual(['1 × NEVER: hung']);
  });

  it('refuses a time that is none', () => {
    expect(readOptions(['--minutes', '1.5']).minutes).toBe(1.5);
    for (const minutes of ['0', '-1', 'long', ''])
      expect(() => readOptions(['--minutes', minutes])).toThrow('--minutes');
    expect(() => readOptions(['--hours', '1'])).toThrow();
  });
});
