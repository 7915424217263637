// Checks the sidecar's attestations and sessions. The checks run on a thread: a signature check takes a millisecond, and parsing the data
// of a faulty sidecar may take longer.
import type { Batch } from '../../proto/attestation/batch.ts';
import type { FailureCode } from '../../verify/index.ts';
import { CHECKING_HEAP_MB, CHECKING_YOUNG_HEAP_MB } from '../base/bounds.ts';
import { Thread } from '../offload/thread.ts';

/** A job of the check thread: one attestation, or those of a batch, which differ only in `answers`. */
interface AttestationJob {
  /** JSON of the attestation's token and evidence, in UTF-8. */
  readonly members: Uint8Array;
  /** The nonce that every report and the token must contain. */
  readonly nonce: string;
  /** PEM of the trust anchor that replaces NVIDIA's; null: NVIDIA's only. */
  readonly simulatedRoot: string | null;
  readonly answers: readonly AnswerJob[];
}

interface AnswerJob {
  /** SHA-256 of raw, in hex. */
  readonly digest: string;
  /** Merkle proof of the digest under the nonce; null: the nonce is the digest. */
  readonly batch: Batch | null;
  /** The statement of a checked session, and the signature over this response; null where no processor signs. */
  readonly signed: { readonly statement: string; readonly signature: string } | null;
}

/** A job of the check thread: one session, as JSON. */
interface SessionJob {
  readonly session: string;
  readonly simulatedRoot: string | null;
  /** The challenge that its statement must contain; absent: any or none. */
  readonly challenge?: string;
}

export type CheckJob = AttestationJob | SessionJob;

/** The check that failed. */
export interface Failure {
  readonly code: FailureCode;
  readonly message: string;
}

/** The failed check, or else the devices that signed, by their `ueid`; none for a session. */
export type CheckResult = Failure | { readonly devices: readonly string[] };

export interface Checker {
  /** Starts the thread before the first attestation arrives. */
  warm(): void;
  /** @throws {Error} when the thread ended before the check was done. */
  check(job: AttestationJob): Promise<CheckResult>;
  /** @throws {Error} as `check` does. */
  checkSession(job: SessionJob): Promise<Failure | null>;
  close(): Promise<void>;
}

/** Starting the thread takes longer than a GPU signature may take, so it is kept for an hour after its last job. */
const IDLE_MS = 3_600_000;

export function createChecker(): Checker {
  const thread = new Thread<CheckJob, CheckResult>(
    new URL('./check-worker.ts', import.meta.url),
    { resourceLimits: { maxOldGenerationSizeMb: CHECKING_HEAP_MB, maxYoungGenerationSizeMb: CHECKING_YOUNG_HEAP_MB } },
    IDLE_MS,
  );
  return {
    warm: () => thread.warm(),
    // The members are copied: posting a view would send the whole buffer that it belongs to.
    check: ({ members, ...job }) => thread.run({ members: new Uint8Array(members), ...job }),
    async checkSession(job) {
      const result = await thread.run(job);
      return 'code' in result ? result : null;
    },
    close: () => thread.end(),
  };
}

/** The result when the thread ended during the check, most likely because its heap was too small. */
export const unchecked = (): Failure => ({ code: 'evidence_malformed', message: 'it could not be read' });
