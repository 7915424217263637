// The bars: what was promised of each figure, against what this run measured.
import type { FigureResult } from './results.ts';
import { quotient, valueIn } from './results.ts';
import { median } from './stats.ts';

export interface Bar {
  readonly what: string;
  /** `most`: the value must not be above the bar; `least`: not below. */
  readonly sense: 'most' | 'least';
  readonly bar: number;
  /** null: none was named. */
  readonly moonshot: number | null;
  readonly unit: '×' | ' ms';
  readonly figure: string;
  value(rounds: FigureResult['rounds']): number;
  /** Rows that must be right for it to count. */
  readonly rows: readonly string[];
}

export interface BarResult {
  readonly what: string;
  readonly bar: string;
  readonly moonshot: string;
  readonly value: number | null;
  readonly text: string;
  readonly verdict: 'moonshot' | 'pass' | 'MISS' | 'not measured';
}

interface Operand {
  readonly row: string;
  readonly key: string;
}

const OURS = 'ours';

/** The median of a row's value over another's, each pair of one round. */
function ratio(
  what: string,
  figure: string,
  [above, below]: readonly [Operand, Operand],
  limits: { most: readonly [number, number] } | { least: readonly [number, number] },
  added = false,
): Bar {
  const [bar, moonshot] = 'most' in limits ? limits.most : limits.least;
  return {
    what,
    sense: 'most' in limits ? 'most' : 'least',
    bar,
    moonshot,
    unit: '×',
    figure,
    rows: [above.row, below.row],
    value: (rounds) =>
      median(
        rounds.map((round) =>
          quotient(valueIn(round, above.row, above.key, added), valueIn(round, below.row, below.key, added)),
        ),
      ),
  };
}

function absolute(what: string, figure: string, { row, key }: Operand, bar: number, moonshot: number | null): Bar {
  const value: Bar['value'] = (rounds) => median(rounds.map((round) => valueIn(round, row, key, false)));
  return { what, sense: 'most', bar, moonshot, unit: ' ms', figure, rows: [row], value };
}

const of = (row: string, key: string): Operand => ({ row, key });
const each = (key: string, above: string, below: string) => [of(above, key), of(below, key)] as const;

export const BARS: readonly Bar[] = [
  ratio('CPU of a whole answer without tee, against nginx', 'whole-1k', each('cpu', OURS, 'nginx'), { most: [2.6, 2] }),
  ratio('the same against the bare node:http pipe', 'whole-1k', each('cpu', OURS, 'pipe'), { most: [0.9, 0.6] }),
  ratio('req/s against Portkey', 'whole-1k', each('rate', OURS, 'portkey'), { least: [12, 25] }),
  ratio('CPU of a paced chunk without tee, against nginx', 'paced', each('cpu', OURS, 'nginx'), { most: [1.6, 1.1] }),
  ratio('CPU of a paced chunk with tee, sidecar included, against without', 'paced', each('both', 'ours tee', OURS), {
    most: [1.3, 1.1],
  }),
  ratio('  the same of /v1/responses', 'responses', each('both', 'ours tee', OURS), { most: [1.4, 1.2] }),
  ratio(
    "added p50 at low load (100 req/s), against nginx's",
    'latency',
    each('p50', OURS, 'nginx'),
    { most: [1.7, 1.2] },
    true,
  ),
  ratio('  the same at 1,000 req/s', 'latency-warm', each('p50', OURS, 'nginx'), { most: [1.7, 1.2] }, true),
  ratio("added TTFT p50, against nginx's", 'paced', each('ttft50', OURS, 'nginx'), { most: [2.5, 1.5] }, true),
  ratio('memory of an open idle stream, against nginx', 'memory', each('each', OURS, 'nginx'), { most: [1, 0.5] }),
  ratio(
    'tee, whole answer: gateway + sidecar without signing, against without tee',
    'whole-1k',
    each('both', 'ours tee unsigned', OURS),
    { most: [2.5, 1.7] },
  ),
  ratio(
    "  the same with the gateway's check of what was signed alone",
    'whole-1k',
    each('both', 'ours tee unchecked', OURS),
    { most: [2.5, 1.7] },
  ),
  absolute('client gone → backend request cancelled, p99', 'cancel', of(OURS, 'p99'), 50, 10),
  absolute('longest turn of the gateway for an answer of 4 MB, CPU p50', 'stall', of('gateway', 'cpu50'), 5, null),
  absolute('  for a request of 4 MB', 'stall', of('gateway, request', 'cpu50'), 5, null),
  absolute('  for a stream of 4 MB', 'stall', of('gateway, stream', 'cpu50'), 5, null),
  absolute('longest turn of the sidecar for a raw of 4 MB, CPU p50', 'stall', of('sidecar', 'cpu50'), 5, null),
];

export function judge(bars: readonly Bar[], results: readonly FigureResult[]): BarResult[] {
  return bars.map((bar) => {
    const rounds = results.find(({ figure }) => figure.name === bar.figure)?.rounds ?? [];
    const wrong = rounds.flat().find((row) => bar.rows.includes(row.name) && row.wrong !== null);
    const value = wrong === undefined ? bar.value(rounds) : Number.NaN;
    const sign = bar.sense === 'most' ? '≤' : '≥';
    const measured = Number.isFinite(value);
    return {
      what: bar.what,
      bar: `${sign} ${bar.bar}${bar.unit}`,
      moonshot: bar.moonshot === null ? '–' : `${sign} ${bar.moonshot}${bar.unit}`,
      value: measured ? value : null,
      text: measured ? `${value.toFixed(2)}${bar.unit}` : wrong === undefined ? '–' : `"${wrong.name}" does not count`,
      verdict: measured ? verdict(value, bar) : 'not measured',
    };
  });
}

function verdict(value: number, { sense, bar, moonshot }: Bar): BarResult['verdict'] {
  const holds = (limit: number | null) => limit !== null && (sense === 'most' ? value <= limit : value >= limit);
  return holds(moonshot) ? 'moonshot' : holds(bar) ? 'pass' : 'MISS';
}
