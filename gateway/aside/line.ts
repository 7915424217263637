// Who waits for the thread: one is with it, the others wait here, each owner in turn. Whoever leaves takes along what was to be read.
import { ClientGone } from '../body.ts';
import type { Owner } from '../keys/caller.ts';
import { ThreadEnded } from '../thread.ts';
import { createTurns } from '../turns.ts';
import type { Outgoing } from '../wire/answer.ts';

/** For whom something is read. */
export interface Asker {
  readonly owner: Owner;
  readonly outgoing: Pick<Outgoing, 'destroyed' | 'once' | 'off'>;
}

const gone = () => new ClientGone('the client left before it was its turn');

export class Line {
  readonly #turns = createTurns(1);
  readonly #waiting = new Set<(error: Error) => void>();

  /** @throws {ClientGone} @throws {ThreadEnded} before its turn; what `does` throws. */
  run<T>({ owner, outgoing }: Asker, does: () => Promise<T>): Promise<T> {
    // The client may have left while something else was waited for, and `close` does not come twice.
    if (outgoing.destroyed) return Promise.reject(gone());
    let leave = () => {};
    const done = new Promise<T>((resolve, reject) => {
      const settle = () => {
        outgoing.off('close', onClose);
        this.#waiting.delete(stop);
      };
      const stop = (error: Error) => {
        settle();
        leave();
        reject(error);
      };
      const onClose = () => stop(gone());
      outgoing.once('close', onClose);
      this.#waiting.add(stop);
      leave = this.#turns.enter(owner, () => {
        settle();
        resolve(does());
      });
    });
    return done.finally(() => leave());
  }

  /** Whoever waits is told. */
  end(): void {
    for (const stop of this.#waiting) stop(new ThreadEnded('the thread ended before it was asked'));
  }
}
