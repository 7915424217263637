// The worker thread that verifies, so that chat requests do not wait for it.
import { setTimeout as sleep } from 'node:timers/promises';
import { workerData } from 'node:worker_threads';
import { serveJobs } from '../threads/thread.ts';
import { createAppraise } from './appraise.ts';
import type { Job, Verdict, WorkerOptions } from './verifier.ts';

const options = workerData as WorkerOptions;
const appraise = createAppraise(options, globalThis.fetch);

// The result null means timeout. The job still ends by itself, and other jobs of the thread go on.
serveJobs<Job, Verdict | null>(async (job) => {
  const done = new AbortController();
  const timeout = sleep(options.verify_timeout_ms, null, { signal: done.signal });
  try {
    return await Promise.race([appraise(job), timeout]);
  } finally {
    timeout.catch(() => {});
    done.abort();
  }
});
