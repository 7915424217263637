// The one retry policy of the sidecar: what is tried again, how often, and how long from one attempt to the next.
//
// Retries do not stack. A failure is retried in one place: an attestation that may pass by the scheduler, an attester that cannot
// attest by the circuit breaker's trials (one attempt each), a worker process by its pool, a session with the processor by
// cpu/sessions.ts (its busy driver, for 300 ms, by cpu/tsm.ts), and everything else by the gateway, which is told when. Two things are
// done again without a wait: what an appraisal rests on is renewed (attesters/appraisal.ts), and registers or reports that another
// process changed meanwhile are read again (cpu/tsm.ts, cpu/azure.ts).
import { setTimeout as delay } from 'node:timers/promises';

/** The wait before the next attempt: doubled at each further failure, up to `max_ms`. */
interface Backoff {
  readonly first_ms: number;
  readonly max_ms?: number;
}

/** One attestation, while its request's deadline lasts. */
export const ATTESTATION_RETRY = { attempts: 3, first_ms: 100 } as const;
/** One trial after the other, while the circuit is open. */
export const TRIAL_EVERY_MS = 10_000;
/** The start of a worker process after one that failed. */
export const WORKER_START = { first_ms: 250, max_ms: 30_000 } as const;
/** The making of a session with the processor. */
export const SESSION_RETRY = { first_ms: 1_000, max_ms: 60_000 } as const;
/** A read of the processor's driver, while it is busy or a signal interrupted it: the same `inblob` is still there to be read. */
export const DRIVER_READ_RETRY = { attempts: 4, first_ms: 50, max_ms: 150 } as const;
/** When a gateway may send its request again, by what failed. */
export const RETRY_AFTER_MS = {
  /** About the time of one attestation. */
  queue_full: 500,
  attester: 250,
  /** About the time of one session. */
  session: 2_000,
  /** By then this sidecar has closed the connection, and its successor gets the request. */
  shutting_down: 1_000,
} as const;

/** @param failures in a row before this one, from 0. */
export const backoffMs = ({ first_ms, max_ms = Number.POSITIVE_INFINITY }: Backoff, failures: number): number =>
  Math.min(first_ms * 2 ** failures, max_ms);

interface RetryOptions extends Backoff {
  readonly attempts: number;
  readonly isRetryable: (error: unknown) => boolean;
  /** Ends the wait for the next attempt. */
  readonly signal: AbortSignal;
}

/** The result of the first attempt that succeeds. @throws what the last one threw, or the wait, when `signal` was aborted. */
export async function withRetries<T>(attempt: () => Promise<T>, options: RetryOptions): Promise<T> {
  for (let failures = 0; ; failures++) {
    try {
      return await attempt();
    } catch (error) {
      if (options.signal.aborted || failures + 1 >= options.attempts || !options.isRetryable(error)) throw error;
    }
    await delay(backoffMs(options, failures), undefined, { signal: options.signal });
  }
}
