// Schedules attestations: requests for the same raw share one in-flight attestation, requests that allow it share one in a batch. They
// queue for the attester, retryable failures are retried, and a circuit breaker refuses requests while the attester cannot attest.
import { randomBytes } from 'node:crypto';
import type { BatchGroup } from '../../proto/attestation/frames.ts';
import type { Nonce } from '../../proto/attestation/raw.ts';
import { type Attester, AttesterError, type Collected } from '../common/attester.ts';
import { withDeadline } from '../common/lock.ts';
import { ATTESTATION_RETRY, TRIAL_EVERY_MS, withRetries } from '../common/retry.ts';
import { createBatches, type Timed, type TimedLeaf } from './batches.ts';
import { type CircuitBreaker, createCircuitBreaker, stuck, type Unavailable } from './circuit-breaker.ts';
import { createQueue, DeadlineExceeded, deadlineExceeded } from './queue.ts';

interface SchedulerOptions {
  readonly attest_queue_max: number;
  /**
   * `any`: one device signs each nonce, and several devices are asked at once; `all` by default. NVIDIA's driver makes one report at a
   * time in a guest (it holds the locks of its API and of all GPUs), so their times add up. Not measured on silicon.
   */
  readonly signers?: 'all' | 'any';
  /** From each request's arrival to its result, also where it shares the attestation of another. */
  readonly attest_deadline_ms: number;
  /** Throws unless the attester's result is valid. */
  readonly check: (collected: Collected, nonce: Nonce, device: number | undefined) => Promise<void>;
  readonly onUnavailable: (unavailable: Unavailable | null) => void;
  /** The wait before the second attempt; each next wait is twice as long. */
  readonly retry_ms?: number;
  readonly trial_every_ms?: number;
}

export interface Scheduler {
  /** How many nonces may be signed at once. */
  readonly signers: number;
  readonly waiting: number;
  readonly running: number;
  readonly unavailable: Unavailable | null;
  /** @throws {AttesterError} {QueueFull} {DeadlineExceeded}; whatever `cancel` was aborted with. */
  attest(nonce: Nonce, cancel: AbortSignal): Promise<Timed>;
  /** The same, signed by every device even where `signers` is `any`. */
  attestByAll(nonce: Nonce, cancel: AbortSignal): Promise<Timed>;
  /**
   * The same for a request that may share its nonce with waiting requests of its group.
   * @param digest the SHA-256 of raw, in hex.
   */
  attestInBatch(digest: Nonce, group: BatchGroup, cancel: AbortSignal): Promise<TimedLeaf>;
  /** The attester failed before the first request: opens the circuit, and trials begin. */
  failed(error: AttesterError): void;
  close(): void;
}

/** An attestation that several requests wait for. */
interface InFlight {
  readonly begun_ms: number;
  readonly result: Promise<Timed>;
  readonly abort: AbortController;
  requests: number;
}

