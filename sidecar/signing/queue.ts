// The queue in front of the GPU: bounded, one job at a time, in order of arrival. A job can be cancelled.
import { RETRY_AFTER_MS } from '../common/retry.ts';

/** How long a job may go on after it was aborted, before the next one starts beside it. */
const GRACE_MS = 2_000;

/** The queue is full. */
export class QueueFull extends Error {
  override readonly name = 'QueueFull';
  override readonly message = 'too many requests wait for the GPU';
  readonly retry_after_ms = RETRY_AFTER_MS.queue_full;
}

interface Job {
  readonly work: () => Promise<void>;
  readonly signal: AbortSignal;
}

export interface Queue {
  readonly waiting: number;
  readonly running: number;
  /**
   * Runs `work` after the jobs before it.
   * @throws {QueueFull} at once. @throws whatever `cancel` was aborted with, or `work` threw.
   */
  run<T>(work: (signal: AbortSignal) => Promise<T>, cancel: AbortSignal): Promise<T>;
}

interface QueueOptions {
  readonly attest_queue_max: number;
  /** Called when a job goes on after its abort; the next one runs beside it. */
  readonly onStuck?: () => void;
}

function overrun(signal: AbortSignal): Promise<false> {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => setTimeout(() => resolve(false), GRACE_MS).unref(), { once: true });
  });
}

export function createQueue(options: QueueOptions): Queue {
  const queued = new Set<Job>();
  let running = 0;

  async function next(): Promise<void> {
    if (running > 0) return;
    running = 1;
    for (const job of queued) {
      queued.delete(job);
      if (job.signal.aborted) continue;
      // An attester that ignores its signal must not hold up the jobs after it.
      if (!(await Promise.race([job.work().then(() => true), overrun(job.signal)]))) options.onStuck?.();
    }
    running = 0;
  }

  return {
    get waiting() {
      return queued.size;
    },
    get running() {
      return running;
    },
    run<T>(work: (signal: AbortSignal) => Promise<T>, cancel: AbortSignal): Promise<T> {
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
          work: async () => {
            try {
              const result = await work(stop.signal);
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
        void next();
      });
    },
  };
}
