// The chart of a run for the README: what one request, chunk and stream costs through each proxy. Shorter is better.
import type { Saved } from './saved.ts';
import { type BarRow, type Panel, panels } from './svg.ts';

const LABELS = [
  ['nginx', 'nginx'],
  ['haproxy', 'HAProxy'],
  ['ours', 'Countersign'],
  ['ours tee', '… attested'],
  ['pipe', 'bare Node pipe'],
  ['portkey', 'Portkey'],
  ['litellm', 'LiteLLM'],
] as const;

const PANELS = [
  { figure: 'whole-1k', key: 'both', title: 'CPU of a whole answer', unit: 'µs', digits: 0 },
  { figure: 'paced', key: 'both', title: 'CPU of a streamed chunk', unit: 'µs', digits: 0 },
  { figure: 'latency', key: 'p50', title: 'Added latency at low load, median', unit: 'µs', digits: 0 },
  { figure: 'memory', key: 'each', title: 'Memory of an open stream', unit: 'KB', digits: 0 },
] as const;

/** A bar longer than this many times the bare pipe's is cut. */
const CUT_AT_PIPES = 2;

/** @throws {TypeError} when the result has none of the figures. */
export function chart(saved: Saved): string {
  const drawn = PANELS.map((panel) => panelOf(saved, panel)).filter((panel) => panel !== null);
  if (drawn.length === 0) throw new TypeError('the result has none of the figures that the chart shows');
  const { machine, plan } = saved;
  return panels(drawn, [
    'One process each, one run, medians of interleaved rounds. Shorter is better; longer bars are cut. “Attested”: gateway and sidecar,',
    `the software twin's signing included (a GPU signs by itself). ${plan.paced_streams} streams of ${plan.paced_rate} chunks/s; ${machine.cores} cores of ${machine.cpu}, Node ${machine.node}, ${machine.date.slice(0, 10)}.`,
  ]);
}

function panelOf({ figures }: Saved, { figure, key, ...shown }: (typeof PANELS)[number]): Panel | null {
  const measured = figures[figure]?.rows ?? [];
  const rows: BarRow[] = [];
  let pipe = Number.NaN;
  for (const [name, label] of LABELS) {
    const row = measured.find((one) => one.name === name);
    const value = row?.wrong === null ? (row.cells[key]?.value ?? Number.NaN) : Number.NaN;
    if (!Number.isFinite(value)) continue;
    if (name === 'pipe') pipe = value;
    rows.push({ label, value: Math.max(0, value), own: name.startsWith('ours') });
  }
  if (rows.length === 0) return null;
  const longest = Math.max(...rows.map(({ value }) => value));
  return { ...shown, rows, limit: Number.isFinite(pipe) ? Math.min(longest, pipe * CUT_AT_PIPES) : longest };
}
