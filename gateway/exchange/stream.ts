// Delivers a stream with its attestation: deltas at once, the chunk with the finish reason only when the response is attested. Without an
// attestation it is never sent.
import { SseError } from '../../proto/stream/sse.ts';
import type { Attestor } from '../attestation/interfaces.ts';
import type { ResponseHead } from '../backend/backend.ts';
import { asProblem, Problem } from '../base/problem.ts';
import { answerTooLarge, type Folded } from '../threads/jobs.ts';
import { NamedRecorder } from './named-recorder.ts';
import { type Observed, Recorder, type StreamRecorder } from './recorder.ts';
import { backpressureWriter, type Delivery, headersOf, type Port, type TeeExchange } from './relay.ts';

const KEEPALIVE_MS = 5_000;
/** How long the backend may keep its stream open after the response is complete. */
const AFTER_DONE_MS = 1_000;

/** Some backends name another id in each event. */
const MAX_IDS = 16;

/** Replaces the backend's content-type, because another charset would give the same bytes another meaning. */
const STREAM_TYPE = 'text/event-stream; charset=utf-8';

interface Held<E> {
  readonly event: E;
  readonly finish: boolean;
}

export function streamDelivery(
  head: ResponseHead,
  port: Port,
  exchange: TeeExchange,
  attestor: Attestor,
  max_answer_bytes: number,
): Delivery {
  const { streamForm, choices } = exchange;
  if (streamForm === null)
    throw new Problem('backend_bad_response', 'The backend streams where no stream can be attested.');
  const deliver = <E>(recorder: StreamRecorder<E>) =>
    new StreamDelivery(recorder, head, port, exchange, attestor, max_answer_bytes);
  return streamForm === 'completion'
    ? deliver(new Recorder(max_answer_bytes, choices))
    : deliver(new NamedRecorder(streamForm, max_answer_bytes));
}

/** Sends only events that were hashed, in the form in which the gateway writes them, and comments of its own. */
class StreamDelivery<E> implements Delivery {
  readonly #recorder: StreamRecorder<E>;
  readonly #status: number;
  readonly #port: Port;
  readonly #exchange: TeeExchange;
  readonly #attestor: Attestor;
  readonly #max_answer_bytes: number;
  readonly #write: (bytes: Uint8Array) => void;
  /** The event with the finish reason and the events after it, in order. Empty until such an event arrives. */
  #held: Held<E>[] = [];
  #ended = false;
  /** The first ids that the response had. The attestation is found under them, under its last one, and under the gateway's own. */
  readonly #ids = new Set<string>();
  #comments = 0;
  #drainTimer: NodeJS.Timeout | null = null;

  constructor(
    recorder: StreamRecorder<E>,
    head: ResponseHead,
    port: Port,
    exchange: TeeExchange,
    attestor: Attestor,
    max_answer_bytes: number,
  ) {
    this.#recorder = recorder;
    this.#status = head.status;
    this.#port = port;
    this.#exchange = exchange;
    this.#attestor = attestor;
    this.#max_answer_bytes = max_answer_bytes;
    this.#write = backpressureWriter(exchange, port);
    exchange.outgoing.writeHead(head.status, { ...headersOf(head, true), 'content-type': STREAM_TYPE });
    exchange.outgoing.flushHeaders();
  }

  data(chunk: Buffer): void {
    this.#guarded(() => this.#takeChunk(chunk));
  }

  end(): void {
    clearTimeout(this.#drainTimer ?? undefined);
    this.#guarded(() => {
      const last = this.#recorder.reader.end();
      if (last !== null) this.#handleEvents([last]);
      if (!this.#ended) this.#finish(false);
    });
  }

  fail(problem: Problem): void {
    clearTimeout(this.#drainTimer ?? undefined);
    this.#guarded(() => this.#endWithError(problem));
  }

  #forward(events: readonly E[]): void {
    if (events.length > 0) this.#write(this.#recorder.write(events));
  }

  #takeChunk(chunk: Buffer): void {
    this.#exchange.hold(chunk);
    const events: E[] = [];
    try {
      this.#recorder.reader.push(chunk, events);
    } finally {
      // The events before an invalid line are still delivered.
      this.#handleEvents(events);
    }
    if (this.#recorder.reader.comments > this.#comments && !this.#ended) this.#write(WAITING);
    this.#comments = this.#recorder.reader.comments;
  }

