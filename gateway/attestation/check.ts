// Checks what a sidecar answered before anybody is given it: the same as the sidecar's own check, on a thread, because a signature and
// what surrounds it take a millisecond, and what a false sidecar sends may take longer to read.
import type { FailureCode } from '../../verify/index.ts';
import { CHECKING_HEAP_MB, CHECKING_YOUNG_HEAP_MB } from '../limits/bounds.ts';
import { Thread } from '../offload/thread.ts';

/** What the thread is asked. */
export interface CheckQuestion {
  /** JSON of the attestation's token and evidence, in UTF-8. */
  readonly members: Uint8Array;
  /** What every report and the token must be over. */
  readonly nonce: string;
  /** PEM of the root that counts in place of NVIDIA's; null: NVIDIA's alone. */
  readonly simulatedRoot: string | null;
}

/** What is wrong, by the verifier's codes; null: nothing. */
export type CheckAnswer = { readonly code: FailureCode; readonly message: string } | null;

export interface Checker {
  /** An answer will come: the thread starts meanwhile. */
  warm(): void;
  /** @throws {Error} when the thread ended before it had looked. */
  check(question: CheckQuestion): Promise<CheckAnswer>;
  close(): Promise<void>;
}

/** A start takes longer than a GPU may: whoever asked once is likely to ask again. */
const IDLE_MS = 3_600_000;

export function createChecker(): Checker {
  const thread = new Thread<CheckQuestion, CheckAnswer>(
    new URL('./check-worker.ts', import.meta.url),
    { resourceLimits: { maxOldGenerationSizeMb: CHECKING_HEAP_MB, maxYoungGenerationSizeMb: CHECKING_YOUNG_HEAP_MB } },
    IDLE_MS,
  );
  return {
    warm: () => thread.warm(),
    // A copy of its own: a view would take the whole of what it was read into along.
    check: ({ members, nonce, simulatedRoot }) =>
      thread.ask({ members: new Uint8Array(members), nonce, simulatedRoot }),
    close: () => thread.end(),
  };
}
