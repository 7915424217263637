// The interface of an attester (each folder in attesters/ is one, and demo/twin/gpu.ts), which collects evidence over a nonce and has it appraised; its errors.
import type { Evidence } from '../../proto/attestation/attestation.ts';
import type { Nonce } from '../../proto/attestation/raw.ts';

export interface Device {
  /** 'HOPPER', 'BLACKWELL', 'LS10'. */
  readonly arch: string;
  /** For display: 'NVIDIA H100 80GB HBM3'. */
  readonly model: string;
}

/** Evidence and attestation token over one nonce. Not yet trusted: `signing/evidence-check.ts` checks nonce, signatures and chains. */
export interface Collected {
  readonly token: string;
  readonly evidence: readonly Evidence[];
  /** The part of the time that was appraisal, where the attester measures it. */
  readonly appraisal_ms?: number;
}

/** `name`, `devices` and `token_keys` may change: when an attester becomes able to run, or is replaced by another. */
export interface Attester {
  readonly name: string;
  /** Why it was chosen before others, where there was a choice. */
  readonly reason?: string | undefined;
  readonly devices: readonly Device[];
  /** null for real hardware; for the software twin, its test root as PEM. */
  readonly simulated: { readonly root: string } | null;
  /** Public keys (JWK set) under which this process's attestation tokens verify, where it signs them itself. */
  readonly token_keys?: { readonly keys: readonly object[] } | undefined;
  /**
   * Collects evidence over `nonce` from every device and has it appraised. Called one at a time, or one at a time for each `device`.
   * @param device the index of the only device that shall sign; `nvtrust` and `nvattest` ignore it (config.ts refuses SIGNERS=any).
   * @throws {AttesterError}
   */
  attest(nonce: Nonce, signal: AbortSignal, device?: number): Promise<Collected>;
  close(): Promise<void>;
}

/** The reason why an attester failed; docs/operate.md has a remedy for each. Failures of verify/'s checks have their own codes. */
export type Reason =
  // Driver, GPUs and switches.
  | 'no_ffi'
  | 'no_driver'
  | 'no_gpu'
  | 'no_permission'
  | 'unsupported_gpu'
  | 'unsupported_firmware'
  | 'gpu_lost'
  | 'cc_lost'
  | 'gpu_busy'
  | 'gpu_error'
  | 'nvml_error'
  | 'nvml_timeout'
  | 'cc_off'
  | 'devtools_on'
  | 'protected_pcie'
  | 'no_nscq'
  | 'nscq_error'
  | 'no_switch'
  | 'unsupported_switch'
  | 'switch_unlocked'
  | 'switch_lost'
  | 'switch_busy'
  | 'switch_error'
  // NVIDIA's programs: its SDK in workers, and nvattest.
  | 'no_sdk'
  | 'new_format'
  | 'worker_not_started'
  | 'worker_start_timeout'
  | 'worker_timeout'
  | 'worker_died'
  | 'worker_garbage'
  | 'worker_second_answer'
  | 'unexpected'
  | 'no_nvattest'
  | 'nvattest_old'
  | 'nvattest_usage'
  | 'nvattest_build'
  | 'nvattest_failed'
  | 'nvattest_died'
  | 'nvattest_garbage'
  | 'nvattest_timeout'
  // NVIDIA's services.
  | 'rim_unreachable'
  | 'rim_forbidden'
  | 'rim_not_found'
  | 'rim_refused'
  | 'ocsp_unreachable'
  | 'ocsp_forbidden'
  | 'ocsp_refused'
  | 'rate_limited'
  | 'nras_busy'
  | 'nras_unreachable'
  | 'nras_refused'
  | 'nras_error'
  | 'service_key'
  | 'mixed_gpus'
  // Refusals of NVIDIA's verifiers.
  | 'nonce_mismatch'
  | 'report_invalid'
  | 'report_signature'
  | 'version_mismatch'
  | 'certificate_chain'
  | 'firmware_id'
  | 'ocsp_revoked'
  | 'ocsp_unknown'
  | 'ocsp_invalid'
  | 'rim_invalid'
  | 'measurement_mismatch'
  | 'policy_refused'
  | 'policy_broken'
  | 'refused'
  // The sidecar's refusals of an attester's result.
  | 'wrong_nonce'
  | 'previous_token'
  | 'wrong_device_count'
  | 'token_refused'
  | 'token_key_unavailable'
  | 'evidence_refused'
  | 'attester_stuck'
  // The processor of a confidential VM.
  | 'cpu_unavailable'
  | 'cpu_unsupported'
  | 'cpu_refused'
  // Nothing more specific is known.
  | 'collection_failed'
  | 'appraisal_failed';

interface FailureOptions extends ErrorOptions {
  readonly reason?: Reason | null;
  readonly retry_after_ms?: number | null;
  /** Where the failure occurred; the message begins with it. */
  readonly where?: string;
}

/** Collection or appraisal failed. `retryable` when the same call may succeed later. The message has the reason before its words. */
export class AttesterError extends Error {
  override readonly name = 'AttesterError';
  /** `cc_lost`: the driver has torn confidential computing down, until the guest restarts. */
  readonly code: 'collection_failed' | 'appraisal_failed' | 'cc_lost';
  /** The message without its reason. */
  readonly words: string;
  readonly retryable: boolean;
  /** null: only the code is known. */
  readonly reason: Reason | null;
  /** How long to wait before the next attempt, where a service named it. */
  readonly retry_after_ms: number | null;
  constructor(
    code: AttesterError['code'],
    words: string,
    retryable: boolean,
    { reason = null, retry_after_ms = null, where, ...options }: FailureOptions = {},
  ) {
    super([where, reason, words].filter((part) => typeof part === 'string').join(': '), options);
    this.code = code;
    this.words = words;
    this.retryable = retryable;
    this.reason = reason;
    this.retry_after_ms = retry_after_ms;
  }

  /** Equal for failures that an operator need not tell apart. */
  get kind(): string {
    return `${this.code} ${this.reason}`;
  }

  /** The same failure, with `where` it occurred before its message. */
  at(where: string): AttesterError {
    const { code, words, retryable, reason, retry_after_ms } = this;
    return new AttesterError(code, words, retryable, { reason, retry_after_ms, where, cause: this });
  }
}

export function failed(
  code: AttesterError['code'],
  reason: Reason,
  words: string,
  again: 'retry' | 'stop',
  options?: ErrorOptions,
): AttesterError {
  return new AttesterError(code, words, again === 'retry', { ...options, reason });
}
