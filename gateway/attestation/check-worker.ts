// The worker thread that checks a sidecar's attestations.
import { type Carried, CheckFailure, checkReports } from '../../verify/index.ts';
import { serveJobs } from '../offload/thread.ts';
import type { CheckJob, CheckResult } from './sidecar-client.ts';

serveJobs<CheckJob, CheckResult>(async ({ members, nonce, simulatedRoot }) => {
  try {
    // sidecar-link.ts has validated the shape of these members.
    const carried = JSON.parse(new TextDecoder().decode(members)) as Carried;
    await checkReports(carried, nonce, simulatedRoot);
    return null;
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    return { code: error.code, message: error.message };
  }
});
