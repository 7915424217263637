// Who waits for a thread: as many as it serves are with it, the others wait here, each owner in turn. Whoever leaves takes along
// what was to be read.
import { ClientGone } from '../body.ts';
import { createPermits, type Permits } from '../permits.ts';
import { Problem } from '../problem.ts';
import { ThreadEnded } from '../thread.ts';
import type { Outgoing } from '../wire/answer.ts';

/** For whom something is read. */
export interface Asker {
  /** Of an API key, or an address. */
  readonly owner: string;
  readonly outgoing: Pick<Outgoing, 'destroyed' | 'once' | 'off'>;
}

/** Each keeps a large body, or an answer. */
const MAX_WAITING = 4096;

const full = () => new Problem('overloaded', 'Too much is waiting to be read.', { retryAfterSeconds: 1 });
const gone = () => new ClientGone('the client left before it was its turn');

export class Line {
  readonly #permits: Permits;
  readonly #waiting = new Set<(error: Error) => void>();

  constructor(permits: Permits = createPermits({ max_permits: 1, max_waiting: MAX_WAITING })) {
    this.#permits = permits;
  }

  /**
   * @param signal ends the wait, and not what has begun.
   * @throws {ClientGone} @throws {ThreadEnded} before its turn. @throws {Problem} overloaded; the signal's reason; what `does` throws.
   */
  run<T>({ owner, outgoing }: Asker, does: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    // The client may have left while something else was waited for, and `close` does not come twice.
    if (outgoing.destroyed) return Promise.reject(gone());
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    let release = () => {};
    const done = new Promise<T>((resolve, reject) => {
      const settle = () => {
        outgoing.off('close', onClose);
        signal?.removeEventListener('abort', onAbort);
        this.#waiting.delete(stop);
      };
      const stop = (error: Error) => {
        settle();
        release();
        reject(error);
      };
      const onClose = () => stop(gone());
      const onAbort = () => stop(signal?.reason);
      outgoing.once('close', onClose);
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#waiting.add(stop);
      const start = () => {
        settle();
        resolve(does());
      };
      release = this.#permits.acquire(owner, start, () => stop(full()));
    });
    return done.finally(() => release());
  }

  /** Whoever waits is told. */
  end(): void {
    for (const stop of this.#waiting) stop(new ThreadEnded('the thread ended before it was asked'));
  }
}
