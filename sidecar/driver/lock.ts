// A place that few may hold at once, and a way out of the wait: a GPU makes one report at a time, and a call into its driver
// that hangs cannot be taken back.

export interface Lock {
  /** Resolves to what gives the place back. @throws what `signal` was aborted with. */
  take(signal: AbortSignal): Promise<() => void>;
  /** Nobody holds it. */
  readonly free: boolean;
}

/** @param limit how many may hold it. */
export function createLock(limit = 1): Lock {
  let held = 0;
  const line: (() => void)[] = [];
  const give = () => {
    const next = line.shift();
    if (next === undefined) held--;
    else next();
  };
  return {
    get free() {
      return held === 0;
    },
    async take(signal) {
      signal.throwIfAborted();
      if (held < limit) held++;
      else await turn(line, signal);
      return give;
    },
  };
}

function turn(line: (() => void)[], signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const enter = () => {
      signal.removeEventListener('abort', leave);
      resolve();
    };
    const leave = () => {
      line.splice(line.indexOf(enter), 1);
      reject(signal.reason);
    };
    line.push(enter);
    signal.addEventListener('abort', leave, { once: true });
  });
}

/**
 * Runs `work` while holding every lock. Who leaves early, by `signal`, leaves `work` running, and the locks with it.
 * @throws what `signal` was aborted with, or `work` threw.
 */
export async function holding<T>(locks: readonly Lock[], work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const taken: (() => void)[] = [];
  const give = () => {
    for (const one of taken) one();
  };
  try {
    for (const lock of locks) taken.push(await lock.take(signal));
  } catch (error) {
    give();
    throw error;
  }
  return until(work().finally(give), signal);
}

/** Leaves early by `signal`; `work` goes on, and nobody hears of it. */
export function until<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const leave = () => reject(signal.reason);
    signal.addEventListener('abort', leave, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', leave));
  });
}
