// An appraisal by verify/ in this process: its error, and the renewal of cached inputs before it is repeated.
import type { Evidence } from '../../proto/attestation/attestation.ts';
import type { Nonce } from '../../proto/attestation/raw.ts';
import type { FailureCode } from '../../verify/index.ts';
import { AttesterError } from '../common/attester.ts';
import type { Collector } from '../driver/gpu-collector.ts';

/** A check of verify/ failed; `failed` is the code of the first. */
export class AppraisalError extends AttesterError {
  readonly failed: FailureCode;
  /** The check's own message. */
  readonly detail: string;
  constructor(failed: FailureCode, detail: string, retryable: boolean, options?: ErrorOptions) {
    super('appraisal_failed', `${failed}: ${detail}`, retryable, options);
    this.failed = failed;
    this.detail = detail;
  }

  override get kind(): string {
    return `${this.code} ${this.failed}`;
  }
}

/** @throws {AppraisalError} a check failed. */
export type Appraise<T> = (nonce: Nonce, evidence: readonly Evidence[], signal: AbortSignal) => Promise<T>;

/** An appraisal's result and its evidence. */
interface Appraised<T> {
  readonly evidence: readonly Evidence[];
  readonly devices: T;
}

/** A cached input of an appraisal that may be outdated. */
export interface Renewal {
  /** The failures that it can mend. */
  readonly mends: ReadonlySet<FailureCode>;
  /**
   * Renews it.
   * @returns the evidence to appraise again; null where nothing was outdated, so that the failure stands.
   */
  renew(nonce: Nonce, evidence: readonly Evidence[], signal: AbortSignal): Promise<readonly Evidence[] | null>;
}

/** Appraises, and again after each renewal that can mend the failure. Each renewal is tried once, without delay. */
export function withRenewals<T>(appraise: Appraise<T>, renewals: readonly Renewal[]): Appraise<Appraised<T>> {
  return async (nonce, collected, signal) => {
    const left = new Set(renewals);
    for (let evidence = collected; ; ) {
      try {
        return { evidence, devices: await appraise(nonce, evidence, signal) };
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof AppraisalError)) throw error;
        const renewal = [...left].find(({ mends }) => mends.has(error.failed));
        if (renewal === undefined) throw error;
        left.delete(renewal);
        const renewed = await renewal.renew(nonce, evidence, signal);
        if (renewed === null) throw error;
        evidence = renewed;
      }
    }
  };
}

const CHAIN_FAILURES = new Set<FailureCode>(['report_signature_invalid', 'fwid_mismatch', 'chain_invalid']);

/** A reset gives a device a new leaf, so a chain cached before it no longer verifies its reports: read it again. */
export const chainRenewal = (collector: Collector): Renewal => ({
  mends: CHAIN_FAILURES,
  renew: async (nonce, _evidence, signal) =>
    (await collector.renewChains(signal)) ? collector.collect(nonce, signal) : null,
});
