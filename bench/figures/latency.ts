// Low load: what a proxy adds to one answer when nothing else competes.
import { percentile } from '../stats.ts';
import { type Figure, overTargets, wrongOf } from './figure.ts';

export const latency: Figure = {
  name: 'latency',
  title: (plan) => `Added latency of a whole answer of 1 KB at ${plan.low_rate} req/s or fewer, open loop`,
  columns: [
    { key: 'p50', title: 'added p50 µs', digits: 0, added: true, ratio: true },
    { key: 'p99', title: 'added p99 µs', digits: 0, added: true },
    { key: 'total', title: 'p50 µs', digits: 0 },
  ],
  round: (bench, turn) =>
    overTargets('latency', bench, turn, 'whole', async ({ aim }, kind) => {
      const { limits, max_rate = Number.POSITIVE_INFINITY } = kind;
      const rate = Math.min(limits?.low_rate ?? bench.plan.low_rate, max_rate / 2);
      const scene = { kind: 'whole', bytes: 1024 } as const;
      const result = await bench.load.open({ aim, scene, rate, duration_ms: bench.plan.low_ms });
      const p50 = percentile(result.latency_us, 0.5);
      return { values: { p50, p99: percentile(result.latency_us, 0.99), total: p50 }, wrong: wrongOf(result) };
    }),
};
