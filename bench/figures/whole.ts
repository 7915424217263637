// Whole answers, as many as it can: requests a second and CPU for each.
import { type Figure, OTHERS, othersOf, overTargets, wrongOf } from './figure.ts';

function wholeFigure(name: string, label: string, bytes: number): Figure {
  return {
    name,
    title: (plan) => `Whole answers of ${label}, ${plan.concurrency} connections`,
    columns: [
      { key: 'rate', title: 'req/s', digits: 0 },
      { key: 'cpu', title: 'CPU µs/req', digits: 1, ratio: true },
      { key: 'busy', title: 'proxy busy %', digits: 0 },
      { key: 'sidecar', title: 'sidecar µs/req', digits: 1 },
      { key: 'both', title: 'both', digits: 1 },
      OTHERS,
    ],
    round: (bench, turn) =>
      overTargets(name, bench, turn, 'whole', async ({ aim, watch }, kind) => {
        if (kind.max_rate !== undefined) return null;
        const { concurrency, warm_ms, closed_ms } = bench.plan;
        const job = {
          aim,
          watch,
          scene: { kind: 'whole', bytes },
          concurrency,
          warm_ms,
          duration_ms: closed_ms,
        } as const;
        const result = await bench.load.closed(job);
        const { cost, answers } = result;
        const proxied = watch.proxy.length > 0;
        return {
          values: {
            rate: (answers / cost.elapsed_us) * 1e6,
            cpu: proxied ? cost.proxy_us / answers : Number.NaN,
            busy: proxied ? (cost.proxy_us / cost.elapsed_us) * 100 : Number.NaN,
            sidecar: watch.sidecar.length === 0 ? Number.NaN : cost.sidecar_us / answers,
            both: proxied ? (cost.proxy_us + cost.sidecar_us) / answers : Number.NaN,
            others: othersOf(cost),
          },
          wrong: answers === 0 ? 'no answers' : wrongOf(result),
        };
      }),
  };
}

export const whole1k: Figure = { ...wholeFigure('whole-1k', '1 KB', 1024), first: true };
export const whole16k = wholeFigure('whole-16k', '16 KB', 16 * 1024);
