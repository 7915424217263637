// Appraises evidence with verify/, in this process: everything must be checked, and everything must pass.
import type { Evidence } from '../../../proto/attestation.ts';
import type { Nonce } from '../../../proto/raw.ts';
import { fromBase64, utf8 } from '../../../verify/bytes.ts';
import {
  appraiseEvidence,
  type CheckName,
  type Clocks,
  type Collateral,
  type DeviceClaims,
  type VerificationReport,
} from '../../../verify/index.ts';
import { LruMap } from '../../../verify/lru.ts';
import { rimIds, rimRoots } from '../../../verify/nvidia.ts';
import { verifyRim } from '../../../verify/rim/rim.ts';
import { parseReport } from '../../../verify/spdm/report.ts';
import { type Certificate, parsePem } from '../../../verify/x509/certificate.ts';
import type { Appraise } from '../../driver/collector.ts';
import { AppraisalError } from '../attester.ts';
import type { KeptCollateral } from './collateral.ts';

export interface AppraisalOptions {
  readonly collateral: Collateral;
  readonly clock: () => Date;
  /** For evidence and endorsements that were never valid together: a replay. */
  readonly clocks?: Clocks | undefined;
  /** PEM, in place of NVIDIA's pinned roots. */
  readonly roots?: { readonly device: string; readonly rim: string } | undefined;
}

/** A device whose every check passed. */
export interface DeviceAppraisal {
  readonly claims: DeviceClaims;
  /** When the first certificate of each chain ends. */
  readonly expires: { readonly device: Date; readonly driver: Date | null; readonly vbios: Date };
  /** The firmware in the report is the one that its leaf names; false: this driver's reports do not say. */
  readonly fwid_checked: boolean;
}

type Appraiser = (nonce: Nonce, evidence: readonly Evidence[]) => Promise<DeviceAppraisal[]>;

/** A skip of one of these is a refusal. The firmware id alone may be missing: older drivers do not report it. */
const REQUIRED: readonly CheckName[] = [
  'report_nonce',
  'report_signature',
  'report_chain',
  'revocation',
  'reference_values',
  'device_mode',
];

const MAX_CHAINS = 64;

export function createAppraiser({ collateral, clock, clocks, roots }: AppraisalOptions): Appraiser {
  const trusted = roots === undefined ? rimRoots() : parsePem(roots.rim);
  /** By document, and by chain: they are the same at each request. */
  const rim_ends = new WeakMap<Uint8Array, Date>();
  const chain_ends = new LruMap<string, Date>(MAX_CHAINS);

  async function rimEnd(id: string): Promise<Date> {
    const document = await collateral.rim({ id, version: '', chip: '' });
    if (document === null) throw new AppraisalError('rim_unavailable', `${id} is no longer at hand`, true);
    const bytes = typeof document === 'string' ? utf8(document) : document;
    const known = rim_ends.get(bytes);
    if (known !== undefined) return known;
    const { signer } = await verifyRim(bytes, { roots: trusted, at: clocks?.rim ?? clock() });
    const end = firstEnd(signer);
    rim_ends.set(bytes, end);
    return end;
  }

  function chainEnd(chain: string): Date {
    const known = chain_ends.get(chain) ?? firstEnd(parsePem(new TextDecoder().decode(fromBase64(chain))));
    chain_ends.set(chain, known);
    return known;
  }

  async function appraised(report: VerificationReport, evidence: Evidence, i: number): Promise<DeviceAppraisal> {
    const claims = report.claims.devices[i];
    const ids = claims === undefined ? null : rimIds(claims, parseReport(fromBase64(evidence.report)).opaque);
    if (claims === undefined || ids === null || (ids.driver === null && claims.kind === 'gpu'))
      throw new AppraisalError('rim_unavailable', 'the report does not say which reference values are its', false);
    const [driver, vbios] = await Promise.all([ids.driver === null ? null : rimEnd(ids.driver), rimEnd(ids.vbios)]);
    const device = chainEnd(evidence.certificate_chain);
    const fwid_checked = report.checks.some(
      (one) => one.name === 'report_fwid' && one.device === i && one.status === 'pass',
    );
    return { claims, expires: { device, driver, vbios }, fwid_checked };
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

const firstEnd = (chain: readonly Certificate[]) =>
  new Date(Math.min(...chain.map(({ notAfter }) => notAfter.getTime())));

/** `GPU 1`, `switch 0`: each kind counts for itself. */
function nameOf(evidence: readonly Evidence[], i: number): string {
  const kind = (one?: Evidence) => (one?.arch === 'LS10' ? 'switch' : 'GPU');
  return `${kind(evidence[i])} ${evidence.slice(0, i).filter((one) => kind(one) === kind(evidence[i])).length}`;
}

// An appraisal that failed may have rested on something old: a RIM or an answer that was kept too long. Then it is fetched and
// appraised once more; and a service that could not be asked is worth asking again.

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

export function createRetryingAppraiser(
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
