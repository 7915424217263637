// The ordered list of checks that a verification is, and the error that carries it.

/** In the order in which they run. DESIGN §9 numbers the groups. */
export const CHECKS = [
  'form', // 1
  'raw_hash', // 2
  'raw_members', // 3
  'expected_exchange', // 3: equality with the request, response or stream the caller holds
  'token_shape', // 4
  'token_nonce',
  'token_result',
  'token_digests',
  'token_signature',
  'report_form', // 5
  'report_nonce',
  'report_signature',
  'report_chain',
  'report_fwid',
  'revocation', // 6
  'reference_values', // 7
  'token_report_match', // 8
  'device_mode', // 9
  'topology', // 9: over all devices at once
  'policy', // 10
] as const;
export type CheckName = (typeof CHECKS)[number];

/** Why a check failed. A closed union: programs branch on it, and every code is documented in docs/errors.md. */
export type FailureCode =
  | 'not_json'
  | 'not_an_attestation'
  | 'too_large'
  | 'raw_hash_mismatch'
  | 'raw_malformed'
  | 'request_mismatch'
  | 'response_mismatch'
  | 'stream_malformed'
  | 'stream_mismatch'
  | 'token_malformed'
  | 'token_nonce_mismatch'
  | 'token_result_false'
  | 'token_digest_mismatch'
  | 'token_signature_invalid'
  | 'token_expired'
  | 'token_issuer_unknown'
  | 'token_key_unavailable'
  | 'evidence_missing'
  | 'evidence_malformed'
  | 'report_malformed'
  | 'report_nonce_mismatch'
  | 'report_signature_invalid'
  | 'chain_invalid'
  | 'certificate_expired'
  | 'untrusted_root'
  | 'simulated_root_refused'
  | 'fwid_mismatch'
  | 'revocation_unavailable'
  | 'revocation_invalid'
  | 'certificate_revoked'
  | 'rim_unavailable'
  | 'rim_malformed'
  | 'rim_signature_invalid'
  | 'rim_chain_invalid'
  | 'rim_signer_expired'
  | 'rim_mismatch'
  | 'measurement_mismatch'
  | 'token_report_mismatch'
  | 'device_not_confidential'
  | 'debug_enabled'
  | 'topology_mismatch'
  | 'too_old'
  | 'policy_refused';

export interface Check {
  readonly name: CheckName;
  readonly status: 'pass' | 'fail' | 'skip';
  /** Present when and only when the status is `fail`. */
  readonly code?: FailureCode;
  /** What was seen, or why it was skipped: one sentence, without prompt or completion text. */
  readonly detail: string;
  /** Which device, counted from 0, for a check made on one of several. */
  readonly device?: number;
}

/** Thrown inside a check; the list turns it into a `fail`. */
export class CheckFailure extends Error {
  override readonly name = 'CheckFailure';
  readonly code: FailureCode;
  constructor(code: FailureCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** The verification failed. `code` is that of the first check that failed; `checks` is the whole list. */
export class VerificationError extends Error {
  override readonly name = 'VerificationError';
  readonly code: FailureCode;
  readonly checks: readonly Check[];
  constructor(checks: readonly Check[]) {
    const failed = checks.find((check) => check.status === 'fail');
    if (failed?.code === undefined) throw new TypeError('a VerificationError needs a failed check');
    super(`${failed.name}: ${failed.detail}`);
    this.code = failed.code;
    this.checks = checks;
  }
}
