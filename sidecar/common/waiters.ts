// A bounded queue of callers that wait for something: a lock, a signer, a worker. Each wait can be aborted.
import { failed } from './attester.ts';

interface Waiters<T> {
  readonly count: number;
  /**
   * Waits behind the earlier callers.
   * @throws at once where too many wait; what `signal` was aborted with; the error that was given to `refuseAll`.
   */
  wait(signal: AbortSignal): Promise<T>;
  /** Gives `value` to the first caller. False where none waits. */
  give(value: T): boolean;
  /** Ends the wait of every caller with `error`. */
  refuseAll(error: unknown): void;
}

/** More than ever wait for one device or driver: the queue in front of them is served one at a time. */
const MAX_WAITERS = 1024;
const tooMany = () => failed('collection_failed', 'attester_stuck', 'too many calls wait for the attester', 'retry');

/** @param full makes the error for the caller after the last that may wait. */
export function createWaiters<T>(max = MAX_WAITERS, full: () => Error = tooMany): Waiters<T> {
  const waiting = new Set<PromiseWithResolvers<T>>();
  return {
    get count() {
      return waiting.size;
    },
    async wait(signal) {
      if (waiting.size >= max) throw full();
      signal.throwIfAborted();
      const own = Promise.withResolvers<T>();
      const onAbort = () => {
        waiting.delete(own);
        own.reject(signal.reason);
      };
      waiting.add(own);
      signal.addEventListener('abort', onAbort, { once: true });
      return own.promise.finally(() => signal.removeEventListener('abort', onAbort));
    },
    give(value) {
      const [first] = waiting;
      if (first === undefined) return false;
      waiting.delete(first);
      first.resolve(value);
      return true;
    },
    refuseAll(error) {
      for (const { reject } of waiting) reject(error);
      waiting.clear();
    },
  };
}
