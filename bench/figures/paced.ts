// Streams at an engine's pace: CPU of a chunk, time to the first one, and how late each is.
import { percentile } from '../report/stats.ts';
import { type Figure, OTHERS, othersOf, overTargets, wrongOf } from './figure.ts';

export const paced: Figure = {
  name: 'paced',
  title: (plan) => `${plan.paced_streams} paced streams of ${plan.paced_rate} chunks/s each`,
  columns: [
    { key: 'cpu', title: 'CPU µs/chunk', digits: 1, ratio: true },
    { key: 'both', title: 'with sidecar', digits: 1 },
    { key: 'ttft50', title: 'added TTFT p50 µs', digits: 0, added: true, ratio: true },
    { key: 'ttft99', title: 'p99', digits: 0, added: true },
    { key: 'ttftNew50', title: 'on new connections p50', digits: 0, added: true },
    { key: 'age50', title: 'added chunk p50 µs', digits: 0, added: true, ratio: true },
    { key: 'age99', title: 'p99', digits: 0, added: true, ratio: true },
    { key: 'share', title: 'chunks on time %', digits: 0 },
    OTHERS,
  ],
  round: (bench, turn) =>
    overTargets('paced', bench, turn, 'streams', async ({ aim, watch }) => {
      const { paced_streams: streams, paced_rate: rate, paced_ms } = bench.plan;
      const result = await bench.load.paced({ aim, watch, streams, rate, duration_ms: paced_ms });
      const { cost, chunks } = result;
      const proxied = watch.proxy.length > 0;
      return {
        values: {
          cpu: proxied ? cost.proxy_us / chunks : Number.NaN,
          both: proxied ? (cost.proxy_us + cost.sidecar_us) / chunks : Number.NaN,
          ttft50: percentile(result.ttft_us, 0.5),
          ttft99: percentile(result.ttft_us, 0.99),
          ttftNew50: percentile(result.ttft_new_us, 0.5),
          age50: result.age_p50_us,
          age99: result.age_p99_us,
          share: (chunks / ((cost.elapsed_us / 1e6) * streams * rate)) * 100,
          others: othersOf(cost),
        },
        wrong: wrongOf(result),
      };
    }),
};
