// Checks an attester's result before it goes to a gateway: evidence of each device that the attester has, and each report by
// verify/gpu/report-check.ts, as the gateway checks it again.
import type { Nonce } from '../../proto/attestation/raw.ts';
import { CheckFailure } from '../../verify/index.ts';
import { checkReports } from '../../verify/service.ts';
import { type Attester, type Collected, failed } from '../common/attester.ts';

const refuse = (message: string, cause?: unknown) =>
  failed('appraisal_failed', 'evidence_refused', message, 'stop', { cause });

/** @param device the index of the only device that was to sign; all by default. @throws {AttesterError} appraisal_failed */
export async function checkCollected(
  collected: Collected,
  nonce: Nonce,
  attester: Attester,
  device?: number,
): Promise<void> {
  const { evidence } = collected;
  const devices = attester.devices.filter((_, i) => device === undefined || i === device);
  if (evidence.length !== devices.length)
    throw refuse(`evidence of ${evidence.length} devices where there are ${devices.length}`);
  for (const [i, { arch }] of devices.entries())
    if (evidence[i]?.arch !== arch)
      throw refuse(`device ${i}: evidence of a ${evidence[i]?.arch} in place of a ${arch}`);
  try {
    await checkReports(collected, nonce, attester.simulated?.root ?? null);
  } catch (error) {
    throw error instanceof CheckFailure ? refuse(error.message, error) : error;
  }
}
