// Delivers a stream with its attestation: deltas at once, the chunk with the finish reason only when the response is attested. Without an
// attestation it is never sent.
import { SseError } from '../../proto/stream/sse.ts';
import type { Attestor } from '../attestation/interfaces.ts';
import type { ResponseHead } from '../backend/backend.ts';
import { asProblem, Problem } from '../base/problem.ts';
import { answerTooLarge, type Folded } from '../offload/jobs.ts';
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
  return streamForm === 'completion'
    ? deliver(new Recorder(max_answer_bytes, choices), head, port, exchange, attestor, max_answer_bytes)
    : deliver(new NamedRecorder(streamForm, max_answer_bytes), head, port, exchange, attestor, max_answer_bytes);
}

/** Sends only events that were hashed, in the form in which the gateway writes them, and comments of its own. */
function deliver<E>(
  recorder: StreamRecorder<E>,
  head: ResponseHead,
  port: Port,
  exchange: TeeExchange,
  attestor: Attestor,
  max_answer_bytes: number,
): Delivery {
  const { outgoing } = exchange;
  const { reader } = recorder;
  /** The event with the finish reason and the events after it, in order. Empty until such an event arrives. */
  let held: Held<E>[] = [];
  let ended = false;
  /** The first ids that the response had. The attestation is found under them, under its last one, and under the gateway's own. */
  const ids = new Set<string>();
  let comments = 0;
  let drainTimer: NodeJS.Timeout | null = null;
  const write = backpressureWriter(exchange, port);

  outgoing.writeHead(head.status, { ...headersOf(head, true), 'content-type': STREAM_TYPE });
  outgoing.flushHeaders();

  function forward(events: readonly E[]): void {
    if (events.length > 0) write(recorder.write(events));
  }

  function takeChunk(chunk: Buffer): void {
    exchange.hold(chunk);
    const events: E[] = [];
    try {
      reader.push(chunk, events);
    } finally {
      // The events before an invalid line are still delivered.
      handleEvents(events);
    }
    if (reader.comments > comments && !ended) write(WAITING);
    comments = reader.comments;
  }

  function handleEvents(events: readonly E[]): void {
    let ready: E[] = [];
    for (const event of events) {
      const observed = observe(event, ready);
      if (observed.kind === 'done' || observed.kind === 'error') {
        forward(ready);
        return observed.kind === 'done'
          ? finish(true)
          : endWithError(
              new Problem('backend_bad_response', 'The backend sent an error in its stream.'),
              observed.event,
            );
      }
      // Another choice goes on, so the held chunk was not the last one with a finish reason.
      if (observed.live && held.length > 0 && recorder.mayRelease(observed.kind === 'finish')) {
        forward(ready);
        forward(held.map((one) => one.event));
        ready = [];
        held = [];
      }
      if (held.length === 0 && observed.kind !== 'finish') {
        ready.push(event);
        continue;
      }
      forward(ready);
      ready = [];
      held.push({ event, finish: observed.kind === 'finish' });
    }
    forward(ready);
    // Until the backend ends its stream, or this time is over, an invalid event still fails the response.
    if (recorder.complete)
      drainTimer ??= setTimeout(() => !outgoing.destroyed && guarded(() => finish(true)), AFTER_DONE_MS);
  }

  /** Observes an event. When it is invalid, the events before it are still sent. */
  function observe(event: E, ready: readonly E[]): Observed {
    try {
      const observed = recorder.observe(event);
      const { completionId } = recorder;
      if (completionId !== null && ids.size < MAX_IDS && !ids.has(completionId)) {
        ids.add(completionId);
        attestor.name(exchange, completionId);
      }
      return observed;
    } catch (error) {
      forward(ready);
      throw error;
    }
  }

  /** `open`: the backend's stream may still be open. */
  function finish(open: boolean): void {
    const folded = recorder.finish();
    ended = true;
    clearTimeout(drainTimer ?? undefined);
    // The backend should end its response after the last event. If it does not in time, its connection is closed.
    if (open) drainTimer = setTimeout(() => port.cancel(), AFTER_DONE_MS);
    void sendAttested(folded).catch((error) => {
      if (!outgoing.destroyed) endWithError(asProblem(error));
    });
  }

  async function sendAttested(folded: Folded): Promise<void> {
    const keepalive = setInterval(() => outgoing.write(ATTESTING), KEEPALIVE_MS);
    try {
      const { json } = await attestor.attest(exchange, folded, port.onDisconnect);
      const last = held.findLastIndex((one) => one.finish);
      for (const [i, { event }] of held.entries()) {
        const attested = i === last && exchange.spliced;
        for (const part of attested ? recorder.withAttestation(event, json) : [recorder.write([event])])
          outgoing.write(part);
      }
      outgoing.end(recorder.last);
      port.done({ status: head.status, tee: 'attested' });
    } finally {
      clearInterval(keepalive);
    }
  }

  /** Ends the stream with an error event in place of the finish chunk: `problem`, or the backend's own error. */
  function endWithError(problem: Problem, event = recorder.errorEvent(problem)): void {
    ended = true;
    clearTimeout(drainTimer ?? undefined);
    port.cancel();
    outgoing.end(event);
    port.done({ status: head.status, tee: 'failed', problem });
  }

  function problemOf(error: unknown): Problem {
    if (!(error instanceof SseError)) return asProblem(error);
    if (error.reason === 'too_large') return answerTooLarge(max_answer_bytes);
    return new Problem('backend_bad_response', `The backend broke its stream: ${error.message}.`);
  }

  function guarded(step: () => void): void {
    if (ended) return;
    try {
      step();
    } catch (error) {
      // The stream may already have ended, for instance with a backend's error, before this error occurred.
      if (ended) return;
      endWithError(problemOf(error));
    }
  }

  return {
    data: (chunk) => guarded(() => takeChunk(chunk)),
    end: () => {
      clearTimeout(drainTimer ?? undefined);
      guarded(() => {
        const last = reader.end();
        if (last !== null) handleEvents([last]);
        if (!ended) finish(false);
      });
    },
    fail: (problem) => {
      clearTimeout(drainTimer ?? undefined);
      guarded(() => endWithError(problem));
    },
  };
}

// The gateway's own comments.

/** A comment that keeps the connection alive. Clients ignore it. */
const ATTESTING = Buffer.from(': attesting\n\n');
/** Replaces a comment of the backend. */
const WAITING = Buffer.from(': waiting\n\n');
