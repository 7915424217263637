// Streams: at an engine's pace for latency and CPU, and as fast as they are taken.
import type { PacedResult, Watch } from '../jobs.ts';
import { percentile } from '../report/stats.ts';
import { type Column, type Figure, OTHERS, othersOf, overTargets, wrongOf } from './figure.ts';

const CPU: Column = { key: 'cpu', title: 'CPU µs/chunk', digits: 1, ratio: true };
const BOTH: Column = { key: 'both', title: 'with sidecar', digits: 1 };
const AGE: Column = { key: 'age50', title: 'added chunk p50 µs', digits: 0, added: true, ratio: true };
const ON_TIME: Column = { key: 'share', title: 'chunks on time %', digits: 0 };

/** The values of these columns and of OTHERS. `per_s`: chunks that all streams together should have got. */
const pacedValues = ({ cost, chunks, age_p50_us }: PacedResult, { proxy }: Watch, per_s: number) => ({
  cpu: proxy.length === 0 ? Number.NaN : cost.proxy_us / chunks,
  both: proxy.length === 0 ? Number.NaN : (cost.proxy_us + cost.sidecar_us) / chunks,
  others: othersOf(cost),
  age50: age_p50_us,
  share: (chunks / ((cost.elapsed_us / 1e6) * per_s)) * 100,
});

export const paced: Figure = {
  name: 'paced',
  first: true,
  title: (plan) => `${plan.paced_streams} paced streams of ${plan.paced_rate} chunks/s each`,
  columns: [
    CPU,
    BOTH,
    { key: 'ttft50', title: 'added TTFT p50 µs', digits: 0, added: true, ratio: true },
    { key: 'ttft99', title: 'p99', digits: 0, added: true },
    { key: 'ttftNew50', title: 'on new connections p50', digits: 0, added: true },
    AGE,
    { key: 'age99', title: 'p99', digits: 0, added: true },
    ON_TIME,
    OTHERS,
  ],
  round: (bench, turn) =>
    overTargets('paced', bench, turn, 'streams', async ({ aim, watch }, kind) => {
      if (kind.max_rate !== undefined) return null;
      const { paced_streams: streams, paced_rate: rate, paced_ms } = bench.plan;
      const result = await bench.load.paced({ aim, watch, streams, rate, duration_ms: paced_ms });
      return {
        values: {
          ...pacedValues(result, watch, streams * rate),
          ttft50: percentile(result.ttft_us, 0.5),
          ttft99: percentile(result.ttft_us, 0.99),
          ttftNew50: percentile(result.ttft_new_us, 0.5),
          age99: result.age_p99_us,
        },
        wrong: wrongOf(result),
      };
    }),
};

/** Ours and the yardsticks: what a stream of named events costs. */
export const responses: Figure = {
  name: 'responses',
  title: (plan) => `${plan.paced_streams} paced streams of /v1/responses, ${plan.paced_rate} chunks/s each`,
  columns: [CPU, BOTH, AGE, ON_TIME, OTHERS],
  round: (bench, turn) =>
    overTargets('responses', bench, turn, 'streams', async ({ aim, watch }, kind) => {
      if (!RESPONSES.has(kind.name)) return null;
      const { paced_streams: streams, paced_rate: rate, paced_ms } = bench.plan;
      const job = { aim, watch, streams, rate, duration_ms: paced_ms, form: 'response' } as const;
      const result = await bench.load.paced(job);
      return { values: pacedValues(result, watch, streams * rate), wrong: wrongOf(result) };
    }),
};
const RESPONSES = new Set(['direct', 'nginx', 'pipe', 'ours', 'ours tee']);

export const saturation: Figure = {
  name: 'saturation',
  title: (plan) =>
    `Saturation: ${plan.burst_streams} streams of ${plan.burst_chunks} chunks, as fast as they are taken`,
  columns: [
    { key: 'rate', title: 'chunks/s', digits: 0, ratio: true },
    CPU,
    { key: 'busy', title: 'proxy busy %', digits: 0 },
    { key: 'sidecar', title: 'sidecar µs/chunk', digits: 1 },
    OTHERS,
  ],
  round: (bench, turn) =>
    overTargets('saturation', bench, turn, 'streams', async ({ aim, watch }, kind) => {
      if (kind.max_rate !== undefined) return null;
      const { burst_streams: concurrency, burst_chunks, warm_ms, closed_ms } = bench.plan;
      const scene = { kind: 'burst', chunks: burst_chunks } as const;
      const result = await bench.load.closed({ aim, watch, scene, concurrency, warm_ms, duration_ms: closed_ms });
      const { cost, chunks } = result;
      return {
        values: {
          rate: (chunks / cost.elapsed_us) * 1e6,
          cpu: watch.proxy.length === 0 ? Number.NaN : cost.proxy_us / chunks,
          busy: watch.proxy.length === 0 ? Number.NaN : (cost.proxy_us / cost.elapsed_us) * 100,
          sidecar: watch.sidecar.length === 0 ? Number.NaN : cost.sidecar_us / chunks,
          others: othersOf(cost),
        },
        wrong: chunks === 0 ? 'no chunks' : wrongOf(result),
      };
    }),
};
