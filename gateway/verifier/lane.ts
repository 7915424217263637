// A lane is a thread that verifies, with the verifications that run there and those that wait for their turn.
import { type Asker, Line } from '../aside/line.ts';
import { type Share, Shares } from '../limits/shares.ts';
import { createPermits, type PermitLimits, type Permits } from '../permits.ts';
import { Problem } from '../problem.ts';
import { Thread, ThreadEnded } from '../thread.ts';
import type { Job, Verdict, WorkerOptions } from './job.ts';

export interface LaneOptions {
  readonly worker: WorkerOptions;
  /** Past it the thread ends, and with it its verifications. */
  readonly max_heap_mb: number;
  /** Of bodies that are being read, wait, or are verified. */
  readonly max_bytes: number;
  /** To be verified. */
  readonly permits: Permits;
  /** Of these, for one address: none takes all that there are while it waits for NVIDIA's services. */
  readonly per_address: PermitLimits;
  /** What a large body took of memory goes back with the thread. */
  readonly ends_after_each: boolean;
}

/** The thread says by itself that time is over, unless it hangs. */
const HANGS_MS = 1_000;

const late = () => new Problem('overloaded', 'The verification was not done in time.', { retryAfterSeconds: 1 });

export class Lane {
  readonly shares: Shares;
  readonly #options: LaneOptions;
  readonly #thread: Thread<Job, Verdict | null>;
  readonly #line: Line;
  readonly #addresses = new Map<string, { readonly line: Line; guests: number }>();
  #closed = false;

  constructor(options: LaneOptions) {
    this.#options = options;
    this.#line = new Line(options.permits);
    this.shares = new Shares(options.max_bytes);
    this.#thread = new Thread(new URL('./worker.ts', import.meta.url), {
      workerData: options.worker,
      resourceLimits: { maxOldGenerationSizeMb: options.max_heap_mb },
    });
  }

  /** @param share the body's. @throws {Problem} overloaded where too many wait, or it was not done in time. @throws {ClientGone} before its turn. */
  async run(asker: Asker, job: Job, share: Share): Promise<Verdict> {
    const waiting = new AbortController();
    share.giveWay = () =>
      waiting.abort(new Problem('overloaded', 'Too many verifications wait.', { retryAfterSeconds: 1 }));
    const timer = setTimeout(() => waiting.abort(late()), this.#options.worker.verify_timeout_ms);
    const own = this.#addresses.get(asker.owner) ?? this.#newcomer(asker.owner);
    own.guests++;
    const begin = () => {
      clearTimeout(timer);
      share.giveWay = null;
      return this.#ask(job);
    };
    try {
      return await own.line.run(asker, () => this.#line.run(asker, begin, waiting.signal), waiting.signal);
    } finally {
      clearTimeout(timer);
      if (--own.guests === 0) this.#addresses.delete(asker.owner);
    }
  }

  close(): Promise<void> {
    this.#closed = true;
    return this.#thread.end();
  }

  #newcomer(address: string) {
    const own = { line: new Line(createPermits(this.#options.per_address)), guests: 0 };
    this.#addresses.set(address, own);
    return own;
  }

  async #ask(job: Job): Promise<Verdict> {
    const { ends_after_each, worker } = this.#options;
    for (let again = !ends_after_each; ; again = false) {
      let hangs = false;
      const timer = setTimeout(() => {
        hangs = true;
        void this.#thread.end();
      }, worker.verify_timeout_ms + HANGS_MS);
      try {
        const verdict = await this.#thread.ask(job);
        if (verdict === null) throw late();
        return verdict;
      } catch (error) {
        if (!(error instanceof ThreadEnded)) throw error;
        // In a thread that several share, the time that was over was another's: this one is verified by the next thread.
        if (hangs || !again || this.#closed) throw late();
      } finally {
        clearTimeout(timer);
        if (ends_after_each) await this.#thread.end();
      }
    }
  }
}
