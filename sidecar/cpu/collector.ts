// What a collector is: it has this machine's processor sign 64 bytes. tsm.ts, azure.ts and simulated/ are some. And how they fail.
import { type AttesterError, failed } from '../common/attester.ts';

/** The processor's evidence, as members of the attestation's `cpu`. docs/attestation.md §6 says what each is. */
export interface CpuEvidence {
  readonly type: CpuType;
  /** base64 */
  readonly report: string;
  /** base64 of PEM; of AMD alone. */
  readonly certificates?: string;
  readonly collateral?: object;
  /** base64 of the quote, which Azure's TDX has beside its report. */
  readonly quote?: string;
  /** Azure: what the virtual TPM signed. */
  readonly tpm?: { readonly message: string; readonly signature: string; readonly pcrs: readonly string[] };
  /** base64 of the log of the measured boot; of TDX alone. */
  readonly event_log?: string;
}

export type CpuType = 'SEV_SNP' | 'TDX' | 'AZURE_SEV_SNP' | 'AZURE_TDX';

/** By the names that configfs-tsm gives the kernel's drivers. */
export const PROVIDERS: Readonly<Record<string, CpuType>> = { sev_guest: 'SEV_SNP', tdx_guest: 'TDX' };

export interface CpuCollector {
  /** null until it is known. */
  readonly type: CpuType | null;
  /** null for a real processor; for the software twin, its test root as PEM. */
  readonly simulated: { readonly root: string } | null;
  /** Called one at a time. @param reportData 64 bytes. */
  collect(reportData: Uint8Array, signal: AbortSignal): Promise<CpuEvidence>;
}

// Failures, each with its code, and whether a retry can help.

/** What is needed is not at hand, and may be later. */
export const unavailable = (words: string, options?: ErrorOptions): AttesterError =>
  failed('collection_failed', 'cpu_unavailable', words, 'retry', options);

/** What is needed is not at hand, and only the host can change that. */
export const withheld = (words: string): AttesterError => failed('collection_failed', 'cpu_unavailable', words, 'stop');

/** Evidence of another kind than we read. */
export const unsupported = (words: string): AttesterError =>
  failed('collection_failed', 'cpu_unsupported', words, 'stop');

/** The processor's own evidence does not hold. */
export const refused = (words: string, options?: ErrorOptions): AttesterError =>
  failed('appraisal_failed', 'cpu_refused', words, 'retry', options);
