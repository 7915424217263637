// Low load: what a proxy adds to one answer when nothing else competes.
import { percentile } from '../report/stats.ts';
import { type Bench, type Figure, type Measured, overTargets, wrongOf } from './figure.ts';

/** A fast target is asked in so many slices of a round, all in turn: what the machine does meanwhile meets all alike. */
const SLICES = 5;

function latencyFigure(name: string, rateOf: (plan: Bench['plan']) => number, slow: boolean): Figure {
  return {
    name,
    title: (plan) =>
      `Added latency of a whole answer of 1 KB at ${rateOf(plan)} req/s${slow ? ' or fewer' : ''}, open loop`,
    columns: [
      { key: 'p50', title: 'added p50 µs', digits: 0, added: true, ratio: true },
      { key: 'p99', title: 'added p99 µs', digits: 0, added: true },
      { key: 'total', title: 'p50 µs', digits: 0 },
    ],
    async round(bench, turn) {
      const latency_us = new Map<string, number[]>();
      const wrong = new Map<string, string>();
      for (let slice = 0; slice < SLICES; slice++) {
        const rows = await overTargets(name, bench, turn * SLICES + slice, 'whole', async (target, kind) => {
          const { aim } = target;
          const { limits, max_rate = Number.POSITIVE_INFINITY } = kind;
          const rate = Math.min(limits?.low_rate ?? rateOf(bench.plan), max_rate / 2);
          const fast = rate === rateOf(bench.plan) && kind.slow !== true && !aim.tee;
          if (!fast && (!slow || slice > 0)) return null;
          const scene = { kind: 'whole', bytes: 1024 } as const;
          const duration_ms = fast ? bench.plan.low_ms / SLICES : bench.plan.low_ms;
          const result = await bench.load.open({ aim, scene, rate, duration_ms });
          latency_us.set(target.name, [...(latency_us.get(target.name) ?? []), ...result.latency_us]);
          return { values: {}, wrong: wrongOf(result) };
        });
        for (const row of rows) if (row.wrong !== null) wrong.set(row.name, row.wrong);
      }
      return [...new Set([...latency_us.keys(), ...wrong.keys()])].map((target): Measured => {
        const all = latency_us.get(target) ?? [];
        const p50 = percentile(all, 0.5);
        return {
          name: target,
          values: { p50, p99: percentile(all, 0.99), total: p50 },
          wrong: wrong.get(target) ?? null,
        };
      });
    },
  };
}

export const latency = latencyFigure('latency', ({ low_rate }) => low_rate, true);
/** Fast enough that code and memory are still in the processor's caches from one request to the next. */
export const latencyWarm = latencyFigure('latency-warm', ({ warm_rate }) => warm_rate, false);
