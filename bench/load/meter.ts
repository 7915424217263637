// Reads the clock and the CPU of the watched processes, here in the load generator, so that both edges are sharp.

import type { Cost, Watch } from '../jobs.ts';
import { now_us } from '../system/clock.ts';
import { cpu_us, machine_us } from '../system/proc.ts';

/** Starts counting; the function returned says what it cost so far. */
export function meter(watch: Watch): () => Cost {
  const read = () => {
    const proxy_us = cpu_us(watch.proxy);
    const sidecar_us = cpu_us(watch.sidecar);
    const foreign_us = machine_us() - proxy_us - sidecar_us - cpu_us(watch.bench);
    return { elapsed_us: now_us(), proxy_us, sidecar_us, foreign_us };
  };
  const start = read();
  return () => {
    const end = read();
    return {
      elapsed_us: end.elapsed_us - start.elapsed_us,
      proxy_us: end.proxy_us - start.proxy_us,
      sidecar_us: end.sidecar_us - start.sidecar_us,
      foreign_us: Math.max(0, end.foreign_us - start.foreign_us),
    };
  };
}
