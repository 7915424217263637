// A device that was reset has another leaf, and the chain that is kept of it is from before the reset: what the device signs
// does not verify until it is asked for its chain again.
import type { Evidence } from '../../proto/attestation.ts';
import type { Nonce } from '../../proto/raw.ts';
import { AppraisalError } from '../attester.ts';
import type { Collector } from './collector.ts';

/** @throws {AppraisalError} a check failed. */
export type Appraise<T> = (nonce: Nonce, evidence: readonly Evidence[], signal: AbortSignal) => Promise<T>;

/** What passed, and the evidence that it is about. */
export interface Appraised<T> {
  readonly evidence: readonly Evidence[];
  readonly devices: T;
}

/** What another chain can mend. */
const OF_THE_CHAIN: ReadonlySet<string> = new Set(['report_signature_invalid', 'fwid_mismatch', 'chain_invalid']);

/** As `appraise`; where a chain may be old, asks for it, and where it was, appraises what is collected with the new one. */
export function withRenewedChains<T>(collector: Collector, appraise: Appraise<T>): Appraise<Appraised<T>> {
  return async (nonce, evidence, signal) => {
    try {
      return { evidence, devices: await appraise(nonce, evidence, signal) };
    } catch (error) {
      signal.throwIfAborted();
      if (!(error instanceof AppraisalError) || !OF_THE_CHAIN.has(error.failed)) throw error;
      if (!(await collector.renewChains(signal))) throw error;
      // The report is over our nonce already; a chain that is now another comes with a new one.
      const anew = await collector.collect(nonce, signal);
      return { evidence: anew, devices: await appraise(nonce, anew, signal) };
    }
  };
}
