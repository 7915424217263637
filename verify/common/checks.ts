// The checks that a verification consists of: their names and codes, the list that runs them, and the error that carries it.

/** The checks of every attestation, in the order in which they run, in ten groups. */
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

/** The checks of a processor's evidence, where there is some. They run after `topology` and before `policy`. */
export const CPU_CHECKS = [
  'cpu_form',
  'cpu_signature',
  'cpu_chain',
  'cpu_identity',
  'cpu_revocation',
  'cpu_vtpm', // for Azure's types alone
  'cpu_binding',
  'cpu_devices',
  'cpu_answer',
  'cpu_mode',
  'cpu_tcb',
  'cpu_measurement',
  'cpu_software',
  'cpu_weights',
] as const;
/** The checks of a release, where the caller names one. They run before those of a processor's evidence, which is compared with its list. */
const RELEASE_CHECKS = ['release', 'release_status'] as const;
/** The check of a compact attestation's bundle runs after `form`. */
export type CheckName =
  | (typeof CHECKS)[number]
  | 'bundle'
  | (typeof RELEASE_CHECKS)[number]
  | (typeof CPU_CHECKS)[number];

/** Every name, in the order in which checks are reported. */
export const ORDER: readonly CheckName[] = [
  'form',
  'bundle',
  ...CHECKS.slice(1, -1),
  ...RELEASE_CHECKS,
  ...CPU_CHECKS,
  'policy',
];

/** The reasons why a check fails. A closed list: programs branch on it, and every code is documented in docs/errors.md. */
export const FAILURE_CODES = [
  'not_json',
  'not_an_attestation',
  'unsigned_member',
  'event_not_expected',
  'too_large',
  'bundle_unavailable',
  'bundle_mismatch',
  'bundle_malformed',
  'raw_hash_mismatch',
  'batch_malformed',
  'batch_proof_invalid',
  'raw_malformed',
  'endpoint_mismatch',
  'request_mismatch',
  'response_mismatch',
  'stream_malformed',
  'stream_mismatch',
  'stream_not_foldable',
  'token_malformed',
  'token_nonce_mismatch',
  'token_result_false',
  'token_digest_mismatch',
  'token_signature_invalid',
  'token_expired',
  'token_issuer_unknown',
  'token_key_unavailable',
  'evidence_missing',
  'evidence_malformed',
  'report_malformed',
  'report_nonce_mismatch',
  'report_signature_invalid',
  'chain_invalid',
  'certificate_expired',
  'untrusted_root',
  'simulated_root_refused',
  'fwid_mismatch',
  'revocation_unavailable',
  'revocation_invalid',
  'certificate_revoked',
  'rim_unavailable',
  'rim_malformed',
  'rim_signature_invalid',
  'rim_chain_invalid',
  'rim_signer_expired',
  'rim_mismatch',
  'measurement_mismatch',
  'token_report_mismatch',
  'device_not_confidential',
  'debug_enabled',
  'topology_mismatch',
  'too_old',
  'policy_refused',
  'device_not_accepted',
  'cpu_missing',
  'cpu_malformed',
  'cpu_unsupported',
  'cpu_signature_invalid',
  'cpu_identity_mismatch',
  'cpu_vtpm_invalid',
  'cpu_binding_mismatch',
  'session_expired',
  'session_mismatch',
  'cpu_devices_mismatch',
  'answer_signature_invalid',
  'cpu_policy_refused',
  'collateral_unavailable',
  'collateral_invalid',
  'collateral_expired',
  'tcb_not_accepted',
  'event_log_mismatch',
  'software_mismatch',
  'weights_missing',
  'weights_mismatch',
  'release_unavailable',
  'release_too_large',
  'release_malformed',
  'release_unsupported',
  'release_untrusted',
  'release_root_expired',
  'release_log_ended',
  'release_time_invalid',
  'release_time_ahead',
  'release_certificate_invalid',
  'release_certificate_expired',
  'release_sct_invalid',
  'release_entry_mismatch',
  'release_proof_invalid',
  'release_checkpoint_invalid',
  'release_signature_invalid',
  'release_issuer_mismatch',
  'release_repository_mismatch',
  'release_id_mismatch',
  'release_ref_mismatch',
  'release_tag_mismatch',
  'release_event_mismatch',
  'release_runner_mismatch',
  'release_workflow_mismatch',
  'release_identity_mismatch',
  'release_commit_mismatch',
  'release_statement_malformed',
  'release_subject_duplicate',
  'release_subject_mismatch',
  'release_list_malformed',
  'release_status_unavailable',
  'release_status_malformed',
  'release_status_stale',
  'release_withdrawn',
  'release_not_shown',
] as const;
export type FailureCode = (typeof FAILURE_CODES)[number];

const UNAVAILABLE: ReadonlySet<FailureCode | undefined> = new Set<FailureCode>([
  'revocation_unavailable',
  'rim_unavailable',
  'token_key_unavailable',
  'collateral_unavailable',
  'bundle_unavailable',
  'release_unavailable',
  'release_status_unavailable',
]);

/** Whether a check failed only because a service or a folder lacks what it needs: it found nothing wrong. */
export const isUnavailable = ({ code }: Pick<Check, 'code'>): boolean => UNAVAILABLE.has(code);

