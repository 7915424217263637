// The queue in front of the GPUs: bounded, in order of arrival, one job at a time for each signer. A job can be cancelled, and a request
// has a deadline.
import { until } from '../common/lock.ts';
import { RETRY_AFTER_MS } from '../common/retry.ts';
import { createWaiters } from '../common/waiters.ts';

/** The grace period of an aborted job, before the next one starts beside it. */
const GRACE_MS = 2_000;

/** The queue is full. */
export class QueueFull extends Error {
  override readonly name = 'QueueFull';
  override readonly message = 'too many requests wait for the GPU';
  readonly retry_after_ms = RETRY_AFTER_MS.queue_full;
}

/** The request's deadline has passed. */
export class DeadlineExceeded extends Error {
  override readonly name = 'DeadlineExceeded';
  override readonly message = 'not done in time';
}
export const deadlineExceeded = () => new DeadlineExceeded();

interface Queue {
  readonly waiting: number;
  readonly running: number;
  /**
   * Runs `work` after the earlier jobs, as soon as a signer is free. `signer` is that signer's index.
   * @throws {QueueFull} at once. @throws whatever `cancel` was aborted with, or `work` threw.
   */
  run<T>(work: (signal: AbortSignal, signer: number) => Promise<T>, cancel: AbortSignal): Promise<T>;
}

interface QueueOptions {
  readonly attest_queue_max: number;
  /** How many jobs may run at once. May change. */
  readonly signers: () => number;
  /** Called when an aborted job goes on beyond its grace period; the next job then runs beside it. */
  readonly onStuck?: () => void;
}

/** Resolves when an aborted job has had its grace period. */
function overrun(signal: AbortSignal): Promise<'stuck'> {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => setTimeout(() => resolve('stuck'), GRACE_MS).unref(), { once: true });
  });
}

export function createQueue({ attest_queue_max, signers, onStuck }: QueueOptions): Queue {
  const waiters = createWaiters<number>(attest_queue_max, () => new QueueFull());
  /** Signers that have a job. */
  const busy = new Set<number>();

  /** Gives each free signer to the job that has waited longest. */
  function assign(): void {
    for (let signer = 0; signer < signers(); signer++) if (!busy.has(signer) && waiters.give(signer)) busy.add(signer);
  }

  return {
    get waiting() {
      return waiters.count;
    },
    get running() {
      return busy.size;
    },
    async run<T>(work: (signal: AbortSignal, signer: number) => Promise<T>, cancel: AbortSignal): Promise<T> {
      const assigned = waiters.wait(cancel);
      assign();
      const signer = await assigned;
      const job = cancel.aborted ? Promise.reject(cancel.reason) : work(cancel, signer);
      // An attester that ignores its signal must not hold up the jobs after it.
      void Promise.race([Promise.allSettled([job]), overrun(cancel)]).then((end) => {
        if (end === 'stuck') onStuck?.();
        busy.delete(signer);
        assign();
      });
      return until(job, cancel);
    },
  };
}
