// A thread that verifies: whatever an attestation costs to read and check, chat does not wait for it.
import { setTimeout as sleep } from 'node:timers/promises';
import { workerData } from 'node:worker_threads';
import { serveJobs } from '../offload/thread.ts';
import type { Job, Verdict, WorkerOptions } from './appraise.ts';
import { createAppraise } from './appraise.ts';

const options = workerData as WorkerOptions;
const appraise = createAppraise(options, globalThis.fetch);

// null: time is over. What is still waited for ends by itself, and nobody else's verification with it.
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
