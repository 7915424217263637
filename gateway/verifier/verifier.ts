// The verifier is open to everyone, so its memory and threads are limited and shared fairly between addresses.
import type { FailureCode, Jwks, Policy } from '../../verify/index.ts';
import { MANY_BYTES } from '../base/bytes.ts';
import type { GatewayConfig } from '../base/config.ts';
import { QUICK_VERIFICATIONS, type VerifierSizes, verifierBounds } from '../base/memory-bounds.ts';
import { Problem } from '../base/problem.ts';
import type { BodyLimits, Outgoing } from '../http/body.ts';
import { createPermits, type PermitLimits, type Permits } from '../limits/concurrency.ts';
import { type Share, Shares } from '../limits/shares.ts';
import { JobQueue, type Waiter } from '../threads/offload.ts';
import { Thread, ThreadEnded } from '../threads/thread.ts';

// The job of the verifier's thread, and its result.

export interface WorkerOptions {
  /** null: NVIDIA's. */
  readonly rim_url: string | null;
  /** null: NVIDIA's. */
  readonly ocsp_url: string | null;
  readonly verify_timeout_ms: number;
}

export interface Job {
  /** The request body in UTF-8. */
  readonly body: Uint8Array;
  /** Public keys of the sidecar's own attestation tokens. */
  readonly countersignKeys: Jwks | undefined;
  /** PEM of the simulated root; null: no simulated device is accepted. */
  readonly simulatedRoot: string | null;
  /** The lowest level and the largest batch that count as valid. */
  readonly policy: Pick<Policy, 'minLevel' | 'maxBatch'>;
  /** The request path that the attestation must name; undefined: any. */
  readonly endpoint: string | undefined;
  /** The body is one event of a stream by itself. */
  readonly event: boolean;
}

export interface Verdict {
  readonly valid: boolean;
  /** The first check that failed. It has no meaning when `valid` is true. */
  readonly failed: { readonly name: string; readonly code: FailureCode | null; readonly detail: string };
  /** The whole report as JSON text. */
  readonly json: string;
}

interface QueueOptions {
  readonly worker: WorkerOptions;
  /** Heap limit of the thread. When it is exceeded, the thread ends with its verifications. */
  readonly max_heap_mb: number;
  /** Limit for all bodies that are being read, are queued, or are being verified. */
  readonly max_bytes: number;
  /** Permits for verifications. */
  readonly permits: Permits;
  /** Limit for one address, so that no address uses all permits while it waits for NVIDIA's services. */
  readonly per_address: PermitLimits;
  /** The thread ends after each verification, which frees the memory of a large body. */
  readonly ends_after_each: boolean;
}

/** The thread reports its own timeout unless it hangs. It is ended this long after the timeout. */
const HANGS_MS = 1_000;

const timedOut = () => new Problem('overloaded', 'The verification was not done in time.', { retryAfterSeconds: 1 });

class VerifierQueue {
  readonly shares: Shares;
  readonly #options: QueueOptions;
  readonly #thread: Thread<Job, Verdict | null>;
  readonly #queue: JobQueue;
  readonly #addresses = new Map<string, { readonly queue: JobQueue; callers: number }>();
  #closed = false;

