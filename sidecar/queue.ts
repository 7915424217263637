// The way to the GPU: one job at a time, in order of arrival, a bounded line, and a way out of it.

const TYPICAL_JOB_MS = 500;
/** From a job's abort to when it is given up. */
const GRACE_MS = 2_000;

/** The line is full. */
export class QueueFull extends Error {
  override readonly name = 'QueueFull';
  override readonly message = 'too many requests wait for the GPU';
  readonly retry_after_ms = TYPICAL_JOB_MS;
}

interface Job {
  readonly work: () => Promise<void>;
  readonly signal: AbortSignal;
}

export interface Queue {
  readonly waiting: number;
  readonly running: number;
  /**
   * Runs `work` when its turn comes.
   * @throws {QueueFull} at once. @throws whatever `cancel` was aborted with, or `work` threw.
   */
  run<T>(work: (signal: AbortSignal) => Promise<T>, cancel: AbortSignal): Promise<T>;
}

export interface QueueOptions {
  readonly attest_queue_max: number;
  /** A job went on after it was told to stop; the next one runs beside it. */
  readonly onStuck?: () => void;
}

function overrun(signal: AbortSignal): Promise<false> {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => setTimeout(() => resolve(false), GRACE_MS).unref(), { once: true });
  });
}

export function createQueue(options: QueueOptions): Queue {
  const line = new Set<Job>();
  let running = 0;

  async function next(): Promise<void> {
    if (running > 0) return;
    running = 1;
    for (const job of line) {
      line.delete(job);
      if (job.signal.aborted) continue;
      // An attester that does not hear its signal must not hold up everybody after it.
      if (!(await Promise.race([job.work().then(() => true), overrun(job.signal)]))) options.onStuck?.();
    }
    running = 0;
  }

  return {
    get waiting() {
      return line.size;
    },
    get running() {
      return running;
    },
    run<T>(work: (signal: AbortSignal) => Promise<T>, cancel: AbortSignal): Promise<T> {
      if (line.size >= options.attest_queue_max) return Promise.reject(new QueueFull());
      return new Promise<T>((resolve, reject) => {
        const stop = new AbortController();
        const onCancel = () => {
          settle();
          stop.abort(cancel.reason);
          reject(cancel.reason);
        };
        const settle = () => {
          cancel.removeEventListener('abort', onCancel);
          line.delete(job);
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
        line.add(job);
        void next();
      });
    },
  };
}
