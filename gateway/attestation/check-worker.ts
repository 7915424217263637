// The worker thread that checks a sidecar's attestations.
import { type Carried, CheckFailure, checkAnswer, checkReports, checkSession } from '../../verify/index.ts';
import { serveJobs } from '../offload/thread.ts';
import type { CheckJob, CheckResult } from './checker.ts';

serveJobs<CheckJob, CheckResult>(async (job) => {
  try {
    if ('session' in job) await checkSession(job.session, job.simulatedRoot, job.challenge);
    else {
      // sidecar-link.ts has validated the shape of these members.
      const carried = JSON.parse(new TextDecoder().decode(job.members)) as Carried;
      await checkReports(carried, job.nonce, job.simulatedRoot);
      if (job.signed !== null)
        await checkAnswer(job.signed.statement, job.signed.signature, { rawHash: job.nonce, ...carried });
    }
    return null;
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    return { code: error.code, message: error.message };
  }
});
