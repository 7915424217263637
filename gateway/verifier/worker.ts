// The thread that verifies: whatever an attestation costs to read and check, chat does not wait for it.
import { parentPort, workerData } from 'node:worker_threads';
import { appraiseAttestation, createCollateral } from '../../verify/index.ts';
import type { Job, JobDone, WorkerOptions } from './job.ts';

const options = workerData as WorkerOptions;
// One for all requests: it keeps what it fetched until that expires.
const collateral = createCollateral({ fetch: globalThis.fetch, rim_url: options.rim_url, ocsp_url: options.ocsp_url });

parentPort?.on('message', async ({ id, body, countersignKeys, simulatedRoot }: Job) => {
  parentPort?.postMessage({ id, ...(await appraise()) } satisfies JobDone);

  async function appraise(): Promise<Omit<JobDone, 'id'>> {
    try {
      const report = await appraiseAttestation(Buffer.from(body).toString('utf8'), {
        collateral,
        countersignKeys,
        ...(simulatedRoot === null ? {} : { simulatedRoot }),
      });
      const failed = report.checks.find((check) => check.status === 'fail');
      const { name, code, detail } = failed ?? { name: 'form', code: undefined, detail: 'it could not be checked' };
      return {
        verdict: { valid: report.valid, failed: { name, code: code ?? null, detail }, json: JSON.stringify(report) },
      };
    } catch (error) {
      // What the verifier throws is our own fault: where, never what.
      return { error: error instanceof Error ? error.name : 'unknown' };
    }
  }
});
