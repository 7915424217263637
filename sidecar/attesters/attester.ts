// What an attester is: it collects evidence over a nonce and has it appraised. One file per attester in attesters/.
import type { Evidence } from '../../proto/attestation.ts';
import type { Nonce } from '../../proto/raw.ts';
import type { FailureCode } from '../../verify/index.ts';

export interface Device {
  /** 'HOPPER', 'BLACKWELL', 'LS10'. */
  readonly arch: string;
  /** For people: 'NVIDIA H100 80GB HBM3'. */
  readonly model: string;
}

/** What came back for one nonce. Not yet trusted: the sidecar checks report nonce and signature itself (`checked.ts`). */
export interface Collected {
  readonly token: string;
  readonly evidence: readonly Evidence[];
  /** How much of the time was appraisal, where the attester can tell. */
  readonly appraisal_ms?: number;
}

/** `name`, `devices` and `token_keys` may become others, when an attester that was late can run or one gives way to another. */
export interface Attester {
  readonly name: string;
  readonly devices: readonly Device[];
  /** null for real hardware; for the software twin, its test root as PEM. */
  readonly simulated: { readonly root: string } | null;
  /** Public keys (JWK set) under which this process's tokens verify, where it signs them itself. */
  readonly token_keys?: { readonly keys: readonly object[] } | undefined;
  /**
   * Collects evidence over `nonce` from every device and has it appraised. Called one at a time.
   * @throws {AttesterError}
   */
  attest(nonce: Nonce, signal: AbortSignal): Promise<Collected>;
  close(): Promise<void>;
}

/** Collection or appraisal went wrong. `retryable` when the same call may succeed later. */
export class AttesterError extends Error {
  override readonly name = 'AttesterError';
  readonly code: 'collection_failed' | 'appraisal_failed';
  readonly retryable: boolean;
  /** How long to wait before trying again, where somebody said. */
  readonly retry_after_ms: number | null = null;
  constructor(code: AttesterError['code'], message: string, retryable: boolean, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.retryable = retryable;
  }
}

/** A check of verify/ failed; `failed` is the first. */
export class AppraisalError extends AttesterError {
  readonly failed: FailureCode;
  constructor(failed: FailureCode, message: string, retryable: boolean) {
    super('appraisal_failed', `${failed}: ${message}`, retryable);
    this.failed = failed;
  }
}
