// Schedules attestations: requests for the same raw share one attestation in flight, requests that allow it share one in a batch. A queue
// leads to the attester, failures that may pass are retried, and a circuit breaker keeps requests from an attester that cannot attest.
import { randomBytes } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { type Batch, MAX_LEAVES } from '../../proto/batch.ts';
import type { BatchGroup, Phases } from '../../proto/frames.ts';
import type { Nonce } from '../../proto/raw.ts';
import { type Attester, AttesterError, type Collected } from '../common/attester.ts';
import { ATTESTATION_RETRY, TRIAL_EVERY_MS, withRetries } from '../common/retry.ts';
import { createCircuitBreaker, stuck, type Unavailable } from './circuit-breaker.ts';
import { createQueue, QueueFull } from './queue.ts';
import { type Leaf, makeLeaf, makeTree } from './tree.ts';

/** Answers that may wait in batches, of all gateways together: a few collections' worth. */
const MAX_WAITING_LEAVES = 4 * MAX_LEAVES;

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
  /** What the devices signed. */
  readonly nonce: Nonce;
  readonly phases: Phases;
}

/** The same for one answer of a batch. Token and evidence are the same objects for all of its answers. */
export interface TimedLeaf extends Timed {
  readonly batch: Batch;
}

export interface Scheduler {
  readonly waiting: number;
  readonly running: number;
  readonly unavailable: Unavailable | null;
  /** @throws {AttesterError} {QueueFull} {DeadlineExceeded}; whatever `cancel` was aborted with. */
  attest(nonce: Nonce, cancel: AbortSignal): Promise<Timed>;
  /**
   * The same for an answer that may share its nonce with those of its group that wait with it.
   * @param raw the SHA-256 of raw, in hex.
   */
  attestInBatch(raw: Nonce, group: BatchGroup, cancel: AbortSignal): Promise<TimedLeaf>;
  /** The attester failed before the first request: opens the circuit, and trials begin. */
  failed(error: AttesterError): void;
  close(): void;
}

/** An attestation that several requests wait for. */
interface InFlight<T> {
  readonly begun_ms: number;
  readonly result: Promise<T>;
  readonly abort: AbortController;
  requests: number;
}

interface WaitingLeaf extends Leaf {
  readonly joined_ms: number;
}

interface ClosedBatch {
  readonly begun_ms: number;
  readonly timed: Timed;
  readonly proofs: ReadonlyMap<WaitingLeaf, Batch>;
}

/** It takes answers until the GPU is free for it. */
interface OpenBatch extends InFlight<ClosedBatch> {
  readonly leaves: Set<WaitingLeaf>;
}

