// Carries one answer from the backend to the client: one of the deliveries writes it, the client's leaving cancels it.
import type { Engine, EngineRequest } from '../engine/engine.ts';
import { Problem } from '../problem.ts';
import { errorDelivery } from './error.ts';
import type { Delivery, Exchange, Flow, Head, Outcome } from './exchange.ts';

/** What a delivery is given beside the head. */
export interface Port extends Flow {
  /** What is to be done when the client leaves; at once if it has left. One at a time. */
  onLeft(left: () => void): void;
  /** The answer is out, or as much of it as there will be. */
  done(outcome: Outcome): void;
  /** Nothing was written yet: the problem becomes the answer. */
  refuse(problem: Problem): void;
}

export type Deliver = (head: Head, port: Port) => Delivery;

/** Resolves when the exchange is over, however it ended. @throws {Problem} while nothing has been written. */
export function relay(engine: Engine, request: EngineRequest, exchange: Exchange, deliver: Deliver): Promise<Outcome> {
  return new Promise((resolve, reject) => {
    const { outgoing, watch } = exchange;
    // Whoever left while the sidecar was waited for costs the backend nothing.
    if (outgoing.destroyed) return resolve({ status: 499 });
    let delivery: Delivery | null = null;
    let whenLeft: (() => void) | null = null;
    let left = false;
    let over = false;

    const onClose = () => {
      if (over) return;
      over = true;
      left = true;
      call.cancel();
      whenLeft?.();
      // 499 is nginx's word in a log for a client that closed its request; nobody receives it.
      resolve({ status: 499 });
    };
    const settle = (): boolean => {
      if (over) return false;
      over = true;
      outgoing.off('close', onClose);
      return true;
    };
    const port: Port = {
      pause: () => call.pause(),
      resume: () => call.resume(),
      cancel: () => call.cancel(),
      onLeft: (then) => {
        if (left) then();
        else whenLeft = then;
      },
      done: (outcome) => void (settle() && resolve(outcome)),
      refuse: (problem) => {
        call.cancel();
        if (settle()) reject(problem);
      },
    };

    watch.asks();
    const call = engine.call(request, {
      head(status, headers) {
        watch.head(status, headers['content-type']);
        const head = { status, headers };
        if (status >= 400) delivery = errorDelivery(head, port, exchange);
        else if (status >= 300)
          port.refuse(new Problem('backend_bad_response', 'The backend answered with a redirect.'));
        else delivery = deliver(head, port);
      },
      data(chunk) {
        watch.piece();
        delivery?.data(chunk);
      },
      end: () => delivery?.end(),
      fail: (problem) => (delivery === null ? port.refuse(problem) : delivery.fail(problem)),
    });
    outgoing.on('close', onClose);
  });
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
