// The worker thread that checks a sidecar's attestations.
import { hash } from 'node:crypto';
import { type Batch, leafMessage, nodeMessage, nonceMessage, sidesOf } from '../../proto/batch.ts';
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
      for (const { digest, batch, signed } of job.answers) {
        await checkNonce(job.nonce, digest, batch);
        if (signed !== null) await checkAnswer(signed.statement, signed.signature, { nonce: digest, ...carried });
      }
    }
    return null;
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    return { code: error.code, message: error.message };
  }
});

/** @throws {CheckFailure} report_nonce_mismatch, batch_proof_invalid */
function checkNonce(nonce: string, digest: string, batch: Batch | null): void {
  if (batch === null) {
    if (nonce !== digest) throw new CheckFailure('report_nonce_mismatch', 'the answer is for something else');
    return;
  }
  const { salt, leaf_index, tree_size, path } = batch;
  const sides = sidesOf(leaf_index, tree_size);
  let node = hash('sha256', leafMessage(Buffer.from(salt, 'hex'), Buffer.from(digest, 'hex')), 'buffer');
  for (const [i, one] of path.entries()) {
    const sibling = Buffer.from(one, 'hex');
    node = hash('sha256', sides[i] === 'left' ? nodeMessage(sibling, node) : nodeMessage(node, sibling), 'buffer');
  }
  if (path.length !== sides.length || hash('sha256', nonceMessage(tree_size, node)) !== nonce)
    throw new CheckFailure('raw_hash_mismatch', 'the nonce does not commit to this raw');
}
