// Verifies in a thread of its own, which is ended when it hangs.
import { Problem } from '../problem.ts';
import { Thread, ThreadEnded } from '../thread.ts';
import type { Job, Verdict, WorkerOptions } from './job.ts';

export interface Verifier {
  /** How many verifications are not done, those of clients that have left among them. */
  readonly running: number;
  /** @throws {Problem} overloaded when it is not done in time, or the thread ended. */
  appraise(job: Job): Promise<Verdict>;
  close(): Promise<void>;
}

export interface VerifierOptions extends WorkerOptions {
  readonly verify_timeout_ms: number;
}

/** An attestation may be 16 MiB of JSON that is mostly objects; past this the thread ends, and the process does not. */
const MAX_HEAP_MB = 1024;

export function createVerifier({ rim_url, ocsp_url, verify_timeout_ms }: VerifierOptions): Verifier {
  const thread = new Thread<Job, Verdict>(new URL('./worker.ts', import.meta.url), {
    workerData: { rim_url, ocsp_url } satisfies WorkerOptions,
    resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
  });
  return {
    get running() {
      return thread.pending;
    },

    async appraise(job) {
      const timer = setTimeout(() => void thread.end(), verify_timeout_ms);
      try {
        return await thread.ask(job);
      } catch (error) {
        if (!(error instanceof ThreadEnded)) throw error;
        throw new Problem('overloaded', 'The verification was not done in time.', { retryAfterSeconds: 1 });
      } finally {
        clearTimeout(timer);
      }
    },
    close: () => thread.end(),
  };
}
