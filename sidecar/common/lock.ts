// A lock with a limit of holders, and helpers that wait for shared work; each wait can be aborted. A GPU makes one report at a time, and
// a driver call that hangs cannot be cancelled.
import { createWaiters } from './waiters.ts';

export interface Lock {
  /** @returns the function that releases it. @throws what `signal` was aborted with. */
  acquire(signal: AbortSignal): Promise<() => void>;
  /** True when there is no holder. */
  readonly free: boolean;
}

/** @param limit of concurrent holders. */
export function createLock(limit = 1): Lock {
  const waiters = createWaiters<void>();
  let held = 0;
  const release = () => {
    if (!waiters.give()) held--;
  };
  return {
    get free() {
      return held === 0;
    },
    async acquire(signal) {
      signal.throwIfAborted();
      if (held < limit) held++;
      else await waiters.wait(signal);
      return release;
    },
  };
}

/**
 * Runs `work` while holding every lock. An abort ends only the wait: `work` goes on and keeps the locks until it ends.
 * @throws what `signal` was aborted with, or `work` threw.
 */
export async function holding<T>(locks: readonly Lock[], work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const releases: (() => void)[] = [];
  const releaseAll = () => {
    for (const release of releases) release();
  };
  try {
    for (const lock of locks) releases.push(await lock.acquire(signal));
  } catch (error) {
    releaseAll();
    throw error;
  }
  return until(work().finally(releaseAll), signal);
}

/** The result of `work`. Throws on an abort, after which `work` goes on and its result is dropped. */
export function until<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

/**
 * The result of `work`, unless `deadline_ms` pass or `cancel` is aborted first. It then throws `deadlineError()`, or what `cancel` was aborted with,
 * and calls `onAbandon` with it; `work` goes on and its result is dropped.
 */
export function withDeadline<T>(
  work: Promise<T>,
  deadline_ms: number,
  deadlineError: () => Error,
  cancel?: AbortSignal,
  onAbandon?: (reason: unknown) => void,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const abandon = (reason: unknown) => {
      settle();
      reject(reason);
      onAbandon?.(reason);
    };
    const onCancel = () => abandon(cancel?.reason);
    const deadline = setTimeout(() => abandon(deadlineError()), deadline_ms);
    const settle = () => {
      clearTimeout(deadline);
      cancel?.removeEventListener('abort', onCancel);
    };
    cancel?.addEventListener('abort', onCancel);
    work.then(resolve, reject).finally(settle);
  });
}

/** Concurrent callers share one run of `work` and its result or failure; the next caller after it starts another. */
export function shared<T>(work: () => Promise<T>): () => Promise<T> {
  let inFlight: Promise<T> | null = null;
  return () => {
    inFlight ??= work().finally(() => {
      inFlight = null;
    });
    return inFlight;
  };
}
