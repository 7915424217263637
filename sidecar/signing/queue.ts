// The queue in front of the GPUs: bounded, in order of arrival, one job at a time for each signer. A job can be cancelled.
import { RETRY_AFTER_MS } from '../common/retry.ts';

/** The grace period of an aborted job, before the next one starts beside it. */
const GRACE_MS = 2_000;

/** The queue is full. */
export class QueueFull extends Error {
  override readonly name = 'QueueFull';
  override readonly message = 'too many requests wait for the GPU';
  readonly retry_after_ms = RETRY_AFTER_MS.queue_full;
}

interface Job {
  readonly work: (signer: number) => Promise<void>;
  readonly signal: AbortSignal;
}

export interface Queue {
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

function overrun(signal: AbortSignal): Promise<false> {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => setTimeout(() => resolve(false), GRACE_MS).unref(), { once: true });
  });
}

export function createQueue(options: QueueOptions): Queue {
  const queued = new Set<Job>();
  /** Signers that have a job. */
  const busy = new Set<number>();

  /** Starts a job on each free signer, as long as there are jobs. */
  function next(): void {
    for (let signer = 0; signer < options.signers() && queued.size > 0; signer++)
      if (!busy.has(signer)) void serve(signer);
  }

  async function serve(signer: number): Promise<void> {
    busy.add(signer);
    for (const job of queued) {
      queued.delete(job);
      if (job.signal.aborted) continue;
      // An attester that ignores its signal must not hold up the jobs after it.
      if (!(await Promise.race([job.work(signer).then(() => true), overrun(job.signal)]))) options.onStuck?.();
    }
    busy.delete(signer);
  }

  return {
    get waiting() {
      return queued.size;
    },
    get running() {
      return busy.size;
    },
    run<T>(work: (signal: AbortSignal, signer: number) => Promise<T>, cancel: AbortSignal): Promise<T> {
      if (queued.size >= options.attest_queue_max) return Promise.reject(new QueueFull());
      return new Promise<T>((resolve, reject) => {
        const stop = new AbortController();
        const onCancel = () => {
          settle();
          stop.abort(cancel.reason);
          reject(cancel.reason);
        };
        const settle = () => {
          cancel.removeEventListener('abort', onCancel);
          queued.delete(job);
        };
        const job: Job = {
          signal: stop.signal,
          work: async (signer) => {
            try {
              const result = await work(stop.signal, signer);
              settle();
              resolve(result);
            } catch (error) {
              settle();
              reject(error);
            }
          },
        };
        if (cancel.aborted) return onCancel();
        cancel.addEventListener('abort', onCancel);
        queued.add(job);
        next();
      });
    },
  };
}
