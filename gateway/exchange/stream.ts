// Delivers a stream with its attestation: deltas at once, the chunk with the finish reason only with the attestation in it. Without an
// attestation it is never sent.
import { EVENT_END, EVENT_START, PayloadReader, SseError, writeEvents } from '../../proto/sse.ts';
import type { Attestor } from '../attestation/interfaces.ts';
import { errorOf, type ResponseHead } from '../backend/backend.ts';
import { asProblem, Problem } from '../http/problem.ts';
import type { Folded } from '../offload/jobs.ts';
import { type Observed, Recorder } from './recorder.ts';
import { backpressureWriter, type Delivery, errorEvent, headersOf, type Port, type TeeExchange } from './relay.ts';

/** The largest single event a backend may send. A finish chunk with the logprobs of a long response is far below. */
const MAX_EVENT_BYTES = 8 * 1024 * 1024;
const KEEPALIVE_MS = 5_000;
const AFTER_DONE_MS = 1_000;

/** Another charset, even if the backend names one, would give the same bytes another meaning. */
const STREAM_TYPE = 'text/event-stream; charset=utf-8';

interface Held {
  readonly payload: Uint8Array;
  readonly finish: boolean;
}

/** Sends the payloads that were hashed, in events that the gateway writes itself, and comments of its own. */
export function streamDelivery(
  head: ResponseHead,
  port: Port,
  exchange: TeeExchange,
  attestor: Attestor,
  max_answer_bytes: number,
): Delivery {
  const { outgoing } = exchange;
  const reader = new PayloadReader(Math.min(MAX_EVENT_BYTES, max_answer_bytes));
  const recorder = new Recorder(max_answer_bytes);
  /** The chunk with the finish reason and the events after it, in order. Empty until such a chunk arrives. */
  let held: Held[] = [];
  let ended = false;
  let hasName = false;
  let comments = 0;
  let drainTimer: NodeJS.Timeout | null = null;
  const write = backpressureWriter(exchange, port);

  const headers = headersOf(head, true);
  outgoing.writeHead(
    head.status,
    headers['content-type'] === STREAM_TYPE ? headers : { ...headers, 'content-type': STREAM_TYPE },
  );
  outgoing.flushHeaders();

  function forward(payloads: readonly Uint8Array[]): void {
    if (payloads.length > 0) write(writeEvents(payloads));
  }

  /** Forwards repeated events, which are most of a stream, as they are. Parses the others. */
  function takeChunk(chunk: Buffer): void {
    exchange.hold(chunk);
    const repeated = held.length > 0 || reader.midEvent ? 0 : recorder.takeRepeated(chunk);
    if (repeated === chunk.length) return write(chunk);
    if (repeated > 0) write(chunk.subarray(0, repeated));
    const payloads: Uint8Array[] = [];
    try {
      reader.push(chunk.subarray(repeated), payloads);
    } finally {
      // The payloads before an invalid line are still delivered.
      handlePayloads(payloads);
    }
    if (reader.comments > comments && !ended) write(WAITING);
    comments = reader.comments;
  }

  function handlePayloads(payloads: readonly Uint8Array[]): void {
    let ready: Uint8Array[] = [];
    for (const payload of payloads) {
      const observed = observe(payload, ready);
      if (observed.kind === 'done' || observed.kind === 'error') {
        forward(ready);
        return observed.kind === 'done'
          ? finish(true)
          : endWithError(
              new Problem('backend_bad_response', 'The backend sent an error in its stream.'),
              Buffer.from(`data: ${JSON.stringify(errorOf(502, observed.body))}\n\n`),
            );
      }
      // Another choice goes on, so the held chunk was not the last one with a finish reason.
      if (observed.live && held.length > 0 && mayRelease(observed.kind === 'finish')) {
        forward(ready);
        forward(held.map((one) => one.payload));
        ready = [];
        held = [];
      }
      if (held.length === 0 && observed.kind !== 'finish') {
        ready.push(payload);
        continue;
      }
      forward(ready);
      ready = [];
      held.push({ payload, finish: observed.kind === 'finish' });
    }
    forward(ready);
  }

  /** Observes a payload. When it is invalid, the events before it are still sent. */
  function observe(payload: Uint8Array, ready: readonly Uint8Array[]): Observed {
    try {
      const observed = recorder.observe(payload);
      if (!hasName && recorder.completionId !== null) {
        hasName = true;
        attestor.name(exchange, recorder.completionId);
      }
      return observed;
    } catch (error) {
      forward(ready);
      throw error;
    }
  }

  /** Limits the finish chunks that are sent without an attestation to the number of choices less one. */
  function mayRelease(finishing: boolean): boolean {
    return recorder.finished - (finishing ? 1 : 0) < exchange.choices;
  }

  /** `done`: the backend sent [DONE], and its connection may still be open. */
  function finish(done: boolean): void {
    const recording = recorder.finish();
    ended = true;
    // After [DONE] the response ends by itself and the connection is reused. If it does not end in time, it is closed.
    if (done) drainTimer = setTimeout(() => port.cancel(), AFTER_DONE_MS);
    void prove(recording).catch((error) => {
      if (!outgoing.destroyed) endWithError(asProblem(error));
    });
  }

  async function prove(recording: Folded | Promise<Folded>): Promise<void> {
    const keepalive = setInterval(() => outgoing.write(ATTESTING), KEEPALIVE_MS);
    try {
      const folded = recording instanceof Promise ? await recording : recording;
      const { json } = await attestor.attest(exchange, folded, port.onDisconnect);
      const last = held.findLastIndex((one) => one.finish);
      for (const [i, { payload }] of held.entries())
        for (const part of i === last ? withAttestation(payload, json) : [writeEvents([payload])]) outgoing.write(part);
      outgoing.end(DONE);
      port.done({ status: head.status, tee: 'attested' });
    } finally {
      clearInterval(keepalive);
    }
  }

  /** Ends the stream with an error event in place of the finish chunk: `problem`, or the backend's own error. */
  function endWithError(problem: Problem, event = errorEvent(problem)): void {
    ended = true;
    port.cancel();
    outgoing.end(event);
    port.done({ status: head.status, tee: 'failed', problem });
  }

  function guarded(step: () => void): void {
    if (ended) return;
    try {
      step();
    } catch (error) {
      // The stream may already have ended, for instance with a backend's error, before this error occurred.
      if (ended) return;
      endWithError(
        error instanceof SseError
          ? new Problem('backend_bad_response', `The backend broke its stream: ${error.message}.`)
          : asProblem(error),
      );
    }
  }

  return {
    data: (chunk) => guarded(() => takeChunk(chunk)),
    end: () => {
      clearTimeout(drainTimer ?? undefined);
      guarded(() => {
        const last = reader.end();
        if (last !== null) handlePayloads([last]);
        if (!ended) finish(false);
      });
    },
    fail: (problem) => {
      clearTimeout(drainTimer ?? undefined);
      guarded(() => endWithError(problem));
    },
  };
}

// The server-sent events that the gateway writes itself.

const DONE = Buffer.from('data: [DONE]\n\n');
/** A comment that keeps the connection alive. Clients ignore it. */
const ATTESTING = Buffer.from(': attesting\n\n');
/** Replaces a comment of the backend. */
const WAITING = Buffer.from(': waiting\n\n');

const ATTESTATION = Buffer.from(',"attestation":');
const LF = 0x0a;
const BRACE = 0x7d;
/** Up to this size, copying costs less than further writes. */
const MAX_COPIED_BYTES = 64 * 1024;

/**
 * Returns the parts of the event, with `,"attestation":…` inserted before the last `}` of its payload. Without that member the bytes are
 * the backend's.
 */
function withAttestation(payload: Uint8Array, attestationJson: Uint8Array): Uint8Array[] {
  const brace = payload.lastIndexOf(BRACE);
  const parts = [payload.subarray(0, brace), ATTESTATION, attestationJson, payload.subarray(brace)];
  if (payload.includes(LF)) return [writeEvents([Buffer.concat(parts)])];
  const event = [EVENT_START, ...parts, EVENT_END];
  return attestationJson.length > MAX_COPIED_BYTES ? event : [Buffer.concat(event)];
}
