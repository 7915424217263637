// What stands between requests and the attester: one flight for the same raw, the queue, another try where that helps, the circuit.
import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { Phases } from '../proto/frames.ts';
import type { Nonce } from '../proto/raw.ts';
import { type Attester, AttesterError, type Collected } from './attester.ts';
import { createCircuit, noAnswer, type Trouble } from './circuit.ts';
import { createQueue } from './queue.ts';

export interface SchedulerOptions {
  readonly attest_queue_max: number;
  /** From each request's arrival to its answer, also where it joins what another asked for. */
  readonly attest_deadline_ms: number;
  /** Refuses what the attester brought unless it holds. */
  readonly check: (collected: Collected, nonce: Nonce) => Promise<void>;
  readonly onTrouble: (trouble: Trouble | null) => void;
  /** First wait before another try; each next one is twice as long. */
  readonly retry_ms?: number;
  readonly trial_every_ms?: number;
}

/** The request was not answered in time. */
export class DeadlineExceeded extends Error {
  override readonly name = 'DeadlineExceeded';
}

/** What the attester brought, checked, and where the time went. */
export interface Timed extends Collected {
  readonly phases: Phases;
}

export interface Scheduler {
  readonly waiting: number;
  readonly running: number;
  readonly trouble: Trouble | null;
  /** @throws {AttesterError} {QueueFull} {DeadlineExceeded}; whatever `cancel` was aborted with. */
  attest(nonce: Nonce, cancel: AbortSignal): Promise<Timed>;
  /** The attester failed before anybody asked: the circuit opens, and trials begin. */
  failed(error: AttesterError): void;
  close(): void;
}

const TRIES = 3;
const RETRY_MS = 100;
const TRIAL_EVERY_MS = 10_000;

interface Flight {
  readonly begun_ms: number;
  readonly result: Promise<Timed>;
  readonly abort: AbortController;
  passengers: number;
}

export function createScheduler(attester: Attester, options: SchedulerOptions): Scheduler {
  const { attest_deadline_ms, retry_ms = RETRY_MS, trial_every_ms = TRIAL_EVERY_MS } = options;
  const queue = createQueue({
    ...options,
    onStuck: () => circuit.open(noAnswer()),
  });
  const flights = new Map<Nonce, Flight>();
  /** When something was attested last. */
  let attested_ms = 0;
  const circuit = createCircuit({ trial, trial_every_ms, onChange: options.onTrouble });

  async function trial(): Promise<void> {
    const nonce = randomBytes(32).toString('hex') as Nonce;
    await ride(nonce, new AbortController().signal);
  }

  function enqueue(nonce: Nonce, cancel: AbortSignal): Promise<Timed> {
    const queued_ms = performance.now();
    return queue.run((signal) => collect(nonce, signal, queued_ms), cancel);
  }

  async function collect(nonce: Nonce, signal: AbortSignal, queued_ms: number): Promise<Timed> {
    const queue_ms = performance.now() - queued_ms;
    let why: AttesterError | null = null;
    for (let attempt = 1; ; attempt++) {
      try {
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
      } catch (error) {
        if (signal.reason instanceof DeadlineExceeded && attested_ms < queued_ms) circuit.late(why);
        if (signal.aborted || !(error instanceof AttesterError)) throw error;
        if (!error.retryable || attempt === TRIES) {
          circuit.failed(error);
          throw error;
        }
        why = error;
        await delay(retry_ms * 2 ** (attempt - 1), undefined, { signal });
      }
    }
  }

  function board(nonce: Nonce): Flight {
    const under_way = flights.get(nonce);
    const begun_ms = performance.now();
    // One that took passengers for ever could hold the GPU for ever.
    if (under_way !== undefined && begun_ms - under_way.begun_ms < attest_deadline_ms) return under_way;
    const abort = new AbortController();
    const result = enqueue(nonce, abort.signal);
    const flight: Flight = { begun_ms, result, abort, passengers: 0 };
    flights.set(nonce, flight);
    // Whoever waits gets the error; that nobody may be left to wait is no error of its own.
    result.catch(() => {}).finally(() => flights.get(nonce) === flight && flights.delete(nonce));
    return flight;
  }

  /** Each passenger has a deadline of their own. The flight ends when the last has left it. */
  function ride(nonce: Nonce, cancel: AbortSignal): Promise<Timed> {
    const flight = board(nonce);
    flight.passengers++;
    return new Promise<Timed>((resolve, reject) => {
      const leave = (reason: unknown) => {
        landed();
        reject(reason);
        if (--flight.passengers > 0) return;
        if (flights.get(nonce) === flight) flights.delete(nonce);
        flight.abort.abort(reason);
      };
      const late = setTimeout(() => leave(new DeadlineExceeded('not done in time')), attest_deadline_ms);
      const onCancel = () => leave(cancel.reason);
      const landed = () => {
        clearTimeout(late);
        cancel.removeEventListener('abort', onCancel);
      };
      cancel.addEventListener('abort', onCancel);
      flight.result.then(resolve, reject).finally(landed);
    });
  }

  return {
    get waiting() {
      return queue.waiting;
    },
    get running() {
      return queue.running;
    },
    get trouble() {
      return circuit.trouble;
    },
    attest(nonce, cancel) {
      if (cancel.aborted) return Promise.reject(cancel.reason);
      const { trouble } = circuit;
      if (trouble !== null) return Promise.reject(new AttesterError(trouble.code, trouble.message, false));
      return ride(nonce, cancel);
    },
    failed: (error) => circuit.open(error),
    close: () => circuit.close(),
  };
}
