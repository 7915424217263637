// The attestation that a client stores and anyone can verify. The schemas of its parts are in attestation-schema.ts.

/** Devices whose evidence one attestation has, and one session names. */
export const MAX_DEVICES = 64;

/** One device's evidence: an SPDM measurement report and the certificate chain of the key that signed it. */
export interface Evidence {
  /** The architecture as NVIDIA's own tools name it in evidence files: `HOPPER`, `BLACKWELL`; `LS10` for a switch. */
  readonly arch: string;
  /** base64 of the SPDM GET_MEASUREMENTS request followed by the signed MEASUREMENTS response. */
  readonly report: string;
  /** base64 of the PEM chain, leaf first. */
  readonly certificate_chain: string;
}

/** The kinds of processor evidence, `type` of the member `cpu`. */
export type CpuType = 'SEV_SNP' | 'TDX' | 'AZURE_SEV_SNP' | 'AZURE_TDX';

/** The member `attestation` of a response: the three members of the specification, and optional evidence. */
export interface Attestation {
  /** The exact text whose SHA-256 the nonce commits to. */
  readonly raw: string;
  /** 64 lowercase hex digits. */
  readonly nonce: string;
  readonly token: string;
  /** Evidence of 1 to {@link MAX_DEVICES} devices. */
  readonly evidence?: readonly Evidence[] | undefined;
  /** Where the nonce commits to several responses: this one's inclusion proof (`Batch` in batch.ts). verify/binding/batch.ts reads it. */
  readonly batch?: Readonly<Record<string, unknown>> | undefined;
  /** Evidence of the processor in whose session the response was signed. verify/cpu reads it. */
  readonly cpu?: Readonly<Record<string, unknown>> | undefined;
}
