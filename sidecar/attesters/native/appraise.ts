// Appraises evidence with verify/, in this process: everything must be checked, and everything must pass.
import type { Evidence } from '../../../proto/attestation/attestation.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import {
  appraiseEvidence,
  CheckFailure,
  type CheckName,
  type Clocks,
  type Collateral,
  type DeviceClaims,
  type FailureCode,
  type VerificationReport,
} from '../../../verify/index.ts';
import { type EndorsementExpiry, endorsementExpiry } from '../../../verify/service.ts';
import { AppraisalError, type Appraise, type Renewal } from '../appraisal.ts';
import type { KeptCollateral } from './kept-collateral.ts';
import { type DeviceAppraisal, numberOf } from './token.ts';

export interface AppraisalOptions {
  readonly collateral: Collateral;
  readonly clock: () => Date;
  /** For a replay, whose evidence and endorsements were never valid at the same time. */
  readonly clocks?: Clocks | undefined;
  /** PEM, in place of NVIDIA's pinned roots. */
  readonly roots?: { readonly device: string; readonly rim: string } | undefined;
}

type Appraiser = (nonce: Nonce, evidence: readonly Evidence[]) => Promise<DeviceAppraisal[]>;

/** A skip of one of these is a refusal. Only the firmware id may be missing, which older drivers do not report. */
const REQUIRED: readonly CheckName[] = [
  'report_nonce',
  'report_signature',
  'report_chain',
  'revocation',
  'reference_values',
  'device_mode',
];

export function createAppraiser({ collateral, clock, clocks, roots }: AppraisalOptions): Appraiser {
  async function expiry(evidence: Evidence, claims: DeviceClaims): Promise<EndorsementExpiry | null> {
    try {
      return await endorsementExpiry(evidence, claims, { collateral, roots, at: clocks?.rim ?? clock() });
    } catch (error) {
      // The document was there a moment ago, so a retry may find it.
      if (error instanceof CheckFailure) throw new AppraisalError(error.code, error.message, true);
      throw error;
    }
  }

  async function appraised(report: VerificationReport, evidence: Evidence, i: number): Promise<DeviceAppraisal> {
    const claims = report.claims.devices[i];
    const expires = claims === undefined ? null : await expiry(evidence, claims);
    if (claims === undefined || expires === null)
      throw new AppraisalError('rim_unavailable', 'the report does not say which reference values are its', false);
    const fwid_checked = report.checks.some(
      (one) => one.name === 'report_fwid' && one.device === i && one.status === 'pass',
    );
    return { claims, expires, fwid_checked };
  }

  return async (nonce, evidence) => {
    const report = await appraiseEvidence(evidence, {
      at: clock(),
      clocks,
      roots,
      collateral,
      expected: { nonce },
      policy: { requiredChecks: REQUIRED },
    });
    const failed = report.checks.find((check) => check.status === 'fail');
    if (failed?.code !== undefined) {
      const where = failed.device === undefined ? '' : `${nameOf(evidence, failed.device)}: `;
      throw new AppraisalError(failed.code, where + failed.detail, false);
    }
    return Promise.all(evidence.map((one, i) => appraised(report, one, i)));
  };
}

/** `GPU 1`, `switch 0`. */
function nameOf(evidence: readonly Evidence[], i: number): string {
  const kinds = evidence.map(({ arch }) => (arch === 'LS10' ? 'switch' : 'GPU'));
  return `${kinds[i]} ${numberOf(kinds, i)}`;
}

// Failures that outdated collateral may cause: it is fetched again, and the evidence is appraised again.

const COLLATERAL_FAILURES: ReadonlySet<FailureCode> = new Set([
  'measurement_mismatch',
  'rim_mismatch',
  'rim_malformed',
  'rim_signature_invalid',
  'rim_chain_invalid',
  'rim_signer_expired',
  'revocation_invalid',
]);
/** Younger collateral is not fetched again: otherwise a GPU that fails would cause requests to NVIDIA at each attestation. */
const FRESH_MS = 60_000;

export const collateralRenewal = (collateral: KeptCollateral): Renewal => ({
  mends: COLLATERAL_FAILURES,
  renew: async (_nonce, evidence) => ((await collateral.forget(FRESH_MS)) ? evidence : null),
});

/** Makes a failure for lack of collateral retryable where its service could not be reached, which the code does not tell. */
export function withOutages<T>(appraise: Appraise<T>, collateral: KeptCollateral): Appraise<T> {
  return async (nonce, evidence, signal) => {
    collateral.outages();
    try {
      return await appraise(nonce, evidence, signal);
    } catch (error) {
      if (!(error instanceof AppraisalError)) throw error;
      const lacking =
        error.failed === 'rim_unavailable' ? 'rim' : error.failed === 'revocation_unavailable' ? 'ocsp' : null;
      if (lacking === null || !collateral.outages().has(lacking)) throw error;
      throw new AppraisalError(error.failed, error.detail, true);
    }
  };
}
