// The thread that checks what a sidecar answered.
import { type Carried, CheckFailure, checkReports } from '../../verify/index.ts';
import { serveJobs } from '../offload/thread.ts';
import type { CheckJob, CheckResult } from './sidecar-client.ts';

serveJobs<CheckJob, CheckResult>(async ({ members, nonce, simulatedRoot }) => {
  try {
    // Its form was checked as it came, in sidecar-link.ts.
    const carried = JSON.parse(new TextDecoder().decode(members)) as Carried;
    await checkReports(carried, nonce, simulatedRoot);
    return null;
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    return { code: error.code, message: error.message };
  }
});
