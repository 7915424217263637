// What the bench makes of what it measured: bars, ratios, tables, chart.
import { describe, expect, it } from 'vitest';
import { choose } from '../../bench/choice.ts';
import type { Figure, Measured } from '../../bench/figures/figure.ts';
import { latency } from '../../bench/figures/latency.ts';
import { whole1k } from '../../bench/figures/whole.ts';
import { FULL } from '../../bench/plan.ts';
import { BARS, judge } from '../../bench/report/bars.ts';
import { chart } from '../../bench/report/chart.ts';
import { markdown } from '../../bench/report/report.ts';
import { type FigureResult, summarise } from '../../bench/report/results.ts';
import type { Saved } from '../../bench/report/saved.ts';
import { requestBody } from '../../bench/scene.ts';

const row = (name: string, values: Record<string, number>, wrong: string | null = null): Measured => ({
  name,
  values,
  wrong,
});
const whole = (...rounds: Measured[][]): FigureResult => ({ figure: whole1k, rounds });
const verdictOf = (result: FigureResult, what: RegExp) =>
  judge(BARS, [result]).find((bar) => what.test(bar.what)) ?? { verdict: 'no such bar', value: null };

describe('the bars', () => {
  const against = /^CPU of a whole answer to 1 KB, against the bare/;
  it.each([
    [15, 'goal'],
    [22, 'pass'],
    [31, 'MISS'],
  ])('say of %i µs where the bare pipe takes 20: %s', (cpu, verdict) => {
    expect(verdictOf(whole([row('pipe', { cpu: 20 }), row('ours', { cpu })]), against).verdict).toBe(verdict);
  });

  it('take the median of the ratios within a round, not a ratio of medians', () => {
    const round = (pipe: number, ours: number) => [row('pipe', { cpu: pipe }), row('ours', { cpu: ours })];
    const { value } = verdictOf(whole(round(10, 20), round(40, 120), round(20, 200)), against);
    expect(value).toBe(3);
  });

  it('count nothing in which an answer was wrong, and nothing that was not measured', () => {
    const wrong = whole([row('pipe', { cpu: 20 }), row('ours', { cpu: 30 }, '3 wrong, first: status 500')]);
    expect(verdictOf(wrong, against)).toMatchObject({ verdict: 'not measured', text: '"ours" does not count' });
    expect(verdictOf(whole([row('ours', { cpu: 30 })]), against).verdict).toBe('not measured');
  });

  it('ask for more where more is better', () => {
    const rates = (ours: number) => whole([row('portkey', { rate: 1000 }), row('ours', { rate: ours })]);
    expect(verdictOf(rates(4_900), /Portkey/)).toMatchObject({ verdict: 'MISS', text: '4.90×', bar: '≥ 5×' });
    expect(verdictOf(rates(5_100), /Portkey/).verdict).toBe('pass');
  });

  it('take the direct time off where a proxy is judged by what it adds', () => {
    const tee = (name: string, p50: number) => row(`${name} tee unsigned`, { p50 });
    const rounds = [[row('direct', { p50: 100 }), tee('before', 150), tee('ours', 170)]];
    expect(verdictOf({ figure: latency, rounds }, /low load/).value).toBeCloseTo(1.4);
  });
});

describe('a saved run', () => {
  const rounds = [
    [
      row('direct', { cpu: Number.NaN, both: Number.NaN }),
      row('nginx', { cpu: 20, both: 20, rate: 50_000 }),
      row('pipe', { cpu: 90, both: 90, rate: 9_000 }),
      row('ours', { cpu: 60, both: 60, rate: 14_000 }),
      row('portkey', { cpu: 1000, both: 1000, rate: 900 }),
      row('ours tee', {}, 'status 503 <&>'),
    ],
  ];
  const figure: Figure = whole1k;
  const saved: Saved = {
    machine: { date: '2026-01-01T00:00:00Z', cores: 2, cpu: 'C<P>U', memory_gib: 8, kernel: '6', node: 'v24', load: 0 },
    plan: FULL,
    took_s: 1,
    others_percent: 80,
    legend: [{ name: 'ours', about: 'the gateway' }],
    skipped: ['litellm: not there'],
    figures: {
      'whole-1k': {
        title: figure.title(FULL),
        columns: figure.columns,
        rows: summarise({ figure, rounds }, []),
        rounds,
      },
    },
    bars: judge(BARS, [{ figure, rounds }]),
  };

  it('is drawn as SVG: each row that counts once, long bars cut, text escaped', () => {
    const svg = chart(saved);
    expect([...svg.matchAll(/<rect class="bar/g)]).toHaveLength(4);
    expect([...svg.matchAll(/<rect class="bar own"/g)]).toHaveLength(1);
    expect([...svg.matchAll(/class="cut"/g)]).toHaveLength(1);
    expect(svg).toContain('C&lt;P&gt;U');
    expect(svg).toContain('1 000 µs');
    expect(svg).not.toMatch(/NaN|Infinity|undefined/);
  });

  it('is written as Markdown, with what was left out, what does not count, and that others disturbed it', () => {
    const text = markdown(saved);
    expect(text).toContain('| ours tee (DOES NOT COUNT: status 503');
    expect(text).toMatch(/\| ours \| 14 000 \| 60\.0 \| 3\.00 \| 0\.67 \|/);
    expect(text).toContain('SKIPPED litellm: not there');
    expect(text).toContain('DISTURBED: others took 80 % of a core');
  });
});

describe('the choice of what is measured', () => {
  const names = (all: readonly { name: string }[]) => all.map(({ name }) => name);

  it('takes the beginning of a name, keeps the yardsticks, and prefers a whole name', () => {
    const { figures, kinds } = choose(['whole', 'ours'], [], true);
    expect(names(figures)).toEqual(['whole-1k', 'whole-16k', 'whole-128k']);
    expect(names(kinds)).toEqual(['direct', 'nginx', 'pipe', 'ours']);
  });

  it('leaves the slow ones out of a quick run loudly, unless they are named', () => {
    expect(names(choose([], [], true).kinds)).not.toContain('portkey');
    expect(choose([], [], true).skipped.join()).toContain('portkey: not in a quick run');
    expect(names(choose(['portkey'], [], true).kinds)).toContain('portkey');
    expect(names(choose([], [], false).kinds)).toContain('litellm');
  });

  it('has rows of another checkout only where one is named', () => {
    const before = ['before', 'before tee unsigned', 'before tee'];
    expect(names(choose([], [], true).kinds)).not.toContain('before');
    expect(names(choose([], [], true, '.').kinds).slice(-3)).toEqual(before);
  });

  it('refuses a name that nothing has', () => {
    expect(() => choose(['nothing'], [], true)).toThrow(TypeError);
  });
});

describe('a request', () => {
  it.each([1, 16, 128])('of %i KB has exactly as many bytes, with tee and without', (kb) => {
    const scene = { kind: 'whole', bytes: 1024, asked_bytes: kb * 1024 } as const;
    for (const tee of [false, true]) expect(Buffer.byteLength(requestBody(scene, tee))).toBe(kb * 1024);
  });
});
