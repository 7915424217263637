// Whole answers of 1 KB to requests of three sizes, as many as it can: requests a second and CPU for each.
import { type Figure, OTHERS, othersOf, overTargets, SMALL, wrongOf } from './figure.ts';

function wholeFigure(kb: number): Figure {
  const name = `whole-${kb}k`;
  const scene = { ...SMALL, asked_bytes: kb * 1024 };
  return {
    name,
    title: (plan) => `Whole answers to requests of ${kb} KB, ${plan.concurrency} connections`,
    columns: [
      { key: 'rate', title: 'req/s', digits: 0 },
      { key: 'cpu', title: 'CPU µs/req', digits: 1, ratio: true },
      { key: 'busy', title: 'proxy busy %', digits: 0 },
      { key: 'sidecar', title: 'sidecar µs/req', digits: 1 },
      { key: 'both', title: 'both', digits: 1 },
      OTHERS,
    ],
    round: (bench, turn) =>
      overTargets(name, bench, turn, 'whole', async ({ aim, watch }) => {
        const { concurrency, warm_ms, closed_ms: duration_ms } = bench.plan;
        const result = await bench.load.closed({ aim, watch, scene, concurrency, warm_ms, duration_ms });
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

export const whole1k = wholeFigure(1);
export const whole16k = wholeFigure(16);
export const whole128k = wholeFigure(128);
