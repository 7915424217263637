// Low load: what a proxy adds to one answer when nothing else competes.
import { percentile } from '../report/stats.ts';
import { type Figure, type Measured, overTargets, SMALL, wrongOf } from './figure.ts';

/** A fast target is asked in so many slices of a round, all in turn: what the machine does meanwhile meets all alike. */
const SLICES = 5;

export const latency: Figure = {
  name: 'latency',
  title: (plan) => `Added latency of a whole answer to 1 KB at ${plan.low_rate} requests/s or fewer, open loop`,
  columns: [
    { key: 'p50', title: 'added p50 µs', digits: 0, added: true, ratio: true },
    { key: 'p99', title: 'added p99 µs', digits: 0, added: true },
    { key: 'total', title: 'p50 µs', digits: 0 },
  ],
  async round(bench, turn) {
    const latency_us = new Map<string, number[]>();
    const wrong = new Map<string, string>();
    for (let slice = 0; slice < SLICES; slice++) {
      const rows = await overTargets('latency', bench, turn * SLICES + slice, 'whole', async ({ name, aim }, kind) => {
        const slow = kind.slow === true;
        if (slow && slice > 0) return null;
        const rate = kind.limits?.low_rate ?? bench.plan.low_rate;
        const duration_ms = slow ? bench.plan.low_ms : bench.plan.low_ms / SLICES;
        const result = await bench.load.open({ aim, scene: SMALL, rate, duration_ms });
        latency_us.set(name, [...(latency_us.get(name) ?? []), ...result.latency_us]);
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