  #handleEvents(events: readonly E[]): void {
    let ready: E[] = [];
    for (const event of events) {
      const observed = this.#observe(event, ready);
      if (observed.kind === 'done' || observed.kind === 'error') {
        this.#forward(ready);
        return observed.kind === 'done'
          ? this.#finish(true)
          : this.#endWithError(
              new Problem('backend_bad_response', 'The backend sent an error in its stream.'),
              observed.event,
            );
      }
      // Another choice goes on, so the held chunk was not the last one with a finish reason.
      if (observed.live && this.#held.length > 0 && this.#recorder.mayRelease(observed.kind === 'finish')) {
        this.#forward(ready);
        this.#forward(this.#held.map((one) => one.event));
        ready = [];
        this.#held = [];
      }
      if (this.#held.length === 0 && observed.kind !== 'finish') {
        ready.push(event);
        continue;
      }
      this.#forward(ready);
      ready = [];
      this.#held.push({ event, finish: observed.kind === 'finish' });
    }
    this.#forward(ready);
    // Until the backend ends its stream, or this time is over, an invalid event still fails the response.
    if (this.#recorder.complete)
      this.#drainTimer ??= setTimeout(
        () => !this.#exchange.outgoing.destroyed && this.#guarded(() => this.#finish(true)),
        AFTER_DONE_MS,
      );
  }

  /** Observes an event. When it is invalid, the events before it are still sent. */
  #observe(event: E, ready: readonly E[]): Observed {
    try {
      const observed = this.#recorder.observe(event);
      const { completionId } = this.#recorder;
      if (completionId !== null && this.#ids.size < MAX_IDS && !this.#ids.has(completionId)) {
        this.#ids.add(completionId);
        this.#attestor.name(this.#exchange, completionId);
      }
      return observed;
    } catch (error) {
      this.#forward(ready);
      throw error;
    }
  }

  /** `open`: the backend's stream may still be open. */
  #finish(open: boolean): void {
    const folded = this.#recorder.finish();
    this.#ended = true;
    clearTimeout(this.#drainTimer ?? undefined);
    // The backend should end its response after the last event. If it does not in time, its connection is closed.
    if (open) this.#drainTimer = setTimeout(() => this.#port.cancel(), AFTER_DONE_MS);
    void this.#sendAttested(folded).catch((error) => {
      if (!this.#exchange.outgoing.destroyed) this.#endWithError(asProblem(error));
    });
  }

  async #sendAttested(folded: Folded): Promise<void> {
    const keepalive = setInterval(() => this.#exchange.outgoing.write(ATTESTING), KEEPALIVE_MS);
    try {
      const { json } = await this.#attestor.attest(this.#exchange, folded, this.#port.onDisconnect);
      const last = this.#held.findLastIndex((one) => one.finish);
      for (const [i, { event }] of this.#held.entries()) {
        const attested = i === last && this.#exchange.spliced;
        for (const part of attested ? this.#recorder.withAttestation(event, json) : [this.#recorder.write([event])])
          this.#exchange.outgoing.write(part);
      }
      this.#exchange.outgoing.end(this.#recorder.last);
      this.#port.done({ status: this.#status, tee: 'attested' });
    } finally {
      clearInterval(keepalive);
    }
  }

  /** Ends the stream with an error event in place of the finish chunk: `problem`, or the backend's own error. */
  #endWithError(problem: Problem, event = this.#recorder.errorEvent(problem)): void {
    this.#ended = true;
    clearTimeout(this.#drainTimer ?? undefined);
    this.#port.cancel();
    this.#exchange.outgoing.end(event);
    this.#port.done({ status: this.#status, tee: 'failed', problem });
  }

  #problemOf(error: unknown): Problem {
    if (!(error instanceof SseError)) return asProblem(error);
    if (error.reason === 'too_large') return answerTooLarge(this.#max_answer_bytes);
    return new Problem('backend_bad_response', `The backend broke its stream: ${error.message}.`);
  }

  #guarded(step: () => void): void {
    if (this.#ended) return;
    try {
      step();
    } catch (error) {
      // The stream may already have ended, for instance with a backend's error, before this error occurred.
      if (this.#ended) return;
      this.#endWithError(this.#problemOf(error));
    }
  }
}

// The gateway's own comments.

/** A comment that keeps the connection alive. Clients ignore it. */
const ATTESTING = Buffer.from(': attesting\n\n');
/** Replaces a comment of the backend. */
const WAITING = Buffer.from(': waiting\n\n');
