// Carries one answer from the backend to the client: one of the deliveries writes it, the client's leaving cancels it.
import type { AnswerHead, Engine, EngineCall, EngineHandler, EngineRequest } from '../engine/engine.ts';
import { Problem } from '../problem.ts';
import { errorDelivery } from './error.ts';
import type { Delivery, Exchange, Flow, Outcome } from './exchange.ts';

/** What a delivery is given beside the head. */
export interface Port extends Flow {
  /** `left` is called when the client leaves, or at once if it has. A second call takes the place of the first. */
  onLeft(left: () => void): void;
  /** The answer is out, or as much of it as there will be. */
  done(outcome: Outcome): void;
  /** Nothing was written yet: the problem becomes the answer. */
  refuse(problem: Problem): void;
}

export type Deliver = (head: AnswerHead, port: Port) => Delivery;

/** Resolves when the exchange is over, however it ended. @throws {Problem} while nothing has been written. */
export function relay(engine: Engine, request: EngineRequest, exchange: Exchange, deliver: Deliver): Promise<Outcome> {
  // Whoever left while the sidecar was waited for costs the backend nothing.
  if (exchange.outgoing.destroyed) return Promise.resolve({ status: 499 });
  return new Promise((resolve, reject) => {
    const relayed = new Relay(exchange, deliver, resolve, reject);
    relayed.begin(engine, request);
  });
}

class Relay implements EngineHandler, Port {
  readonly #exchange: Exchange;
  readonly #deliver: Deliver;
  readonly #resolve: (outcome: Outcome) => void;
  readonly #reject: (problem: Problem) => void;
  #call: EngineCall | null = null;
  #delivery: Delivery | null = null;
  #whenLeft: (() => void) | null = null;
  #left = false;
  #over = false;

  constructor(
    exchange: Exchange,
    deliver: Deliver,
    resolve: (outcome: Outcome) => void,
    reject: (problem: Problem) => void,
  ) {
    this.#exchange = exchange;
    this.#deliver = deliver;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  begin(engine: Engine, request: EngineRequest): void {
    const { outgoing, watch } = this.#exchange;
    watch.asks();
    this.#call = engine.call(request, this);
    outgoing.on('close', this.#onClose);
  }

  head(head: AnswerHead): void {
    const { status, headers } = head;
    this.#exchange.watch.head(status, headers['content-type']);
    if (status >= 400) this.#delivery = errorDelivery(head, this, this.#exchange);
    else if (status >= 300) this.refuse(new Problem('backend_bad_response', 'The backend answered with a redirect.'));
    else this.#delivery = this.#deliver(head, this);
  }

  data(chunk: Buffer): void {
    this.#exchange.watch.piece();
    this.#delivery?.data(chunk);
  }

  end(): void {
    this.#delivery?.end();
  }

  fail(problem: Problem): void {
    if (this.#delivery === null) this.refuse(problem);
    else this.#delivery.fail(problem);
  }

  pause(): void {
    this.#call?.pause();
  }

  resume(): void {
    this.#call?.resume();
  }

  cancel(): void {
    this.#call?.cancel();
  }

  onLeft = (then: () => void): void => {
    if (this.#left) then();
    else this.#whenLeft = then;
  };

  done(outcome: Outcome): void {
    if (this.#settle()) this.#resolve(outcome);
  }

  refuse(problem: Problem): void {
    this.cancel();
    if (this.#settle()) this.#reject(problem);
  }

  #settle(): boolean {
    if (this.#over) return false;
    this.#over = true;
    this.#exchange.outgoing.off('close', this.#onClose);
    return true;
  }

  #onClose = (): void => {
    if (this.#over) return;
    this.#over = true;
    this.#left = true;
    this.cancel();
    this.#whenLeft?.();
    // 499 is nginx's word in a log for a client that closed its request; nobody receives it.
    this.#resolve({ status: 499 });
  };
}

/** A writer that stops the backend while the client cannot take more. */
export function flowingWriter(exchange: Exchange, flow: Flow): (bytes: Uint8Array) => void {
  const { outgoing } = exchange;
  let waiting = false;
  const onDrain = () => {
    waiting = false;
    flow.resume();
  };
  return (bytes) => {
    if (outgoing.write(bytes) || waiting || outgoing.destroyed) return;
    waiting = true;
    flow.pause();
    outgoing.once('drain', onDrain);
  };
}
