// What goes to the thread that verifies, and what comes back.
import type { FailureCode, Jwks } from '../../verify/index.ts';

export interface WorkerOptions {
  readonly rim_url: string;
  readonly ocsp_url: string;
  readonly verify_timeout_ms: number;
}

export interface Job {
  /** UTF-8. */
  readonly body: Uint8Array;
  /** Of the sidecar's own tokens. */
  readonly countersignKeys: Jwks | undefined;
  /** PEM; null: no simulated device is accepted. */
  readonly simulatedRoot: string | null;
}

export interface Verdict {
  readonly valid: boolean;
  /** The first check that failed; of no meaning when valid. */
  readonly failed: { readonly name: string; readonly code: FailureCode | null; readonly detail: string };
  /** The whole report, as JSON text. */
  readonly json: string;
}
