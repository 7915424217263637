// The thread that verifies: whatever an attestation costs to read and check, chat does not wait for it.
import { workerData } from 'node:worker_threads';
import {
  appraiseAttestation,
  createCollateral,
  type FailureCode,
  type VerificationReport,
} from '../../verify/index.ts';
import { answerQuestions } from '../thread.ts';
import type { Job, Verdict, WorkerOptions } from './job.ts';

const options = workerData as WorkerOptions;
// One for all requests: it keeps what it fetched until that expires.
const collateral = createCollateral({ fetch: globalThis.fetch, rim_url: options.rim_url, ocsp_url: options.ocsp_url });

/** A sidecar's key lives as long as its process, and what it signs for an hour; the evidence beside it is right for longer. */
const PAST: ReadonlySet<FailureCode | undefined> = new Set(['token_expired', 'token_key_unavailable'] as const);

const failureOf = ({ checks }: VerificationReport) => checks.find((check) => check.status === 'fail');

answerQuestions<Job, Verdict>(async ({ body, countersignKeys, simulatedRoot }) => {
  const text = Buffer.from(body).toString('utf8');
  const simulated = simulatedRoot === null ? {} : { simulatedRoot };
  let report = await appraiseAttestation(text, { collateral, countersignKeys, ...simulated });
  if (PAST.has(failureOf(report)?.code)) report = await appraiseAttestation(text, { collateral, ...simulated });
  const failed = failureOf(report);
  const { name, code, detail } = failed ?? { name: 'form', code: undefined, detail: 'it could not be checked' };
  return { valid: report.valid, failed: { name, code: code ?? null, detail }, json: JSON.stringify(report) };
});
