// From what was measured to what is read: medians over rounds, ratios within a round, bars, tables.
import { readFileSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, release, totalmem } from 'node:os';

export interface Column {
  readonly key: string;
  readonly title: string;
  readonly digits: number;
  /** Shown as what is added to `direct` in the same round. */
  readonly added?: true;
  /** Followed by its ratio to this row. */
  readonly against?: string;
}
export interface Table {
  readonly name: string;
  readonly title: string;
  readonly columns: readonly Column[];
}
export interface Row {
  readonly name: string;
  readonly values: Readonly<Record<string, number>>;
  /** Why it does not count; null when every answer was right. */
  readonly wrong: string | null;
}
/** Of one table, the rows of each round. */
export type Rounds = readonly (readonly Row[])[];

export interface Bar {
  readonly what: string;
  readonly table: string;
  readonly key: string;
  readonly row: string;
  /** The row that it is divided by; null: the value itself. */
  readonly by: string | null;
  readonly limit: number;
  readonly least: boolean;
  readonly unit: string;
}

/** `place`: a table and a key; `rows`: a row, or two with ` / ` between them. */
function barOf(place: string, rows: string, limit: number, what: string, unit: string, least: boolean): Bar {
  const [table = '', key = ''] = place.split(' ');
  const [row = '', by = null] = rows.split(' / ');
  return { what, table, key, row, by, limit, least, unit };
}
export const most = (place: string, rows: string, limit: number, what: string, unit = '×'): Bar =>
  barOf(place, rows, limit, what, unit, false);
export const least = (place: string, rows: string, limit: number, what: string, unit = '×'): Bar =>
  barOf(place, rows, limit, what, unit, true);

/** The value below which `share` (0 to 1) of the sample lies; NaN of an empty one. */
export function percentile(sample: readonly number[], share: number): number {
  const sorted = [...sample].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(share * sorted.length) - 1))] ?? Number.NaN;
}

/** Of those that are numbers; NaN when none is. */
export function median(values: readonly number[]): number {
  const sorted = values.filter((value) => !Number.isNaN(value)).sort((a, b) => a - b);
  const half = sorted.length >> 1;
  const upper = sorted[half] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[half - 1] ?? Number.NaN) + upper) / 2;
}

/** A difference of two noisy values can come out below zero: its ratio would say nothing. */
const quotient = (value: number, by: number): number => (value > 0 && by > 0 ? value / by : Number.NaN);

function valueIn(round: readonly Row[], row: string, { key, added }: Pick<Column, 'key' | 'added'>): number {
  const of = (name: string) => round.find((one) => one.name === name)?.values[key] ?? Number.NaN;
  return added ? of(row) - of('direct') : of(row);
}

const figure = (value: number, digits: number): string =>
  Number.isFinite(value)
    ? value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits })
    : '–';

/** Rows whose ratio would be to themselves, or to nothing. */
const ratioText = (value: number): string => (Number.isFinite(value) ? `${value.toFixed(2)}×` : '–');

export function tableText({ title, columns }: Table, rounds: Rounds): string {
  const names = [...new Set(rounds.flat().map(({ name }) => name))];
  const heads = columns.flatMap(({ title, against }) => (against === undefined ? [title] : [title, `×${against}`]));
  const lines = names.map((name) => {
    const wrong = rounds.flat().find((row) => row.name === name && row.wrong !== null)?.wrong ?? null;
    const cells = columns.flatMap((column) => {
      const value = figure(median(rounds.map((round) => valueIn(round, name, column))), column.digits);
      if (column.against === undefined) return [value];
      const by = column.against;
      const ratios = rounds.map((round) => quotient(valueIn(round, name, column), valueIn(round, by, column)));
      return [value, ratioText(median(ratios))];
    });
    return [wrong === null ? name : `${name} (DOES NOT COUNT: ${wrong.replaceAll('|', '/')})`, ...cells];
  });
  return markdown(title, ['', ...heads], lines);
}

export function markdown(title: string, heads: readonly string[], lines: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(' | ')} |`;
  return [`**${title}**\n`, line(heads), `|---|${'--:|'.repeat(heads.length - 1)}`, ...lines.map(line)].join('\n');
}

export interface Judged {
  readonly what: string;
  readonly value: string;
  readonly bar: string;
  readonly verdict: 'met' | 'MISSED' | 'not measured';
}

/** The median of a value over another's, each pair of one round; rows in which an answer was wrong do not count. */
export function judge({ what, row, key, by, limit, least, unit }: Bar, table: Table, rounds: Rounds): Judged {
  const column = table.columns.find((one) => one.key === key) ?? { key };
  const wrong = rounds.flat().find((one) => [row, by].includes(one.name) && one.wrong !== null)?.wrong ?? null;
  const value = median(
    rounds.map((round) => {
      const own = valueIn(round, row, column);
      return by === null ? own : quotient(own, valueIn(round, by, column));
    }),
  );
  const bar = `${least ? '≥' : '≤'} ${limit}${unit}`;
  if (wrong !== null || !Number.isFinite(value)) return { what, value: wrong ?? '–', bar, verdict: 'not measured' };
  const met = least ? value >= limit : value <= limit;
  return { what, value: `${figure(value, limit < 10 ? 2 : 0)}${unit}`, bar, verdict: met ? 'met' : 'MISSED' };
}

export const barsText = (bars: readonly Judged[]): string =>
  markdown(
    'Bars',
    ['', 'measured', 'bar', ''],
    bars.map(({ what, value, bar, verdict }) => [what, value, bar, verdict]),
  );

/** The machine that a result belongs to: only ratios within a run compare with those of another. */
export function machineLine(): string {
  const named = cpus()[0]?.model.trim() ?? '';
  const cpu =
    named !== '' && named !== 'unknown'
      ? named
      : /^model name\s*:\s*(.+)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1];
  const date = new Date().toISOString().slice(0, 16);
  const gib = Math.round(totalmem() / 2 ** 30);
  return `${date} · ${availableParallelism()} cores of ${cpu} · ${gib} GiB · Linux ${release()} · Node ${process.version} · load before the run ${loadavg()[0]?.toFixed(2)}`;
}
