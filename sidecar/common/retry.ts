// The one retry policy of the sidecar: what is retried, how often, and after which delays.
//
// The scheduler makes three attempts at an attestation. If a service sent Retry-After, it makes no further one and passes that time on.
// After the last attempt it sends RETRY_AFTER_MS.attester, and the gateway repeats the request until its own deadline, because a response
// without an attestation is lost. Each repetition is a new attestation, behind the requests that arrived before it.
//
// Everything else is retried in one place each:
//   an attester that cannot attest: signing/circuit-breaker.ts, one attempt at each trial
//   the start of a worker process: the pool in attesters/nvtrust/nvtrust.ts
//   a session with the processor: cpu/sessions.ts
//   a read from the processor's driver while it is busy: cpu/tsm.ts, for 300 ms
//   all other requests: the gateway, which is told when to send them again
// Two things are repeated without delay:
//   an appraisal whose inputs were renewed: attesters/appraisal.ts
//   reads of registers or reports that another process changed meanwhile: cpu/tsm.ts, cpu/azure.ts
import { setTimeout as delay } from 'node:timers/promises';

/** The wait before the next attempt: doubled at each further failure, up to `max_ms`. */
interface Backoff {
  readonly first_ms: number;
  readonly max_ms?: number;
}

/** One attestation of one request, within its deadline. */
export const ATTESTATION_RETRY = { attempts: 3, first_ms: 100 } as const;
/** The time between trials while the circuit is open. */
export const TRIAL_EVERY_MS = 10_000;
/** The start of a worker process after a failed start. */
export const WORKER_START = { first_ms: 250, max_ms: 30_000 } as const;
/** Making a session with the processor. */
export const SESSION_RETRY = { first_ms: 1_000, max_ms: 60_000 } as const;
/** A read from the processor's driver that was busy or interrupted by a signal; the same `inblob` can still be read. */
export const DRIVER_READ_RETRY = { attempts: 4, first_ms: 50, max_ms: 150 } as const;
/** When a gateway may send its request again, by failure. */
export const RETRY_AFTER_MS = {
  /** About the time of one attestation. */
  queue_full: 500,
  attester: 250,
  /** About the time of one session. */
  session: 2_000,
  /** By then this sidecar has closed the connection, and its successor gets the request. */
  shutting_down: 1_000,
} as const;

/** @param failures consecutive ones before this, from 0. */
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
