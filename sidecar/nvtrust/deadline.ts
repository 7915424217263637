// A limit in time on what a worker does.
import { failure, type Reason } from './failure.ts';

/** Runs `work`; past the deadline, on abort or on any error the process is killed. */
export function bounded<T>(
  deadline_ms: number,
  reason: Reason,
  kill: () => void,
  work: () => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const stop = (error: unknown) => {
      settle();
      kill();
      reject(error);
    };
    const timer = setTimeout(() => stop(failure(reason, `no answer within ${deadline_ms} ms`)), deadline_ms);
    const onAbort = () => stop(signal?.reason);
    const settle = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
    };
    if (signal?.aborted) return onAbort();
    signal?.addEventListener('abort', onAbort);
    work().then((value) => {
      settle();
      resolve(value);
    }, stop);
  });
}
