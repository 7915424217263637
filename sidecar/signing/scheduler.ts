// Schedules attestations: requests for the same raw share one attestation in flight, a queue leads to the attester, failures that may pass are retried, and a circuit breaker keeps requests from an attester that cannot attest.
import { randomBytes } from 'node:crypto';
import type { Phases } from '../../proto/frames.ts';
import type { Nonce } from '../../proto/raw.ts';
import { type Attester, AttesterError, type Collected } from '../attesters/attester.ts';
import { createCircuitBreaker, stuck, type Unavailable } from './circuit-breaker.ts';
import { ATTESTATION_RETRY, RETRY_AFTER_MS, TRIAL_EVERY_MS, withRetries } from './retry.ts';

// The queue in front of the GPU: bounded, one job at a time, in order of arrival. A job can be cancelled.

/** How long a job may go on after it was aborted, before the next one starts beside it. */
const GRACE_MS = 2_000;

/** The queue is full. */
export class QueueFull extends Error {
  override readonly name = 'QueueFull';
  override readonly message = 'too many requests wait for the GPU';
  readonly retry_after_ms = RETRY_AFTER_MS.queue_full;
}

interface Job {
  readonly work: () => Promise<void>;
  readonly signal: AbortSignal;
}

interface Queue {
  readonly waiting: number;
  readonly running: number;
  /**
   * Runs `work` after the jobs before it.
   * @throws {QueueFull} at once. @throws whatever `cancel` was aborted with, or `work` threw.
   */
  run<T>(work: (signal: AbortSignal) => Promise<T>, cancel: AbortSignal): Promise<T>;
}

interface QueueOptions {
  readonly attest_queue_max: number;
  /** Called when a job goes on after its abort; the next one runs beside it. */
  readonly onStuck?: () => void;
}

function overrun(signal: AbortSignal): Promise<false> {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => setTimeout(() => resolve(false), GRACE_MS).unref(), { once: true });
  });
}

function createQueue(options: QueueOptions): Queue {
  const queued = new Set<Job>();
  let running = 0;

  async function next(): Promise<void> {
    if (running > 0) return;
    running = 1;
    for (const job of queued) {
      queued.delete(job);
      if (job.signal.aborted) continue;
      // An attester that ignores its signal must not hold up the jobs after it.
      if (!(await Promise.race([job.work().then(() => true), overrun(job.signal)]))) options.onStuck?.();
    }
    running = 0;
  }

  return {
    get waiting() {
      return queued.size;
    },
    get running() {
      return running;
    },
    run<T>(work: (signal: AbortSignal) => Promise<T>, cancel: AbortSignal): Promise<T> {
      if (queued.size >= options.attest_queue_max) return Promise.reject(new QueueFull());
      return new Promise<T>((resolve, reject) => {
        const stop = new AbortController();
        const onCancel = () => {
          settle();
          stop.abort(cancel.reason);
          reject(cancel.reason);
        };
        const settle = () => {
          cancel.removeEventListener('abort', onCancel);
          queued.delete(job);
        };
        const job: Job = {
          signal: stop.signal,
          work: async () => {
            try {
              const result = await work(stop.signal);
              settle();
              resolve(result);
            } catch (error) {
              settle();
              reject(error);
            }
          },
        };
        if (cancel.aborted) return onCancel();
        cancel.addEventListener('abort', onCancel);
        queued.add(job);
        void next();
      });
    },
  };
}

interface SchedulerOptions {
  readonly attest_queue_max: number;
  /** From each request's arrival to its result, also where it shares the attestation of another. */
  readonly attest_deadline_ms: number;
  /** Throws unless the attester's result holds. */
  readonly check: (collected: Collected, nonce: Nonce) => Promise<void>;
  readonly onUnavailable: (unavailable: Unavailable | null) => void;
  /** The wait before the second attempt; each next wait is twice as long. */
  readonly retry_ms?: number;
  readonly trial_every_ms?: number;
}

/** The request's deadline has passed. */
export class DeadlineExceeded extends Error {
  override readonly name = 'DeadlineExceeded';
}

/** The attester's result, checked, and how long each phase took. */
export interface Timed extends Collected {
  readonly phases: Phases;
}

export interface Scheduler {
  readonly waiting: number;
  readonly running: number;
  readonly unavailable: Unavailable | null;
  /** @throws {AttesterError} {QueueFull} {DeadlineExceeded}; whatever `cancel` was aborted with. */
  attest(nonce: Nonce, cancel: AbortSignal): Promise<Timed>;
  /** The attester failed before the first request: opens the circuit, and trials begin. */
  failed(error: AttesterError): void;
  close(): void;
}

interface InFlight {
  readonly begun_ms: number;
  readonly result: Promise<Timed>;
  readonly abort: AbortController;
  requests: number;
}

