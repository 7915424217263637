// The interface of a collector (tsm.ts, azure.ts, demo/twin/cpu.ts), which has this machine's processor sign 64 bytes, and its errors.
import type { CpuType } from '../../proto/attestation/attestation.ts';
import { type AttesterError, failed } from '../common/attester.ts';

/** The processor's evidence, as members of the attestation's `cpu`. docs/attestation.md §7 describes them. */
export interface CpuEvidence {
  readonly type: CpuType;
  /** base64 */
  readonly report: string;
  /** base64 of PEM; AMD only. */
  readonly certificates?: string;
  readonly collateral?: object;
  /** base64 of the quote, which AZURE_TDX has in addition to its report. */
  readonly quote?: string;
  /** Azure only: the virtual TPM's quote, with its registers. */
  readonly tpm?: { readonly message: string; readonly signature: string; readonly pcrs: readonly string[] };
  /** base64 of the log of the measured boot; TDX only. */
  readonly event_log?: string;
}

/** Types by the name of the kernel's driver in configfs-tsm. */
export const PROVIDERS: Readonly<Record<string, CpuType>> = { sev_guest: 'SEV_SNP', tdx_guest: 'TDX' };

/** How long a report may take: SEV-SNP's guest waits 60 s for its host, TDX's 30 s. */
export const REPORT_DEADLINE_MS = 65_000;

export interface CpuCollector {
  /** null until it is known. */
  readonly type: CpuType | null;
  /** null for a real processor; for the software twin, its test root as PEM. */
  readonly simulated: { readonly root: string } | null;
  /** Calls may overlap. @param reportData 64 bytes. */
  collect(reportData: Uint8Array, signal: AbortSignal): Promise<CpuEvidence>;
}

// Failures, each with its code, and whether a retry can help.

/** Something is missing that may be available later. */
export const unavailable = (words: string, options?: ErrorOptions): AttesterError =>
  failed('collection_failed', 'cpu_unavailable', words, 'retry', options);

/** Something is missing that only the host can provide. */
export const withheld = (words: string): AttesterError => failed('collection_failed', 'cpu_unavailable', words, 'stop');

/** Evidence of a kind that we cannot read. */
export const unsupported = (words: string): AttesterError =>
  failed('collection_failed', 'cpu_unsupported', words, 'stop');

/** The processor's own evidence is invalid. */
export const refused = (words: string, options?: ErrorOptions): AttesterError =>
  failed('appraisal_failed', 'cpu_refused', words, 'retry', options);
