// What an answer costs passing through: CPU and requests a second at full load, and what is added to its latency at low load.
import { type Bench, CONNECTIONS, costOf, ofProxy, others, overTargets, type Question } from './bench.ts';
import { least, most, percentile, type Row } from './report.ts';
import { SMALL } from './wire.ts';

const LOW_RATE = 100;
/** Of those that do a hundred requests a second at most. */
const SLOW_RATE = 20;
/** A round asks each target in so many slices, all in turn: what the machine does meanwhile meets all alike. */
const SLICES = 5;

async function latency(bench: Bench, turn: number): Promise<readonly Row[]> {
  const all = new Map<string, number[]>();
  const wrong = new Map<string, string>();
  for (let slice = 0; slice < SLICES; slice++)
    await overTargets(bench, turn * SLICES + slice, async ({ aim, watch, kind }) => {
      const rate = kind.slow ? SLOW_RATE : LOW_RATE;
      const job = { aim, scene: SMALL, watch: watch(), rate, duration_ms: bench.plan.low_ms / SLICES };
      const result = await bench.load.open(job);
      all.set(kind.name, [...(all.get(kind.name) ?? []), ...result.latency_us]);
      if (result.wrong !== null) wrong.set(kind.name, result.wrong);
      return null;
    });
  return bench.targets.map(({ kind: { name } }) => {
    const p50 = percentile(all.get(name) ?? [], 0.5);
    return {
      name,
      values: { p50, p99: percentile(all.get(name) ?? [], 0.99), whole: p50 },
      wrong: wrong.get(name) ?? null,
    };
  });
}

export const relay: Question = {
  name: 'relay',
  tables: ({ sizes_kb }) => [
    ...sizes_kb.map((kb) => ({
      name: `whole-${kb}k`,
      title: `Whole answers of 1 KB to requests of ${kb} KB, ${CONNECTIONS} connections`,
      columns: [
        { key: 'rate', title: 'requests/s', digits: 0 },
        { key: 'cpu', title: 'CPU µs', digits: 0, against: 'pipe' },
        { key: 'busy', title: 'proxy busy %', digits: 0 },
        { key: 'sidecar', title: 'sidecar µs', digits: 0 },
        { key: 'others', title: 'others %', digits: 0 },
      ],
    })),
    {
      name: 'latency',
      title: `A whole answer at ${LOW_RATE} requests/s (slow ones: ${SLOW_RATE}), from when it was due`,
      columns: [
        { key: 'p50', title: 'added p50 µs', digits: 0, added: true, against: 'pipe' },
        { key: 'p99', title: 'added p99 µs', digits: 0, added: true },
        { key: 'whole', title: 'p50 µs', digits: 0 },
      ],
    },
  ],
  bars: [
    most('whole-1k cpu', 'ours / pipe', 1.15, 'CPU of a whole answer to 1 KB, against the pipe'),
    most('whole-16k cpu', 'ours / pipe', 1.15, 'CPU of a whole answer to 16 KB, against the pipe'),
    least('whole-1k rate', 'ours / portkey', 5, 'requests a second, against Portkey'),
    most('whole-1k cpu', 'ours / before', 1, 'CPU of a whole answer to 1 KB, against before'),
    most('whole-16k cpu', 'ours / before', 1, 'CPU of a whole answer to 16 KB, against before'),
    most('latency p50', 'ours / before', 1, 'added p50 at low load, against before'),
  ],
  async round(bench, turn) {
    const found: Record<string, readonly Row[]> = {};
    for (const kb of bench.plan.sizes_kb)
      found[`whole-${kb}k`] = await overTargets(bench, turn, async (target) => {
        if (kb > 1 && (target.kind.slow || target.kind.tee === 'strict')) return null;
        const watch = target.watch();
        const scene = { kind: 'whole', asked: kb * 1024 } as const;
        // A slow one has not answered 64 clients once in the time of the others.
        const [concurrency, times] = target.kind.slow ? [4, 4] : [CONNECTIONS, 1];
        const duration_ms = bench.plan.closed_ms * times;
        const job = { aim: target.aim, scene, watch, concurrency, warm_ms: duration_ms / 3, duration_ms };
        const result = await bench.load.closed(job);
        const { count, elapsed_us, proxy_us, sidecar_us, wrong } = result;
        return {
          values: {
            rate: (count / elapsed_us) * 1e6,
            cpu: ofProxy(target, costOf(result)),
            busy: ofProxy(target, (proxy_us / elapsed_us) * 100),
            sidecar: watch.sidecar.length === 0 ? Number.NaN : sidecar_us / count,
            others: others(result),
          },
          wrong: count === 0 ? 'no answers' : wrong,
        };
      });
    return { ...found, latency: await latency(bench, turn) };
  },
};
