// The circuit breaker: opens for a failure that does not pass by itself (CC mode off, driver gone), reports the reason, and makes trials.
// Where confidential computing is lost it stays open, without trials: only a restart of the guest brings it back.
import { MAX_UNAVAILABLE_MESSAGE } from '../../proto/attestation/frames.ts';
import { type AttesterError, failed } from '../common/attester.ts';

/** The reason why nothing can be attested now, for operators and clients; it holds no content. */
export interface Unavailable {
  readonly code: AttesterError['code'];
  readonly message: string;
}

interface CircuitBreakerOptions {
  /** One attestation over a nonce of our own, to learn whether the attester can attest again. @throws {AttesterError} */
  readonly trial: () => Promise<void>;
  /** The time between trials while the circuit is open. */
  readonly trial_every_ms: number;
  readonly onChange: (unavailable: Unavailable | null) => void;
}

export interface CircuitBreaker {
  readonly unavailable: Unavailable | null;
  succeeded(): void;
  failed(error: AttesterError): void;
  /** A request reached its deadline without an attestation. `last`: the failure of its last attempt. */
  timedOut(last: AttesterError | null): void;
  /** Opens the circuit whether the failure is retryable or not. */
  open(error: AttesterError): void;
  close(): void;
}

/** Consecutive failures that open the circuit; fewer may be chance. */
const FAILURES_TO_OPEN = 3;

export const stuck = () => failed('collection_failed', 'attester_stuck', 'the attester does not answer', 'stop');

export function createCircuitBreaker(options: CircuitBreakerOptions): CircuitBreaker {
  let unavailable: Unavailable | null = null;
  /** The kind of the failure that opened the circuit. */
  let kind: string | null = null;
  let appraisals = 0;
  let timeouts = 0;
  let timer: NodeJS.Timeout | null = null;
  let closed = false;

  const isLost = () => unavailable?.code === 'cc_lost';

  function setState(next: Unavailable | null, next_kind: string | null): void {
    if (isLost()) return;
    const isChanged = next_kind !== kind;
    unavailable = next;
    kind = next_kind;
    if (!isChanged) return;
    options.onChange(next);
    if (next !== null) schedule();
  }

  function open(error: AttesterError): void {
    setState({ code: error.code, message: error.message.slice(0, MAX_UNAVAILABLE_MESSAGE) }, error.kind);
  }

  function schedule(): void {
    if (timer !== null || closed || isLost()) return;
    timer = setTimeout(() => {
      timer = null;
      // A failed trial reports itself to the circuit. The next one is scheduled here.
      void options
        .trial()
        .catch(() => {})
        .finally(() => unavailable !== null && schedule());
    }, options.trial_every_ms);
    timer.unref();
  }

  return {
    get unavailable() {
      return unavailable;
    },
    succeeded() {
      appraisals = 0;
      timeouts = 0;
      setState(null, null);
    },
    failed(error) {
      if (error.retryable) return;
      if (error.code === 'appraisal_failed' && ++appraisals < FAILURES_TO_OPEN) return;
      open(error);
    },
    timedOut(last) {
      if (++timeouts >= FAILURES_TO_OPEN && unavailable === null) open(last ?? stuck());
    },
    open,
    close() {
      closed = true;
      clearTimeout(timer ?? undefined);
    },
  };
}