export function createScheduler(attester: Attester, options: SchedulerOptions): Scheduler {
  const { attest_deadline_ms, retry_ms = ATTESTATION_RETRY.first_ms, trial_every_ms = TRIAL_EVERY_MS } = options;
  const queue = createQueue({
    ...options,
    onStuck: () => circuit.open(stuck()),
  });
  const inFlight = new Map<Nonce, InFlight<Timed>>();
  const openBatches = new Map<BatchGroup, OpenBatch>();
  let waiting_leaves = 0;
  /** When the last attestation succeeded. */
  let attested_ms = 0;
  const circuit = createCircuitBreaker({ trial, trial_every_ms, onChange: options.onUnavailable });

  async function trial(): Promise<void> {
    const nonce = randomBytes(32).toString('hex') as Nonce;
    await attestOnce(nonce, new AbortController().signal, 1);
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
    return { ...collected, nonce, phases: { queue_ms, collection_ms, appraisal_ms, check_ms } };
  }

  function shareOrBegin(nonce: Nonce, attempts: number): InFlight<Timed> {
    const under_way = inFlight.get(nonce);
    const begun_ms = performance.now();
    // An attestation that accepted requests without end could hold the GPU without end.
    if (under_way !== undefined && begun_ms - under_way.begun_ms < attest_deadline_ms) return under_way;
    const abort = new AbortController();
    const result = queue.run((signal) => collect(nonce, signal, begun_ms, attempts), abort.signal);
    const shared: InFlight<Timed> = { begun_ms, result, abort, requests: 0 };
    inFlight.set(nonce, shared);
    // Each waiting request gets the error. Where none waits any more, it is not an unhandled rejection.
    result.catch(() => {}).finally(() => inFlight.get(nonce) === shared && inFlight.delete(nonce));
    return shared;
  }

  /** Each request has its own deadline. The attestation is aborted when its last request has gone. */
  function wait<T>(shared: InFlight<T>, cancel: AbortSignal, onLeave: () => void): Promise<T> {
    shared.requests++;
    return new Promise<T>((resolve, reject) => {
      const leave = (reason: unknown) => {
        settle();
        reject(reason);
        onLeave();
        if (--shared.requests === 0) shared.abort.abort(reason);
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

  function attestOnce(nonce: Nonce, cancel: AbortSignal, attempts: number): Promise<Timed> {
    const shared = shareOrBegin(nonce, attempts);
    return wait(shared, cancel, () => {
      if (shared.requests === 1 && inFlight.get(nonce) === shared) inFlight.delete(nonce);
    });
  }

  function openBatch(group: BatchGroup): OpenBatch {
    const begun_ms = performance.now();
    const leaves = new Set<WaitingLeaf>();
    const abort = new AbortController();
    const close = () => {
      if (openBatches.get(group) === batch) openBatches.delete(group);
    };
    const result = queue.run(async (signal): Promise<ClosedBatch> => {
      // The answers that came in the same turn of the event loop belong to it; nothing waits longer for others.
      await setImmediate();
      close();
      signal.throwIfAborted();
      const started_ms = performance.now();
      // From here on a leaf that goes keeps its place in the tree. Its salt is dropped, so that nobody can open it.
      const { nonce, proofs } = makeTree(leaves);
      waiting_leaves -= leaves.size;
      leaves.clear();
      return {
        begun_ms: started_ms,
        timed: await collect(nonce, signal, begun_ms, ATTESTATION_RETRY.attempts),
        proofs,
      };
    }, abort.signal);
    const batch: OpenBatch = { begun_ms, leaves, result, abort, requests: 0 };
    openBatches.set(group, batch);
    result
      .catch(() => {})
      .finally(() => {
        close();
        waiting_leaves -= leaves.size;
        leaves.clear();
      });
    return batch;
  }

  /** A batch waits in the queue from its first answer on, like any other attestation: the oldest goes first. */
  async function attestLeaf(raw: Nonce, group: BatchGroup, cancel: AbortSignal): Promise<TimedLeaf> {
    if (waiting_leaves >= MAX_WAITING_LEAVES) throw new QueueFull();
    const open = openBatches.get(group);
    const batch = open !== undefined && open.leaves.size < MAX_LEAVES ? open : openBatch(group);
    const leaf: WaitingLeaf = { ...makeLeaf(raw), joined_ms: performance.now() };
    batch.leaves.add(leaf);
    waiting_leaves++;
    const { timed, proofs, begun_ms } = await wait(batch, cancel, () => {
      if (batch.leaves.delete(leaf)) waiting_leaves--;
    });
    const phases = { ...timed.phases, queue_ms: Math.max(0, begun_ms - leaf.joined_ms) };
    return { ...timed, phases, batch: proofs.get(leaf) as Batch };
  }

  /** @throws {AttesterError} where nothing can be attested now. */
  function refuseUnavailable(cancel: AbortSignal): void {
    cancel.throwIfAborted();
    const { unavailable } = circuit;
    if (unavailable !== null) throw new AttesterError(unavailable.code, unavailable.message, false);
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
    async attest(nonce, cancel) {
      refuseUnavailable(cancel);
      return attestOnce(nonce, cancel, ATTESTATION_RETRY.attempts);
    },
    async attestInBatch(raw, group, cancel) {
      refuseUnavailable(cancel);
      return attestLeaf(raw, group, cancel);
    },
    failed: (error) => circuit.open(error),
    close: () => circuit.close(),
  };
}
