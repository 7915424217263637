// What is verified here: evidence before NVIDIA's service is asked about it, and what the service answered before anybody sees
// it: signed by NVIDIA, over our nonce, about our devices, a yes.
import type { Evidence } from '../../proto/attestation.ts';
import type { Nonce } from '../../proto/raw.ts';
import { CheckFailure } from '../../verify/checks.ts';
import { appraiseEvidence, type DeviceClaims } from '../../verify/index.ts';
import { checkTokenDigests, parseToken, verifyTokenSignature } from '../../verify/token/index.ts';
import { compareTokenWithReports } from '../../verify/token-report.ts';
import { AppraisalError } from '../attester.ts';
import { refused, ServiceUnavailable } from './failure.ts';
import type { NrasKeys } from './keys.ts';

export interface EvidenceOptions {
  readonly clock: () => Date;
  /** PEM, in place of NVIDIA's pinned root. */
  readonly roots: { readonly device: string } | undefined;
}

export interface TokenOptions {
  readonly keys: NrasKeys;
  readonly clock: () => Date;
}

/**
 * What the reports say, their signatures and chains checked here; the rest is what the service is asked for.
 * @throws {AppraisalError}
 */
export async function checkEvidence(
  nonce: Nonce,
  evidence: readonly Evidence[],
  { clock, roots }: EvidenceOptions,
): Promise<readonly DeviceClaims[]> {
  const report = await appraiseEvidence(evidence, {
    at: clock(),
    roots,
    expected: { nonce },
    without: { referenceValues: true, revocation: true },
  });
  const failed = report.checks.find((check) => check.status === 'fail');
  if (failed?.code !== undefined) throw new AppraisalError(failed.code, failed.detail, false);
  return report.claims.devices;
}

/** @param devices what their reports say, as `checkEvidence` returned it. @throws {AttesterError} */
export async function checkNrasToken(
  token: string,
  nonce: Nonce,
  devices: readonly DeviceClaims[],
  { keys, clock }: TokenOptions,
): Promise<void> {
  try {
    const parsed = parseToken(token);
    if (parsed.kind !== 'nras') throw refused('token_refused', 'the answer is not a token of this service');
    if (parsed.nonces.some((one) => one !== nonce)) throw refused('wrong_nonce', 'the token is about another nonce');
    await checkTokenDigests(parsed);
    await verifyTokenSignature(parsed, { keys: keys.kept(), fetchKeys: () => keys.renewed(), at: clock() });
    if (parsed.overallResult !== true) throw refused('refused', "NVIDIA's service says that the device does not pass");
    compareTokenWithReports(parsed, devices);
  } catch (error) {
    if (!(error instanceof CheckFailure)) throw error;
    if (error.cause instanceof ServiceUnavailable) throw error.cause;
    if (error.code === 'token_key_unavailable')
      throw new ServiceUnavailable(`${error.code}: ${error.message}`, null, { cause: error });
    throw refused(error.code, error.message, { cause: error });
  }
}