export function createScheduler(attester: Attester, options: SchedulerOptions): Scheduler {
  const { attest_deadline_ms, retry_ms = ATTESTATION_RETRY.first_ms, trial_every_ms = TRIAL_EVERY_MS } = options;
  const queue = createQueue({
    ...options,
    onStuck: () => circuit.open(stuck()),
  });
  const inFlight = new Map<Nonce, InFlight>();
  /** When the last attestation succeeded. */
  let attested_ms = 0;
  const circuit = createCircuitBreaker({ trial, trial_every_ms, onChange: options.onUnavailable });

  async function trial(): Promise<void> {
    const nonce = randomBytes(32).toString('hex') as Nonce;
    await attestOnce(nonce, new AbortController().signal, 1);
  }

  function enqueue(nonce: Nonce, cancel: AbortSignal, attempts: number): Promise<Timed> {
    const queued_ms = performance.now();
    return queue.run((signal) => collect(nonce, signal, queued_ms, attempts), cancel);
  }

  async function collect(nonce: Nonce, signal: AbortSignal, queued_ms: number, attempts: number): Promise<Timed> {
    const queue_ms = performance.now() - queued_ms;
    let last: AttesterError | null = null;
    const attempt = async (): Promise<Timed> => {
      try {
        return await attestAndCheck(nonce, signal, queue_ms);
      } catch (error) {
        if (signal.reason instanceof DeadlineExceeded && attested_ms < queued_ms) circuit.timedOut(last);
        throw error;
      }
    };
    const isRetryable = (error: unknown): boolean => {
      if (!(error instanceof AttesterError && error.retryable)) return false;
      last = error;
      // A service said when: the gateway is told, and retries then.
      return error.retry_after_ms === null;
    };
    try {
      return await withRetries(attempt, { attempts, first_ms: retry_ms, isRetryable, signal });
    } catch (error) {
      if (!signal.aborted && error instanceof AttesterError) circuit.failed(error);
      throw error;
    }
  }

  async function attestAndCheck(nonce: Nonce, signal: AbortSignal, queue_ms: number): Promise<Timed> {
    const begun_ms = performance.now();
    const collected = await attester.attest(nonce, signal);
    const brought_ms = performance.now();
    await options.check(collected, nonce);
    attested_ms = performance.now();
    circuit.succeeded();
    const { appraisal_ms = 0 } = collected;
    const collection_ms = Math.max(0, brought_ms - begun_ms - appraisal_ms);
    const check_ms = performance.now() - brought_ms;
    return { ...collected, phases: { queue_ms, collection_ms, appraisal_ms, check_ms } };
  }

  function shareOrBegin(nonce: Nonce, attempts: number): InFlight {
    const under_way = inFlight.get(nonce);
    const begun_ms = performance.now();
    // An attestation that accepted requests without end could hold the GPU without end.
    if (under_way !== undefined && begun_ms - under_way.begun_ms < attest_deadline_ms) return under_way;
    const abort = new AbortController();
    const result = enqueue(nonce, abort.signal, attempts);
    const shared: InFlight = { begun_ms, result, abort, requests: 0 };
    inFlight.set(nonce, shared);
    // Each waiting request gets the error. Where none waits any more, it is not an unhandled rejection.
    result.catch(() => {}).finally(() => inFlight.get(nonce) === shared && inFlight.delete(nonce));
    return shared;
  }

  /** Each request has its own deadline. The attestation is aborted when its last request has gone. */
  function attestOnce(nonce: Nonce, cancel: AbortSignal, attempts: number): Promise<Timed> {
    const shared = shareOrBegin(nonce, attempts);
    shared.requests++;
    return new Promise<Timed>((resolve, reject) => {
      const leave = (reason: unknown) => {
        settle();
        reject(reason);
        if (--shared.requests > 0) return;
        if (inFlight.get(nonce) === shared) inFlight.delete(nonce);
        shared.abort.abort(reason);
      };
      const deadline = setTimeout(() => leave(new DeadlineExceeded('not done in time')), attest_deadline_ms);
      const onCancel = () => leave(cancel.reason);
      const settle = () => {
        clearTimeout(deadline);
        cancel.removeEventListener('abort', onCancel);
      };
      cancel.addEventListener('abort', onCancel);
      shared.result.then(resolve, reject).finally(settle);
    });
  }

  return {
    get waiting() {
      return queue.waiting;
    },
    get running() {
      return queue.running;
    },
    get unavailable() {
      return circuit.unavailable;
    },
    attest(nonce, cancel) {
      if (cancel.aborted) return Promise.reject(cancel.reason);
      const { unavailable } = circuit;
      if (unavailable !== null) return Promise.reject(new AttesterError(unavailable.code, unavailable.message, false));
      return attestOnce(nonce, cancel, ATTESTATION_RETRY.attempts);
    },
    failed: (error) => circuit.open(error),
    close: () => circuit.close(),
  };
}
