// The worker thread that checks a sidecar's attestations.
import { hash } from 'node:crypto';
import { CheckFailure } from '../../verify/index.ts';
import {
  answerChecker,
  type Carried,
  type CheckAnswer,
  checkBatch,
  checkReports,
  checkSession,
} from '../../verify/service.ts';
import { serveJobs } from '../threads/thread.ts';
import type { CheckJob, CheckResult } from './sessions.ts';

const sha256 = (message: Uint8Array) => hash('sha256', message, 'buffer');

serveJobs<CheckJob, CheckResult>(async (job) => {
  try {
    if ('session' in job) {
      await checkSession(job.session, job.simulatedRoot, job.challenge);
      return { devices: [] };
    }
    // sidecar-link.ts has validated the shape of these members.
    const carried = JSON.parse(new TextDecoder().decode(job.members)) as Carried;
    const devices = await checkReports(carried, job.nonce, job.simulatedRoot);
    const checkers = new Map<string, CheckAnswer>();
    for (const { digest, batch, signed } of job.answers) {
      if (batch !== null) await checkBatch(batch, digest, job.nonce, sha256);
      if (signed === null) continue;
      const { statement, signature } = signed;
      const check = checkers.get(statement) ?? (await answerChecker(statement, carried.evidence));
      checkers.set(statement, check);
      await check(signature, digest);
    }
    return { devices };
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    return { code: error.code, message: error.message };
  }
});
