// What the bench makes of what it measured, and what it is asked for.
import { describe, expect, it } from 'vitest';
import { readOptions } from '../../bench/main.ts';
import { judge, least, most, type Row, type Table, tableText } from '../../bench/report.ts';
import { ANSWER, requestBody, STAMP, stamped, wrongStream, wrongWhole } from '../../bench/wire.ts';

const table: Table = {
  name: 'whole',
  title: 'Whole answers',
  columns: [
    { key: 'cpu', title: 'CPU', digits: 1, against: 'pipe' },
    { key: 'p50', title: 'added', digits: 0, added: true },
  ],
};
const row = (name: string, values: Record<string, number>, wrong: string | null = null): Row => ({
  name,
  values,
  wrong,
});
const cpu = (pipe: number, ours: number) => [row('pipe', { cpu: pipe }), row('ours', { cpu: ours })];
const bar = most('whole cpu', 'ours / pipe', 1.15, 'CPU');

describe('the bars', () => {
  it('are met up to their limit and missed above it', () => {
    expect(judge(bar, table, [cpu(20, 23)])).toEqual({ what: 'CPU', value: '1.15×', bar: '≤ 1.15×', verdict: 'met' });
    expect(judge(bar, table, [cpu(20, 24)]).verdict).toBe('MISSED');
    const rate = least('whole cpu', 'ours / pipe', 5, 'rate');
    expect([4.9, 5.1].map((times) => judge(rate, table, [cpu(10, 10 * times)]).verdict)).toEqual(['MISSED', 'met']);
  });

  it('take the median of the ratios within a round, not a ratio of medians', () => {
    expect(judge(bar, table, [cpu(10, 20), cpu(40, 120), cpu(20, 200)]).value).toBe('3.00×');
  });

  it('count nothing in which an answer was wrong, and nothing that was not measured', () => {
    const wrong = [...cpu(20, 20).slice(0, 1), row('ours', { cpu: 20 }, '3 wrong, first: status 500')];
    expect(judge(bar, table, [wrong])).toMatchObject({ verdict: 'not measured', value: '3 wrong, first: status 500' });
    expect(judge(bar, table, [[row('ours', { cpu: 30 })]]).verdict).toBe('not measured');
  });

  it('take the direct time off where a proxy is judged by what it adds, and need no other row', () => {
    const round = [row('direct', { p50: 100 }), row('before', { p50: 150 }), row('ours', { p50: 170 })];
    expect(judge(most('whole p50', 'ours / before', 1, ''), table, [round]).value).toBe('1.40×');
    expect(judge(most('whole p50', 'ours', 70, '', ' µs'), table, [round])).toMatchObject({ value: '70 µs' });
  });
});

it('a table has medians, ratios to its yardstick, and says what does not count', () => {
  const text = tableText(table, [[...cpu(20, 30), row('tee', {}, 'status 503')], cpu(40, 80)]);
  expect(text).toContain('| pipe | 30.0 | 1.00× | – |');
  expect(text).toContain('| ours | 55.0 | 1.75× | – |');
  expect(text).toContain('| tee (DOES NOT COUNT: status 503) | – | – | – |');
});

describe('the choice of what is measured', () => {
  const names = (all: readonly { name: string }[] | undefined) => all?.map(({ name }) => name);

  it('is everything; in a quick run other gateways only where they are named, and that is said', () => {
    expect(names(readOptions([])?.kinds)).toEqual(
      expect.arrayContaining(['nginx', 'pipe', 'portkey', 'litellm', 'sglang-router']),
    );
    const quick = readOptions(['--quick', '--rounds', '3']);
    expect([names(quick?.kinds)?.includes('litellm'), quick?.plan.rounds]).toEqual([false, 3]);
    expect(quick?.skipped.join()).toContain('litellm: not in a quick run');
    expect(names(readOptions(['--quick', '--only', 'litellm'])?.kinds)).toEqual(['direct', 'pipe', 'litellm']);
  });

  it('has rows of another checkout where one is named', () => {
    expect(names(readOptions([])?.kinds)).not.toContain('before');
    expect(names(readOptions(['--before', '.'])?.kinds)?.slice(-2)).toEqual(['before', 'before tee']);
  });

  it('refuses what nothing has', () => {
    for (const args of [['--only', 'nothing'], ['--before', '/nowhere'], ['--rounds', '0'], ['--fleet']])
      expect(() => readOptions(args)).toThrow(TypeError);
    expect(names(readOptions(['--only', 'stream'])?.questions)).toEqual(['stream']);
  });
});

describe('an answer', () => {
  it.each([1, 16, 128])('is asked for with exactly %i KB, with tee and without', (kb) => {
    const scene = { kind: 'whole', asked: kb * 1024 } as const;
    for (const tee of ['none', 'strict', 'batch'] as const)
      expect(Buffer.byteLength(requestBody(scene, tee))).toBe(kb * 1024);
    expect(Buffer.byteLength(ANSWER)).toBe(1024);
  });

  it('is right only with every byte, and with its proof where one was asked for', () => {
    expect(wrongWhole(ANSWER, { exact: true, tee: 'none' })).toBeNull();
    expect(wrongWhole(ANSWER.replace('word', 'other'), { exact: true, tee: 'none' })).not.toBeNull();
    expect(wrongWhole(ANSWER.replace('word', 'other'), { exact: false, tee: 'none' })).toBeNull();
    const proof = ',"attestation":{"raw":"","evidence":[{"arch":"HOPPER"}]}}';
    expect(wrongWhole(ANSWER, { exact: true, tee: 'strict' })).not.toBeNull();
    expect(wrongWhole(`${ANSWER.slice(0, -1)}${proof}`, { exact: true, tee: 'strict' })).toBeNull();
  });

  it('that is streamed has all its chunks, its end and its proof', () => {
    const end = 'data: {"finish_reason":"stop"}\n\ndata: [DONE]\n\n';
    expect([...stamped(1_234.4).matchAll(STAMP)].map(([, at]) => Number(at))).toEqual([1234]);
    expect(wrongStream(3, end, 3, 'none')).toBeNull();
    expect(wrongStream(2, end, 3, 'none')).toBe('2 of 3 chunks');
    expect(wrongStream(3, 'data: [DONE]', 3, 'none')).toBe('no end of the stream');
    expect(wrongStream(3, end, 3, 'strict')).toBe('no attestation in the stream');
  });
});
