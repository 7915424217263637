// An appraisal that failed may have rested on something old: a RIM or an answer that was kept too long. Then it is fetched and
// appraised once more; and a service that could not be asked is worth asking again.
import type { Evidence } from '../../proto/attestation.ts';
import type { Nonce } from '../../proto/raw.ts';
import { AppraisalError } from '../attester.ts';
import type { Appraise } from '../nvml/renewal.ts';
import type { Appraiser, DeviceAppraisal } from './appraisal.ts';
import type { KeptCollateral } from './collateral.ts';

/** What other collateral can mend. */
const OF_THE_COLLATERAL: ReadonlySet<string> = new Set([
  'measurement_mismatch',
  'rim_mismatch',
  'rim_malformed',
  'rim_signature_invalid',
  'rim_chain_invalid',
  'rim_signer_expired',
  'revocation_invalid',
]);
/** What was fetched less long ago is not fetched again: a GPU that fails would have us ask NVIDIA at each request. */
const FRESH_MS = 60_000;

export function createPatientAppraiser(
  appraise: Appraiser,
  collateral: KeptCollateral,
): Appraise<readonly DeviceAppraisal[]> {
  async function first(nonce: Nonce, evidence: readonly Evidence[]): Promise<readonly DeviceAppraisal[]> {
    collateral.outages();
    try {
      return await appraise(nonce, evidence);
    } catch (error) {
      throw error instanceof AppraisalError ? withRetry(error, collateral) : error;
    }
  }

  return async (nonce, evidence, signal) => {
    try {
      return await first(nonce, evidence);
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof AppraisalError) || !OF_THE_COLLATERAL.has(error.failed)) throw error;
      if (!(await collateral.forget(FRESH_MS))) throw error;
      return first(nonce, evidence);
    }
  };
}

/** The code says that something was not to be had; only who asked knows whether that was the network's fault. */
function withRetry(error: AppraisalError, collateral: KeptCollateral): AppraisalError {
  const outages = collateral.outages();
  const lacking =
    error.failed === 'rim_unavailable' ? 'rim' : error.failed === 'revocation_unavailable' ? 'ocsp' : null;
  if (lacking === null || !outages.has(lacking)) return error;
  return new AppraisalError(error.failed, error.message.slice(error.failed.length + 2), true);
}
