// The bars: what was promised of each figure, against what this run measured.
import type { FigureResult } from './results.ts';
import { quotient, valueIn } from './results.ts';
import { median } from './stats.ts';

/** The median of one row's value over another's, each pair of one round. */
export interface Bar {
  readonly what: string;
  readonly figure: string;
  readonly key: string;
  /** What is judged, and what it is divided by: the bar counts only where both rows are right. */
  readonly rows: readonly [string, string];
  /** What the proxies add to the direct answer is compared, not the whole. */
  readonly added?: boolean;
  readonly limit: { readonly most: number } | { readonly least: number };
  /** What we would like. */
  readonly goal?: number;
}

export interface BarResult {
  readonly what: string;
  readonly bar: string;
  readonly goal: string;
  readonly value: number | null;
  readonly text: string;
  readonly verdict: 'goal' | 'pass' | 'MISS' | 'not measured';
}

const AGAINST_PIPE = ['ours', 'pipe'] as const;
const AGAINST_BEFORE = ['ours tee unsigned', 'before tee unsigned'] as const;

export const BARS: readonly Bar[] = [
  {
    what: 'CPU of a whole answer to 1 KB, against the bare node:http pipe',
    figure: 'whole-1k',
    key: 'cpu',
    rows: AGAINST_PIPE,
    limit: { most: 1.15 },
    goal: 0.8,
  },
  {
    what: 'CPU of a whole answer to 16 KB, against the pipe',
    figure: 'whole-16k',
    key: 'cpu',
    rows: AGAINST_PIPE,
    limit: { most: 1.15 },
    goal: 0.8,
  },
  {
    what: 'CPU of a paced chunk, against the pipe',
    figure: 'paced',
    key: 'cpu',
    rows: AGAINST_PIPE,
    limit: { most: 1.1 },
  },
  {
    what: "p99 of what is added to a paced chunk's age, against the pipe's",
    figure: 'paced',
    key: 'age99',
    rows: AGAINST_PIPE,
    added: true,
    limit: { most: 1 },
  },
  {
    what: "memory of an open idle stream, against the pipe's",
    figure: 'memory',
    key: 'each',
    rows: AGAINST_PIPE,
    limit: { most: 1.5 },
  },
  {
    what: 'requests a second, against Portkey',
    figure: 'whole-1k',
    key: 'rate',
    rows: ['ours', 'portkey'],
    limit: { least: 5 },
  },
  {
    what: 'tee unsigned, CPU of a whole answer to 1 KB, against before',
    figure: 'whole-1k',
    key: 'both',
    rows: AGAINST_BEFORE,
    limit: { most: 1 },
  },
  {
    what: 'tee unsigned, CPU of a whole answer to 16 KB, against before',
    figure: 'whole-16k',
    key: 'both',
    rows: AGAINST_BEFORE,
    limit: { most: 1 },
  },
  {
    what: 'tee unsigned, added TTFT p50, against before',
    figure: 'paced',
    key: 'ttft50',
    rows: AGAINST_BEFORE,
    added: true,
    limit: { most: 1 },
  },
  {
    what: 'tee unsigned, added p50 at low load, against before',
    figure: 'latency',
    key: 'p50',
    rows: AGAINST_BEFORE,
    added: true,
    limit: { most: 1 },
  },
];

export function judge(bars: readonly Bar[], results: readonly FigureResult[]): BarResult[] {
  return bars.map((bar) => {
    const { what, limit, goal } = bar;
    const rounds = results.find(({ figure }) => figure.name === bar.figure)?.rounds ?? [];
    const wrong = rounds.flat().find((row) => bar.rows.includes(row.name) && row.wrong !== null);
    const value = wrong === undefined ? median(rounds.map((round) => ratioIn(round, bar))) : Number.NaN;
    const measured = Number.isFinite(value);
    const written = (one: number) => ('most' in limit ? `≤ ${one}×` : `≥ ${one}×`);
    return {
      what,
      bar: written('most' in limit ? limit.most : limit.least),
      goal: goal === undefined ? '–' : written(goal),
      value: measured ? value : null,
      text: measured ? `${value.toFixed(2)}×` : wrong === undefined ? '–' : `"${wrong.name}" does not count`,
      verdict: measured ? verdict(value, bar) : 'not measured',
    };
  });
}

function ratioIn(round: FigureResult['rounds'][number], { rows, key, added = false }: Bar): number {
  const [above, below] = rows;
  return quotient(valueIn(round, above, key, added), valueIn(round, below, key, added));
}

function verdict(value: number, { limit, goal }: Bar): BarResult['verdict'] {
  const holds = (one: number) => ('most' in limit ? value <= one : value >= one);
  if (goal !== undefined && holds(goal)) return 'goal';
  return holds('most' in limit ? limit.most : limit.least) ? 'pass' : 'MISS';
}