export function createScheduler(attester: Attester, options: SchedulerOptions): Scheduler {
  const { attest_deadline_ms, trial_every_ms = TRIAL_EVERY_MS } = options;
  const any = options.signers === 'any';
  const signers = () => (any ? Math.max(1, attester.devices.length) : 1);
  const queue = createQueue({
    ...options,
    signers,
    onStuck: () => circuit.open(stuck()),
  });
  const inFlight = new Map<Nonce, InFlight>();
  const circuit = createCircuitBreaker({ trial, trial_every_ms, onChange: options.onUnavailable });
  const collect = createCollect(attester, options, circuit);

  /** The only device that shall sign; undefined: all of them. */
  const deviceOf = (signer: number) => (any ? signer : undefined);

  const batches = createBatches({
    deadline_ms: attest_deadline_ms,
    run: (work, cancel) =>
      queue.run(
        (signal, signer) =>
          work(signal, (nonce, queued_ms) =>
            collect(nonce, signal, deviceOf(signer), queued_ms, ATTESTATION_RETRY.attempts),
          ),
        cancel,
      ),
  });

  async function trial(): Promise<void> {
    const nonce = randomBytes(32).toString('hex') as Nonce;
    await attestOnce(nonce, new AbortController().signal, 1);
  }

  function shareOrBegin(nonce: Nonce, attempts: number, byAll: boolean): InFlight {
    const existing = inFlight.get(nonce);
    const begun_ms = performance.now();
    // An attestation that new requests could always join could hold the GPU without end.
    if (existing !== undefined && begun_ms - existing.begun_ms < attest_deadline_ms) return existing;
    const abort = new AbortController();
    const result = queue.run(
      (signal, signer) => collect(nonce, signal, byAll ? undefined : deviceOf(signer), begun_ms, attempts),
      abort.signal,
    );
    const shared: InFlight = { begun_ms, result, abort, requests: 0 };
    inFlight.set(nonce, shared);
    // Each waiting request gets the error. With none waiting, it must not be an unhandled rejection.
    result.catch(() => {}).finally(() => inFlight.get(nonce) === shared && inFlight.delete(nonce));
    return shared;
  }

  /** Each request has its own deadline. The attestation is aborted when no request waits for it any more. */
  function attestOnce(nonce: Nonce, cancel: AbortSignal, attempts: number, byAll = false): Promise<Timed> {
    const shared = shareOrBegin(nonce, attempts, byAll);
    shared.requests++;
    return withDeadline(shared.result, attest_deadline_ms, deadlineExceeded, cancel, (reason) => {
      if (--shared.requests > 0) return;
      if (inFlight.get(nonce) === shared) inFlight.delete(nonce);
      shared.abort.abort(reason);
    });
  }

  /** @throws {AttesterError} where nothing can be attested now. */
  function refuseUnavailable(cancel: AbortSignal): void {
    cancel.throwIfAborted();
    const { unavailable } = circuit;
    if (unavailable !== null) throw new AttesterError(unavailable.code, unavailable.message, false);
  }

  return {
    get signers() {
      return signers();
    },
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
    async attestByAll(nonce, cancel) {
      refuseUnavailable(cancel);
      return attestOnce(nonce, cancel, ATTESTATION_RETRY.attempts, true);
    },
    async attestInBatch(digest, group, cancel) {
      refuseUnavailable(cancel);
      return batches.attest(digest, group, cancel);
    },
    failed: (error) => circuit.open(error),
    close: () => circuit.close(),
  };
}

/** Has the attester attest, tries again, and tells the circuit how that went. */
function createCollect(attester: Attester, options: SchedulerOptions, circuit: CircuitBreaker) {
  const { check, retry_ms = ATTESTATION_RETRY.first_ms } = options;
  /** When the last attestation succeeded. */
  let attested_ms = 0;

  async function collect(
    nonce: Nonce,
    signal: AbortSignal,
    device: number | undefined,
    queued_ms: number,
    attempts: number,
  ): Promise<Timed> {
    const queue_ms = performance.now() - queued_ms;
    let last: AttesterError | null = null;
    const attempt = async (): Promise<Timed> => {
      try {
        return await attestAndCheck(nonce, signal, device, queue_ms);
      } catch (error) {
        if (signal.reason instanceof DeadlineExceeded && attested_ms < queued_ms) circuit.timedOut(last);
        throw error;
      }
    };
    const isRetryable = (error: unknown): boolean => {
      if (!(error instanceof AttesterError && error.retryable)) return false;
      last = error;
      // A service named a time (Retry-After): the gateway is told, and retries then.
      return error.retry_after_ms === null;
    };
    try {
      return await withRetries(attempt, { attempts, first_ms: retry_ms, isRetryable, signal });
    } catch (error) {
      if (!signal.aborted && error instanceof AttesterError) circuit.failed(error);
      throw error;
    }
  }

  async function attestAndCheck(
    nonce: Nonce,
    signal: AbortSignal,
    device: number | undefined,
    queue_ms: number,
  ): Promise<Timed> {
    const begun_ms = performance.now();
    const collected = await attester.attest(nonce, signal, device);
    const collected_ms = performance.now();
    await check(collected, nonce, device);
    attested_ms = performance.now();
    circuit.succeeded();
    const { appraisal_ms = 0 } = collected;
    const collection_ms = Math.max(0, collected_ms - begun_ms - appraisal_ms);
    const check_ms = performance.now() - collected_ms;
    return { ...collected, nonce, phases: { queue_ms, collection_ms, appraisal_ms, check_ms } };
  }

  return collect;
}
