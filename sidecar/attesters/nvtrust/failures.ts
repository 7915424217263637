// The failures of a worker, each with its code and whether a retry can help. The Python code raises the first ones by these names.
import { type AttesterError, failed, type Reason } from '../../common/attester.ts';

type Code = AttesterError['code'];
type Meaning = readonly [code: Code, again: 'retry' | 'stop'];

const MEANINGS = {
  // The node is not fit for attestation; an operator must act.
  no_sdk: ['collection_failed', 'stop'],
  no_driver: ['collection_failed', 'stop'],
  no_gpu: ['collection_failed', 'stop'],
  no_permission: ['collection_failed', 'stop'],
  unsupported_gpu: ['collection_failed', 'stop'],
  gpu_lost: ['collection_failed', 'stop'],
  nvml_error: ['collection_failed', 'stop'],
  cc_off: ['collection_failed', 'stop'],
  devtools_on: ['collection_failed', 'stop'],
  new_format: ['collection_failed', 'stop'],
  no_nscq: ['collection_failed', 'stop'],
  no_switch: ['collection_failed', 'stop'],
  unsupported_switch: ['collection_failed', 'stop'],
  switch_unlocked: ['collection_failed', 'stop'],
  nscq_error: ['collection_failed', 'stop'],
  // The GPU was busy, or the collection failed once.
  gpu_busy: ['collection_failed', 'retry'],
  nvml_timeout: ['collection_failed', 'retry'],
  collection_failed: ['collection_failed', 'retry'],
  // NVIDIA's services could not be reached.
  rim_unreachable: ['appraisal_failed', 'retry'],
  ocsp_unreachable: ['appraisal_failed', 'retry'],
  rim_not_found: ['appraisal_failed', 'stop'],
  rim_refused: ['appraisal_failed', 'stop'],
  ocsp_refused: ['appraisal_failed', 'stop'],
  // NVIDIA's verifier refused the evidence.
  nonce_mismatch: ['appraisal_failed', 'stop'],
  report_invalid: ['appraisal_failed', 'stop'],
  report_signature: ['appraisal_failed', 'stop'],
  version_mismatch: ['appraisal_failed', 'stop'],
  certificate_chain: ['appraisal_failed', 'stop'],
  firmware_id: ['appraisal_failed', 'stop'],
  ocsp_revoked: ['appraisal_failed', 'stop'],
  ocsp_unknown: ['appraisal_failed', 'stop'],
  ocsp_invalid: ['appraisal_failed', 'stop'],
  rim_invalid: ['appraisal_failed', 'stop'],
  measurement_mismatch: ['appraisal_failed', 'stop'],
  refused: ['appraisal_failed', 'stop'],
  appraisal_failed: ['appraisal_failed', 'stop'],
  // The worker itself. The next one is a new process.
  unexpected: ['collection_failed', 'retry'],
  worker_not_started: ['collection_failed', 'stop'],
  worker_start_timeout: ['collection_failed', 'retry'],
  worker_timeout: ['collection_failed', 'retry'],
  worker_died: ['collection_failed', 'retry'],
  worker_garbage: ['collection_failed', 'retry'],
  worker_second_answer: ['collection_failed', 'retry'],
  // The worker's result does not match the request. It is never returned.
  wrong_nonce: ['appraisal_failed', 'stop'],
  previous_token: ['appraisal_failed', 'stop'],
  wrong_device_count: ['appraisal_failed', 'stop'],
  token_refused: ['appraisal_failed', 'stop'],
} as const satisfies Partial<Record<Reason, Meaning>>;

export type WorkerReason = keyof typeof MEANINGS;

export const isWorkerReason = (reason: string): reason is WorkerReason => Object.hasOwn(MEANINGS, reason);

/** The message begins with the reason, so that logs and gateways can tell failures of one code apart. */
export function failure(reason: WorkerReason, message: string, options?: ErrorOptions): AttesterError {
  const [code, again] = MEANINGS[reason];
  return failed(code, reason, message, again, options);
}
