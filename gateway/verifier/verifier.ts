// Verifies in a thread of its own, which starts with the first job, ends when there is none for a while, and is ended when it hangs.
import { Worker } from 'node:worker_threads';
import { Problem } from '../problem.ts';
import type { Job, JobDone, Verdict, WorkerOptions } from './job.ts';

export interface Verifier {
  /** @throws {Problem} overloaded when it is not done in time, or the thread ended. */
  appraise(job: Omit<Job, 'id'>): Promise<Verdict>;
  close(): Promise<void>;
}

export interface VerifierOptions extends WorkerOptions {
  readonly verify_timeout_ms: number;
}

interface Pending {
  readonly resolve: (verdict: Verdict) => void;
  readonly reject: (error: Error) => void;
  readonly timer: NodeJS.Timeout;
}

const IDLE_MS = 60_000;
/** An attestation may be 16 MiB of JSON that is mostly objects; past this the thread ends, and the process does not. */
const MAX_HEAP_MB = 1024;

const late = () => new Problem('overloaded', 'The verification was not done in time.', { retryAfterSeconds: 1 });

export function createVerifier({ rim_url, ocsp_url, verify_timeout_ms }: VerifierOptions): Verifier {
  const pending = new Map<number, Pending>();
  let worker: Worker | null = null;
  let idle: NodeJS.Timeout | null = null;
  let last = 0;

  function start(): Worker {
    const workerData: WorkerOptions = { rim_url, ocsp_url };
    const started = new Worker(new URL('./worker.ts', import.meta.url), {
      workerData,
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
    });
    started.on('message', (done: JobDone) => settle(done));
    // Its heap was not enough, most likely; `exit` follows.
    started.on('error', () => {});
    started.on('exit', () => {
      if (worker === started) end();
    });
    started.unref();
    return started;
  }

  /** Whoever waits is told; the next job starts another thread. */
  function end(): Promise<unknown> | undefined {
    const ended = worker;
    worker = null;
    clearTimeout(idle ?? undefined);
    for (const [id, one] of pending) {
      pending.delete(id);
      clearTimeout(one.timer);
      one.reject(late());
    }
    return ended?.terminate();
  }

  function settle({ id, verdict, error }: JobDone): void {
    const one = pending.get(id);
    if (one === undefined) return;
    pending.delete(id);
    clearTimeout(one.timer);
    if (verdict !== undefined) one.resolve(verdict);
    else one.reject(new Error(`the verifier threw ${error}`));
    if (pending.size === 0) idle = setTimeout(end, IDLE_MS).unref();
  }

  return {
    appraise(job) {
      return new Promise((resolve, reject) => {
        clearTimeout(idle ?? undefined);
        worker ??= start();
        const id = ++last;
        pending.set(id, { resolve, reject, timer: setTimeout(() => void end(), verify_timeout_ms) });
        worker.postMessage({ ...job, id } satisfies Job);
      });
    },
    async close() {
      await end();
    },
  };
}
