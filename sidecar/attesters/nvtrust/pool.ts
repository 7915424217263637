// Workers kept warm: always `size` processes, each loaded and waiting, at work, or on its way; whoever leaves is replaced.

import { backoffMs } from '../../signing/retry.ts';
import type { AttesterError, Device } from '../attester.ts';
import { unreffed } from '../program.ts';
import { failure } from './failures.ts';
import { EXIT_GRACE_MS, type Worker } from './worker.ts';

export interface PoolOptions {
  readonly size: number;
  readonly start: () => Worker;
  /** Before the next start after a failed one; doubled at each further failure, up to the maximum. */
  readonly backoff_ms: number;
  readonly max_backoff_ms: number;
  /** A start failed, or a waiting worker left: for the log. */
  readonly onTrouble?: ((error: Error) => void) | undefined;
}

export interface Pool {
  /** What the first worker to come up sees. @throws {AttesterError} when it cannot come up. */
  readonly devices: Promise<readonly Device[]>;
  /** A warm worker, for one request; whoever takes it must ask it or kill it. @throws {AttesterError} when none can come up. */
  take(signal: AbortSignal): Promise<Worker>;
  close(): Promise<void>;
}

interface Waiter {
  give(worker: Worker): void;
  refuse(error: unknown): void;
}

export function createPool(options: PoolOptions): Pool {
  const alive = new Set<Worker>();
  const starting = new Set<Worker>();
  const warm = new Set<Worker>();
  const waiters = new Set<Waiter>();
  const first = Promise.withResolvers<readonly Device[]>();
  first.promise.catch(() => {});
  let failures = 0;
  let last: AttesterError | null = null;
  let timer: NodeJS.Timeout | null = null;
  let closed = false;

  function fill(): void {
    // After a failure one start at a time: a node without a driver is not helped by two.
    while (!closed && timer === null && alive.size < options.size && !(failures > 0 && starting.size > 0)) add();
  }

  function add(): void {
    const worker = options.start();
    alive.add(worker);
    starting.add(worker);
    worker.ready.then(
      (devices) => {
        starting.delete(worker);
        if (!alive.has(worker)) return;
        failures = 0;
        first.resolve(devices);
        offer(worker);
        fill();
      },
      (error: AttesterError) => {
        starting.delete(worker);
        first.reject(error);
        report(error);
      },
    );
    void worker.gone.then(() => {
      alive.delete(worker);
      if (warm.delete(worker)) report(failure('worker_died', 'a worker left while it waited'));
      if (!starting.has(worker)) fill(); // else `ready` is about to say what went wrong
    });
  }

  function offer(worker: Worker): void {
    const [waiter] = waiters;
    if (waiter === undefined) warm.add(worker);
    else waiter.give(worker);
  }

  function report(error: AttesterError): void {
    if (closed) return;
    last = error;
    options.onTrouble?.(error);
    const wait_ms = backoffMs({ first_ms: options.backoff_ms, max_ms: options.max_backoff_ms }, failures++);
    timer ??= setTimeout(() => {
      timer = null;
      fill();
    }, wait_ms);
    if (warm.size === 0 && starting.size === 0) for (const waiter of [...waiters]) waiter.refuse(error);
  }

  fill();
  return {
    devices: first.promise,
    take(signal) {
      const [worker] = warm;
      if (worker !== undefined) {
        warm.delete(worker);
        return Promise.resolve(worker);
      }
      if (closed) return Promise.reject(failure('worker_died', 'the workers have been dismissed'));
      if (last !== null && timer !== null && starting.size === 0) return Promise.reject(last);
      return new Promise((resolve, reject) => {
        const leave = () => {
          waiters.delete(waiter);
          signal.removeEventListener('abort', onAbort);
        };
        const waiter: Waiter = {
          give(worker) {
            leave();
            resolve(worker);
          },
          refuse(error) {
            leave();
            reject(error);
          },
        };
        const onAbort = () => waiter.refuse(signal.reason);
        if (signal.aborted) return reject(signal.reason);
        signal.addEventListener('abort', onAbort);
        waiters.add(waiter);
      });
    },
    async close() {
      closed = true;
      if (timer !== null) clearTimeout(timer);
      for (const waiter of [...waiters]) waiter.refuse(failure('worker_died', 'the workers have been dismissed'));
      warm.clear();
      for (const worker of alive) worker.kill();
      await Promise.race([Promise.all([...alive].map((worker) => worker.gone)), unreffed(EXIT_GRACE_MS)]);
    },
  };
}
