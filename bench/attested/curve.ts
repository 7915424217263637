// Latency over load: what strict and batched answers wait, from one simulated GPU that takes 700 ms, as their clients become more.

import { percentile } from '../report/stats.ts';
import { type BarRow, panels } from '../report/svg.ts';
import { type Answers, openStage } from './stage.ts';

const COLLECTION_MS = 700;
/** Fewer answers than these have no 99th percentile to speak of, so that few a second are offered for longer. */
const LEAST_ANSWERS = 60;
const SHORTEST_MS = 12_000;

export interface Point {
  readonly tee: 'strict' | 'batch';
  /** Answers offered a second, at random times (Poisson). */
  readonly rate: number;
  readonly p50_ms: number;
  readonly p99_ms: number;
  readonly wrong: number;
}

/** Above 1.43 a second strict answers would wait ever longer. */
const STRICT = [0.5, 1, 1.3].map((rate) => ({ tee: 'strict', rate }) as const);
const BATCH = [0.5, 1, 1.3, 20, 100].map((rate) => ({ tee: 'batch', rate }) as const);

export async function measureCurve(folder: string): Promise<Point[]> {
  const few = [...STRICT, ...BATCH].filter(({ rate }) => rate < 10);
  const many = BATCH.filter(({ rate }) => rate >= 10);
  // Their processes sleep nearly always, so that they do not disturb one another.
  const points = await Promise.all(few.map((one) => measure(folder, one)));
  for (const one of many) points.push(await measure(folder, one));
  return points.sort((a, b) => (a.tee === b.tee ? a.rate - b.rate : a.tee === 'strict' ? -1 : 1));
}

async function measure(folder: string, { tee, rate }: Pick<Point, 'tee' | 'rate'>): Promise<Point> {
  const stage = await openStage(folder, { collection_ms: COLLECTION_MS });
  const duration_ms = Math.max(SHORTEST_MS, (LEAST_ANSWERS / rate) * 1e3);
  const answers = await stage.offer({ rate, duration_ms, tee, arrivals: 'poisson' });
  await stage.close();
  return pointOf(tee, rate, answers);
}

export function pointOf(tee: Point['tee'], rate: number, { latency_ms, wrong }: Answers): Point {
  return { tee, rate, p50_ms: percentile(latency_ms, 0.5), p99_ms: percentile(latency_ms, 0.99), wrong };
}

/** Of the points, as SVG. */
export function curveChart(points: readonly Point[], machine: string): string {
  const panel = (title: string, value: (point: Point) => number) => {
    const rows = points.map(
      (point): BarRow => ({
        label: `${point.tee} ${point.rate}/s`,
        value: value(point) / 1e3,
        own: point.tee === 'batch',
      }),
    );
    return { title, unit: 's', digits: 2, rows, limit: Math.max(...rows.map((row) => row.value)) };
  };
  return panels(
    [panel('Median time to a proven answer', ({ p50_ms }) => p50_ms), panel('99th percentile', ({ p99_ms }) => p99_ms)],
    [
      `One simulated GPU that takes ${COLLECTION_MS} ms for a signature. Strict answers cannot come faster than 1.43 a second.`,
      `Gateway, sidecar, backend and clients on one machine: ${machine}.`,
    ],
  );
}
