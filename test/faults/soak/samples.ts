// The soak's measurements: memory and descriptors over time, and whether they grew.
import type { Cost } from '../cost.ts';

/** After so long a gateway has its working size. */
const SETTLED_MIN = 5;
const MAX_GROWTH = 1.1;
/** Shorter runs have not filled every cache when they are measured first: so much is no growth. */
const SPARE_MIB_SHORT = 24;
/** Connections to the backend that are kept for the next request. */
export const SPARE_DESCRIPTORS = 12;

export interface Sample extends Cost {
  readonly at_s: number;
}

/** When the first value is taken, in seconds: at five minutes, in shorter runs at half. */
export function settledAt_s(minutes: number): number {
  return Math.min(SETTLED_MIN, minutes / 2) * 60;
}

/** Memory goes up and down with the garbage collector: the median around a moment says what it is then. */
export function memoryAround(samples: readonly Sample[], at_s: number, window_s: number): number {
  const near = samples.filter((one) => Math.abs(one.at_s - at_s) <= window_s).map((one) => one.rss_mib);
  return median(near);
}

/** One line for each thing that grew. */
export function growth(
  memory: { readonly settled: number; readonly end: number },
  descriptors: { readonly start: number; readonly end: number },
  minutes: number,
): string[] {
  const wrong: string[] = [];
  const allowed = memory.settled * MAX_GROWTH + (minutes < 2 * SETTLED_MIN ? SPARE_MIB_SHORT : 0);
  if (!(memory.end <= allowed))
    wrong.push(
      `memory grew from ${memory.settled.toFixed(0)} to ${memory.end.toFixed(0)} MiB, over ${allowed.toFixed(0)}`,
    );
  if (descriptors.end > descriptors.start + SPARE_DESCRIPTORS)
    wrong.push(`descriptors did not come back: ${descriptors.start} at the start, ${descriptors.end} at the end`);
  return wrong;
}

export function median(values: readonly number[]): number {
  return percentile(values, 0.5);
}

export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