const isIncomplete = (checks: readonly Check[]): boolean =>
  checks.every((check) => check.status !== 'fail' || isUnavailable(check));

export interface Check {
  readonly name: CheckName;
  readonly status: 'pass' | 'fail' | 'skip';
  /** Present when and only when the status is `fail`. */
  readonly code?: FailureCode;
  /** What was seen, or the reason of a skip: one sentence, without prompt or completion text. */
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
  /** Nothing was found wrong: what each failed check needs was unavailable. */
  readonly incomplete: boolean;
  constructor(checks: readonly Check[]) {
    const failed = checks.find((check) => check.status === 'fail');
    if (failed?.code === undefined) throw new TypeError('a VerificationError needs a failed check');
    super(`${failed.name}: ${failed.detail}`);
    this.code = failed.code;
    this.checks = checks;
    this.incomplete = isIncomplete(checks);
  }
}

// Runs checks and keeps their list: a check whose prerequisites have failed is a skip, never a pass.

/** A check that passed: a description of the result, and the value that may be used from now on. */
export interface Passed<T> {
  readonly detail: string;
  readonly value: T;
}

/** There is nothing to check here, for this reason. */
interface Skipped {
  readonly skip: string;
}

export type Outcome<T> = Passed<T> | Skipped;

export const passed = <T>(detail: string, value: T): Passed<T> => ({ detail, value });
export const seen = (detail: string): Passed<true> => ({ detail, value: true });
export const skipped = (skip: string): Skipped => ({ skip });

/** A result, or in its place an error, for the check that reports it. */
export interface Settled<T> {
  readonly value: T | null;
  /** Throws the error. */
  readonly get: () => T;
}

export async function settle<T>(find: () => Promise<T>): Promise<Settled<T>> {
  try {
    const value = await find();
    return { value, get: () => value };
  } catch (error) {
    const get = (): T => {
      throw error;
    };
    return { value: null, get };
  }
}

export class CheckList {
  readonly #checks: Check[] = [];
  /** Checks that failed or did not run because of a failure: by name, or by name and device. */
  readonly #unmet = new Set<string>();
  readonly #stopsAtFailure: boolean;
  /** The check that failed first. */
  #failed: CheckName | undefined;

  /** @param stopsAtFailure nothing runs after a check that failed. */
  constructor(stopsAtFailure = false) {
    this.#stopsAtFailure = stopsAtFailure;
  }

  /**
   * Runs `check` unless one of `after` is unmet, for the same device or for none. A CheckFailure becomes a `fail`; other errors
   * are not the evidence's fault and are rethrown.
   * @returns the value, or null when there is none to use.
   */
  async run<T>(
    name: CheckName,
    after: readonly CheckName[],
    check: () => Outcome<T> | Promise<Outcome<T>>,
    device?: number,
  ): Promise<T | null> {
    const unmet =
      after.find((other) => this.#unmet.has(other) || this.unmet(other, device)) ??
      (this.#stopsAtFailure ? this.#failed : undefined);
    if (unmet !== undefined) {
      this.#unmet.add(key(name, device));
      this.skip(name, `not run: ${unmet} failed`, device);
      return null;
    }
    try {
      const outcome = await check();
      if ('skip' in outcome) {
        this.skip(name, outcome.skip, device);
        return null;
      }
      this.#add({ name, status: 'pass', detail: outcome.detail }, device);
      return outcome.value;
    } catch (error) {
      if (!(error instanceof CheckFailure)) throw error;
      this.#unmet.add(key(name, device));
      this.#failed ??= name;
      this.#add({ name, status: 'fail', code: error.code, detail: error.message }, device);
      return null;
    }
  }

  skip(name: CheckName, detail: string, device?: number): void {
    this.#add({ name, status: 'skip', detail }, device);
  }

  /** True when this check failed or could not run, for any device where none is named. */
  unmet(name: CheckName, device?: number): boolean {
    if (device !== undefined) return this.#unmet.has(key(name, device));
    return [...this.#unmet].some((one) => one === name || one.startsWith(`${name}[`));
  }

  /** In the order of CHECKS and CPU_CHECKS, then of the devices. */
  get checks(): Check[] {
    const rank = ({ name, device = -1 }: Check) => ORDER.indexOf(name) * 1000 + device;
    return this.#checks.toSorted((a, b) => rank(a) - rank(b));
  }

  get valid(): boolean {
    return this.#checks.length > 0 && this.#checks.every(({ status }) => status !== 'fail');
  }

  /** Not valid, and every failed check only lacked what it needs. */
  get incomplete(): boolean {
    return !this.valid && isIncomplete(this.#checks);
  }

  passed(name: CheckName): boolean {
    const own = this.#checks.filter((check) => check.name === name);
    return own.length > 0 && own.every(({ status }) => status === 'pass');
  }

  #add(check: Check, device: number | undefined): void {
    this.#checks.push(device === undefined ? check : { ...check, device });
  }
}

const key = (name: string, device: number | undefined) => (device === undefined ? name : `${name}[${device}]`);

/** Limits for an input. */
export interface Limits {
  /** Characters of JSON text; 64 Mi by default. */
  readonly maxCharacters?: number | undefined;
  /** Names and values in it, and again in raw; 16 Mi by default. */
  readonly maxValues?: number | undefined;
}
