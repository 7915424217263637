// How long to wait before a retry: one rule for the whole process.

interface Backoff {
  readonly min_ms: number;
  readonly max_ms: number;
}

/**
 * Returns the wait after so many failures, from 1. It doubles each time up to `max_ms`, and is up to a quarter longer at random, so that
 * not all retries come at once. `requested_ms`: the shortest wait that the other side requests, which may be longer than `max_ms`.
 */
export function delayAfter(failures: number, { min_ms, max_ms }: Backoff, requested_ms = 0): number {
  const delay_ms = Math.max(requested_ms, Math.min(max_ms, min_ms * 2 ** Math.max(0, failures - 1)));
  return delay_ms * (1 + Math.random() / 4);
}
