// What one node was measured to do with a simulated GPU of 700 ms: the numbers of docs/proven-answers.svg (npm run bench -- --attested).
export const MEASURED_ON = '2026-11-23, gateway, sidecar, backend and clients on 2 shared cores';

/** One client that asks for the next when it has its answer, and the most strict answers a second. */
export const MEASURED_ALONE = { p50_s: 0.715, most_per_second: 1.4 };

/** Of the points below 10 a second there are about 60 answers each: their 99th percentiles are nearly the longest wait that was met. */
export const MEASURED = [
  { batch: false, rate: 0.5, p50_s: 0.72, p99_s: 2.83 },
  { batch: false, rate: 1, p50_s: 0.93, p99_s: 3.39 },
  { batch: false, rate: 1.3, p50_s: 3.95, p99_s: 7.99 },
  { batch: true, rate: 0.5, p50_s: 0.72, p99_s: 1.39 },
  { batch: true, rate: 1, p50_s: 0.73, p99_s: 1.41 },
  { batch: true, rate: 1.3, p50_s: 0.97, p99_s: 1.4 },
  { batch: true, rate: 20, p50_s: 1.09, p99_s: 1.43 },
  { batch: true, rate: 100, p50_s: 1.12, p99_s: 1.46 },
  { batch: true, rate: 500, p50_s: 1.23, p99_s: 1.59 },
  { batch: true, rate: 2_000, p50_s: 1.32, p99_s: 1.75 },
] as const;
