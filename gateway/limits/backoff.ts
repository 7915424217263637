// The one rule for how long to wait before something is tried again.

export interface Backoff {
  readonly min_ms: number;
  readonly max_ms: number;
}

/** After so many failures, from 1: twice as long each time, and up to a quarter longer by chance, so that not everybody comes at once. */
export function delayAfter(failures: number, { min_ms, max_ms }: Backoff): number {
  const delay_ms = Math.min(max_ms, min_ms * 2 ** Math.max(0, failures - 1));
  return delay_ms * (1 + Math.random() / 4);
}
