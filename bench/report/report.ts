// A run as people read it: tables and bars on a terminal, or as Markdown for the docs.
import { machineLine } from '../system/machine.ts';
import { plural } from './number.ts';
import type { Saved } from './saved.ts';
import { type Grid, grid } from './table.ts';

const DISTURBED_PERCENT = 15;
const SATURATED =
  "A rate at which the proxy is far from 100 % busy is the generator's, the backend's or the machine's: compare CPU there.";

export function barsGrid({ bars }: Pick<Saved, 'bars'>): Grid {
  return {
    title: 'Bars',
    heads: ['measured', 'bar', 'goal', ''],
    lines: bars.map(({ what, text, bar, goal, verdict }) => ({
      name: what,
      cells: [text, bar, goal, verdict],
    })),
  };
}

/** Nothing on a machine that is left to the run. */
function disturbance({ others_percent }: Saved): string[] {
  if (others_percent === null || others_percent < DISTURBED_PERCENT) return [];
  return [
    `DISTURBED: others took ${others_percent.toFixed(0)} % of a core. Ratios of CPU hold roughly; rates, latencies and their ratios do not.`,
  ];
}

export function footer(saved: Saved): string {
  const { legend, skipped, plan, took_s } = saved;
  return [
    '',
    ...legend.map(({ name, about }) => `  ${name}: ${about}`),
    ...skipped.map((line) => `  SKIPPED ${line}`),
    ...disturbance(saved).map((line) => `  ${line}`),
    `  ${SATURATED}`,
    `  ${method(plan.rounds, took_s)}`,
  ].join('\n');
}

function method(rounds: number, took_s: number): string {
  return `Medians of ${plural(rounds, 'interleaved round')}; ratios are medians of the ratios within a round. ${took_s.toFixed(0)} s.`;
}

export function markdown(saved: Saved): string {
  const grids = [
    barsGrid(saved),
    ...Object.values(saved.figures).map(({ title, columns, rows }) => grid(title, columns, rows)),
  ];
  return [
    `${machineLine(saved.machine)}. ${method(saved.plan.rounds, saved.took_s)}`,
    ...grids.map(markdownTable),
    saved.legend.map(({ name, about }) => `- **${name}**: ${about}`).join('\n'),
    ...saved.skipped.map((line) => `SKIPPED ${line}`),
    ...disturbance(saved),
    `${SATURATED}\n`,
  ].join('\n\n');
}

function markdownTable({ title, heads, lines }: Grid): string {
  const row = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [
    `**${title}**\n`,
    row(['', ...heads]),
    `|---|${heads.map(() => '--:|').join('')}`,
    ...lines.map(({ name, cells, note }) => row([note === undefined ? name : `${name} (${note})`, ...cells])),
  ].join('\n');
}
