// Memory of an open stream: a fresh process, warmed, then thousands of streams that are open and silent.
import { sleep } from '../system/clock.ts';
import { memory_bytes, tree } from '../system/proc.ts';
import { type Figure, overTargets, SMALL, wrongOf } from './figure.ts';

const WARM_STREAMS = 100;
const WARM_MS = 500;

export const memory: Figure = {
  name: 'memory',
  once: true,
  title: (plan) =>
    `Memory (PSS) of ${plan.idle_streams} open silent streams, ${plan.idle_settle_ms} ms after the last has begun, a fresh process`,
  columns: [
    { key: 'each', title: 'KB/stream', digits: 1, ratio: true },
    { key: 'empty', title: 'MB before', digits: 1 },
    { key: 'full', title: 'MB with them', digits: 1 },
  ],
  round: (bench, turn) =>
    overTargets('memory', bench, turn, 'streams', async ({ watch }, kind) => {
      if (watch.proxy.length === 0) return null;
      const { load, plan, where } = bench;
      const streams = kind.limits?.idle_streams ?? plan.idle_streams;
      const fresh = await kind.start(where);
      try {
        const { aim } = fresh;
        const proxy = fresh.watch.proxy.flatMap(tree);
        await load.closed({ aim, watch: fresh.watch, scene: SMALL, concurrency: 8, warm_ms: 0, duration_ms: WARM_MS });
        await load.hold({ aim, streams: Math.min(WARM_STREAMS, streams) });
        await load.release();
        await sleep(plan.idle_settle_ms);
        const empty = memory_bytes(proxy);
        const result = await load.hold({ aim, streams });
        await sleep(plan.idle_settle_ms);
        const full = memory_bytes(proxy);
        const each = (full - empty) / streams / 1024;
        return { values: { each, empty: empty / 2 ** 20, full: full / 2 ** 20 }, wrong: wrongOf(result) };
      } finally {
        await load.release();
        await fresh.stop();
      }
    }),
};
