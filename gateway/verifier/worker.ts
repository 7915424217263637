// The thread that verifies: whatever an attestation costs to read and check, chat does not wait for it.
import { workerData } from 'node:worker_threads';
import { appraiseAttestation, createCollateral } from '../../verify/index.ts';
import { answerQuestions } from '../thread.ts';
import type { Job, Verdict, WorkerOptions } from './job.ts';

const options = workerData as WorkerOptions;
// One for all requests: it keeps what it fetched until that expires.
const collateral = createCollateral({ fetch: globalThis.fetch, rim_url: options.rim_url, ocsp_url: options.ocsp_url });

answerQuestions<Job, Verdict>(async ({ body, countersignKeys, simulatedRoot }) => {
  const report = await appraiseAttestation(Buffer.from(body).toString('utf8'), {
    collateral,
    countersignKeys,
    ...(simulatedRoot === null ? {} : { simulatedRoot }),
  });
  const failed = report.checks.find((check) => check.status === 'fail');
  const { name, code, detail } = failed ?? { name: 'form', code: undefined, detail: 'it could not be checked' };
  return { valid: report.valid, failed: { name, code: code ?? null, detail }, json: JSON.stringify(report) };
});
