// What a collector is: it has this machine's processor sign 64 bytes. Each folder beside this file is one.

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

export interface CpuCollector {
  /** null until it is known. */
  readonly type: CpuType | null;
  /** null for a real processor; for the software twin, its test root as PEM. */
  readonly simulated: { readonly root: string } | null;
  /** Called one at a time. @param reportData 64 bytes. */
  collect(reportData: Uint8Array, signal: AbortSignal): Promise<CpuEvidence>;
}
