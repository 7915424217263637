// What a stream costs: time to the first chunk, how late chunks are, CPU of each, and the memory of streams that are silent.
import { type Bench, costOf, ofProxy, others, overTargets, type Question } from './bench.ts';
import { memory_bytes } from './processes.ts';
import { most, percentile, type Row } from './report.ts';
import { open } from './target.ts';
import { SMALL, sleep } from './wire.ts';

const STREAMS = 100;
const RATE = 100;
const WARM_STREAMS = 100;
const WARM_MS = 500;
const SETTLE_MS = 1_000;

/** A fresh process, warmed, before and with the streams. */
const memory = (bench: Bench, turn: number): Promise<Row[]> =>
  overTargets(bench, turn, async ({ kind }) => {
    if (kind.name === 'direct') return null;
    const { load, plan, where, own } = bench;
    const streams = kind.slow ? 100 : plan.idle_streams;
    const fresh = await open(kind, where, own);
    try {
      const { aim } = fresh;
      const { proxy } = fresh.watch();
      await load.closed({ aim, watch: fresh.watch(), scene: SMALL, concurrency: 8, warm_ms: 0, duration_ms: WARM_MS });
      await load.hold({ aim, streams: Math.min(WARM_STREAMS, streams) });
      await load.release();
      await sleep(SETTLE_MS);
      const empty = memory_bytes(proxy);
      const wrong = await load.hold({ aim, streams });
      await sleep(SETTLE_MS);
      const full = memory_bytes(proxy);
      return { values: { each: (full - empty) / streams / 1024, empty: empty / 2 ** 20, full: full / 2 ** 20 }, wrong };
    } finally {
      await load.release();
      await fresh.stop();
    }
  });

export const stream: Question = {
  name: 'stream',
  tables: ({ idle_streams }) => [
    {
      name: 'paced',
      title: `${STREAMS} streams of ${RATE} chunks/s each`,
      columns: [
        { key: 'cpu', title: 'CPU µs/chunk', digits: 1, against: 'pipe' },
        { key: 'ttft50', title: 'first chunk, added p50 µs', digits: 0, added: true, against: 'pipe' },
        { key: 'ttft99', title: 'p99', digits: 0, added: true },
        { key: 'age50', title: 'each chunk, added p50 µs', digits: 0, added: true, against: 'pipe' },
        { key: 'age99', title: 'p99', digits: 0, added: true, against: 'pipe' },
        { key: 'share', title: 'on time %', digits: 0 },
        { key: 'others', title: 'others %', digits: 0 },
      ],
    },
    {
      name: 'memory',
      title: `Memory (PSS) of ${idle_streams} open silent streams, a fresh process`,
      columns: [
        { key: 'each', title: 'KB/stream', digits: 1, against: 'pipe' },
        { key: 'empty', title: 'MB before', digits: 1 },
        { key: 'full', title: 'MB with them', digits: 1 },
      ],
    },
  ],
  bars: [
    most('paced cpu', 'ours / pipe', 1.1, 'CPU of a paced chunk, against the pipe'),
    most('paced age99', 'ours / pipe', 1, "p99 of what is added to a chunk's age, against the pipe's"),
    most('memory each', 'ours / pipe', 1.5, "memory of an open idle stream, against the pipe's"),
    most('paced cpu', 'ours / before', 1, 'CPU of a paced chunk, against before'),
    most('paced cpu', 'ours tee / before tee', 1, 'with tee, CPU of a paced chunk, against before'),
    most('paced ttft50', 'ours tee / before tee', 1, 'with tee, added time to the first chunk, against before'),
  ],
  async round(bench, turn) {
    const { load, plan } = bench;
    const paced = await overTargets(bench, turn, async (target) => {
      const { aim, kind, watch } = target;
      // About a hundred requests a second are all that a slow one can do.
      const streams = kind.slow ? 5 : STREAMS;
      const result = await load.paced({ aim, watch: watch(), streams, rate: RATE, duration_ms: plan.paced_ms });
      const { count, elapsed_us, latency_us, ages_us, wrong } = result;
      return {
        values: {
          cpu: ofProxy(target, costOf(result)),
          ttft50: percentile(latency_us, 0.5),
          ttft99: percentile(latency_us, 0.99),
          age50: percentile(ages_us, 0.5),
          age99: percentile(ages_us, 0.99),
          share: (count / ((elapsed_us / 1e6) * streams * RATE)) * 100,
          others: others(result),
        },
        wrong,
      };
    });
    return turn > 0 ? { paced } : { paced, memory: await memory(bench, turn) };
  },
};
