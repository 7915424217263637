// A client leaves in the middle of its stream: how long until the backend knows and can stop generating.

import { percentile } from '../report/stats.ts';
import { sleep } from '../system/clock.ts';
import { type Figure, overTargets, wrongOf } from './figure.ts';

const LAST_NOTICE_MS = 500;
let next_id = 1;

export const cancel: Figure = {
  name: 'cancel',
  title: (plan) => `Client gone → backend's request cancelled, ${plan.leave_rate} a second`,
  columns: [
    { key: 'p50', title: 'p50 ms', digits: 2 },
    { key: 'p99', title: 'p99 ms', digits: 2 },
  ],
  round: (bench, turn) =>
    overTargets('cancel', bench, turn, 'streams', async ({ aim }, kind) => {
      if (kind.max_rate !== undefined) return null;
      const { leave_streams: streams, leave_rate: rate } = bench.plan;
      const first_id = next_id;
      next_id += streams;
      await bench.backend.left();
      const result = await bench.load.leave({ aim, streams, rate, first_id });
      await sleep(LAST_NOTICE_MS);
      const noticed = new Map(await bench.backend.left());
      const took_ms = result.left.map(([id, at]) => ((noticed.get(id) ?? Number.NaN) - at) / 1e3);
      const missed = took_ms.filter(Number.isNaN).length;
      return {
        values: { p50: percentile(took_ms, 0.5), p99: percentile(took_ms, 0.99) },
        wrong: missed > 0 ? `${missed} of ${streams} were never cancelled` : wrongOf(result),
      };
    }),
};