  constructor(options: QueueOptions) {
    this.#options = options;
    this.#queue = new JobQueue(options.permits);
    this.shares = new Shares(options.max_bytes);
    this.#thread = new Thread(new URL('./verify-worker.ts', import.meta.url), {
      workerData: options.worker,
      resourceLimits: { maxOldGenerationSizeMb: options.max_heap_mb },
    });
  }

  /**
   * @param share the share of the body.
   * @throws {Problem} overloaded when too many wait, or on timeout.
   * @throws {ClientGone} while it waits.
   */
  async run(waiter: Waiter, job: Job, share: Share): Promise<Verdict> {
    const waiting = new AbortController();
    share.onEvict = () =>
      waiting.abort(new Problem('overloaded', 'Too many verifications wait.', { retryAfterSeconds: 1 }));
    const timer = setTimeout(() => waiting.abort(timedOut()), this.#options.worker.verify_timeout_ms);
    const entry = this.#addresses.get(waiter.owner) ?? this.#addAddress(waiter.owner);
    entry.callers++;
    const begin = () => {
      clearTimeout(timer);
      share.onEvict = null;
      return this.#runOnThread(job);
    };
    try {
      return await entry.queue.run(waiter, () => this.#queue.run(waiter, begin, waiting.signal), waiting.signal);
    } finally {
      clearTimeout(timer);
      if (--entry.callers === 0) this.#addresses.delete(waiter.owner);
    }
  }

  close(): Promise<void> {
    this.#closed = true;
    return this.#thread.end();
  }

  #addAddress(address: string) {
    const entry = { queue: new JobQueue(createPermits(this.#options.per_address)), callers: 0 };
    this.#addresses.set(address, entry);
    return entry;
  }

  async #runOnThread(job: Job): Promise<Verdict> {
    const { ends_after_each, worker } = this.#options;
    for (let retry = !ends_after_each; ; retry = false) {
      let hangs = false;
      const timer = setTimeout(() => {
        hangs = true;
        void this.#thread.end();
      }, worker.verify_timeout_ms + HANGS_MS);
      try {
        const verdict = await this.#thread.run(job);
        if (verdict === null) throw timedOut();
        return verdict;
      } catch (error) {
        if (!(error instanceof ThreadEnded)) throw error;
        // The verification that hung may be another one of a shared thread, so this one is retried on a new thread.
        if (hangs || !retry || this.#closed) throw timedOut();
      } finally {
        clearTimeout(timer);
        if (ends_after_each) await this.#thread.end();
      }
    }
  }
}

export interface Verifier {
  /** Admits one request before its body is read. @param address as returned by addressOf */
  admit(address: string, outgoing: Outgoing): VerifyCaller;
  close(): Promise<void>;
}

/** One request's body and its verification. */
interface VerifyCaller extends BodyLimits {
  /** @throws {Problem} overloaded when too many wait, or on timeout. @throws {ClientGone} */
  appraise(job: Job): Promise<Verdict>;
  /** Releases the memory of the request after its response. */
  release(): void;
}

type VerifierSettings = VerifierSizes & Pick<GatewayConfig, 'rim_url' | 'ocsp_url' | 'verify_timeout_ms'>;

/** The limit for one address, of `QUICK_VERIFICATIONS` for all. */
const QUICK_PER_ADDRESS = 2;
/** A body with more of JSON's structural characters takes longer to parse than the signatures of a few devices take to check. */
const QUICK_MARKS = 10_000;
/** Memory for the rest of a body is reserved for this long after each chunk. */
const IDLE_MS = 1_000;

/** Quick verifications have a thread of their own, so that slow ones do not delay them. */
export function createVerifier(options: VerifierSettings): Verifier {
  const { rim_url, ocsp_url, verify_timeout_ms, max_verify_concurrent: max_waiting } = options;
  const { quick_bytes, slow_bytes, quick_heap_mb, slow_heap_mb } = verifierBounds(options);
  const worker = { rim_url, ocsp_url, verify_timeout_ms };
  const quick = new VerifierQueue({
    worker,
    max_heap_mb: quick_heap_mb,
    max_bytes: quick_bytes,
    permits: createPermits({ max_permits: QUICK_VERIFICATIONS, max_waiting }),
    per_address: { max_permits: QUICK_PER_ADDRESS, max_waiting },
    ends_after_each: false,
  });
  const slow = new VerifierQueue({
    worker,
    max_heap_mb: slow_heap_mb,
    max_bytes: slow_bytes,
    permits: createPermits({ max_permits: 1, max_waiting }),
    per_address: { max_permits: 1, max_waiting },
    ends_after_each: true,
  });

  return {
    admit(address, outgoing) {
      const waiter: Waiter = { owner: address, outgoing };
      // A client that is still sending can only be disconnected.
      const onEvict = () => outgoing.destroy();
      let queue = quick;
      let share: Share = quick.shares.open(address, onEvict);
      let received_bytes = 0;
      /** Releases the memory that was reserved for the rest of a body that does not arrive. */
      let idle: NodeJS.Timeout | undefined;
      const moveToSlow = (bytes: number) => {
        share.release();
        queue = slow;
        share = slow.shares.open(address, onEvict);
        share.acquire(bytes);
      };
      return {
        hold(bytes, coming) {
          received_bytes += bytes;
          if (queue === quick && received_bytes + coming > MANY_BYTES) {
            // The memory for the whole announced body is reserved, so that it is not rejected halfway.
            moveToSlow(received_bytes + coming);
            if (coming > 0) idle = setTimeout(() => share.shrinkTo(received_bytes), IDLE_MS).unref();
          }
          share.acquire(Math.max(0, received_bytes - share.amount));
          idle?.refresh();
        },
        // The queue's permit is requested in `appraise`.
        received: () => clearTimeout(idle),
        async appraise(job) {
          if (queue === quick && !hasFewMarks(job.body)) moveToSlow(received_bytes);
          return queue.run(waiter, job, share);
        },
        release() {
          clearTimeout(idle);
          share.release();
        },
      };
    },
    close: async () => void (await Promise.all([quick.close(), slow.close()])),
  };
}

/** Counts JSON's structural characters, inside of strings too: `raw` is JSON in a string. */
function hasFewMarks(body: Uint8Array): boolean {
  let marks = 0;
  for (const byte of body) if (byte === COMMA || byte === COLON || byte === BRACKET || byte === BRACE) marks++;
  return marks <= QUICK_MARKS;
}
const [COMMA, COLON, BRACKET, BRACE] = [0x2c, 0x3a, 0x5b, 0x7b];
