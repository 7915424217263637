// The fleets of the table as SVG: how long an answer waits for its proof, and what a million proofs take of the fleet.
import { type BarRow, type Panel, panels } from '../report/svg.ts';
import type { FleetRow } from './row.ts';

/** A bar longer than this is cut: strict answers near the limit wait far longer than all others. */
const CUT_AT_S = 4;

export function fleetChart(rows: readonly FleetRow[], seed: number): string {
  const drawn = rows.filter(({ routing, p99_s }) => routing === 'random' && !Number.isNaN(p99_s));
  const sizes = [...new Set(drawn.map(({ nodes }) => nodes))];
  const panel = (
    nodes: number,
    title: string,
    unit: string,
    digits: number,
    value: (row: FleetRow) => number,
  ): Panel => {
    const bars = drawn
      .filter((row) => row.nodes === nodes)
      .map(
        (row): BarRow => ({
          label: `${row.batch ? 'batch' : 'strict'} ${short(row.rate)}/s`,
          value: value(row),
          own: row.batch,
        }),
      );
    const longest = Math.max(...bars.map((bar) => bar.value));
    return { title, unit, digits, rows: bars, limit: unit === 's' ? Math.min(CUT_AT_S, longest) : longest };
  };
  return panels(
    sizes.flatMap((nodes) => [
      panel(
        nodes,
        `${nodes.toLocaleString('en-US')} nodes: 99th percentile to a proven answer`,
        's',
        2,
        (row) => row.p99_s,
      ),
      panel(nodes, 'Node-hours for a million proofs', 'h', 1, (row) => row.node_seconds_per_million / 3600),
    ]),
    [
      `A model, not a measurement: arrivals at random times and nodes (seed ${seed}); each GPU takes ${(drawn[0]?.collection_s ?? 0) * 1e3} ms for a signature, strict or of a batch.`,
      'Strict: one answer a signature. Batch: all that wait at the node share the next one.',
    ],
  );
}

const short = (rate: number) => (rate >= 1e6 ? `${rate / 1e6}M` : rate >= 1e4 ? `${rate / 1e3}k` : String(rate));
