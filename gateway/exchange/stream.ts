// Delivers a stream with its attestation: deltas at once, the finish chunk only with the proof in it. No proof, no "stop".
import { EVENT_END, EVENT_START, PayloadReader, SseError, writeEvents } from '../../proto/sse.ts';
import type { Attestor } from '../attestation/attest.ts';
import { errorOf, type ResponseHead } from '../backend/backend.ts';
import { asProblem, Problem } from '../http/problem.ts';
import type { Folded } from '../offload/jobs.ts';
import { Recorder, type Seen } from './recorder.ts';
import { type Delivery, errorEvent, flowingWriter, headersOf, type Port, type TeeExchange } from './relay.ts';

/** The largest single event a backend may send: a finish chunk with every logprob of a long answer is far below. */
const MAX_EVENT_BYTES = 8 * 1024 * 1024;
const KEEP_WARM_MS = 5_000;
const AFTER_DONE_MS = 1_000;

/** Another charset that a backend names would be another reading of the same bytes. */
const STREAM_TYPE = 'text/event-stream; charset=utf-8';

interface Held {
  readonly payload: Uint8Array;
  readonly finish: boolean;
}

/** What leaves are the payloads that were hashed, in events that the gateway writes itself, and comments of its own. */
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
  /** The finish chunk and what came after it, in order. Empty until a finish chunk comes. */
  let held: Held[] = [];
  let over = false;
  let named = false;
  let comments = 0;
  let drained: NodeJS.Timeout | null = null;
  const write = flowingWriter(exchange, port);

  const headers = headersOf(head, true);
  outgoing.writeHead(
    head.status,
    headers['content-type'] === STREAM_TYPE ? headers : { ...headers, 'content-type': STREAM_TYPE },
  );
  outgoing.flushHeaders();

  function pass(payloads: readonly Uint8Array[]): void {
    if (payloads.length > 0) write(writeEvents(payloads));
  }

  /** Nearly all of a stream: events that say a little more, and are written as the gateway writes them. */
  function takeChunk(chunk: Buffer): void {
    exchange.hold(chunk);
    const repeated = held.length > 0 || reader.midEvent ? 0 : recorder.repeats(chunk);
    if (repeated === chunk.length) return write(chunk);
    if (repeated > 0) write(chunk.subarray(0, repeated));
    const payloads: Uint8Array[] = [];
    try {
      reader.push(chunk.subarray(repeated), payloads);
    } finally {
      // A bad line takes nothing with it that came before.
      take(payloads);
    }
    if (reader.comments > comments && !over) write(WAITING);
    comments = reader.comments;
  }

  function take(payloads: readonly Uint8Array[]): void {
    let passing: Uint8Array[] = [];
    for (const payload of payloads) {
      const seen = observe(payload, passing);
      if (seen.kind === 'done' || seen.kind === 'error') {
        pass(passing);
        return seen.kind === 'done'
          ? finish(true)
          : giveUp(
              new Problem('backend_bad_response', 'The backend sent an error in its stream.'),
              Buffer.from(`data: ${JSON.stringify(errorOf(502, seen.body))}\n\n`),
            );
      }
      // Another choice goes on, so what was held was not the last finish chunk.
      if (seen.live && held.length > 0 && mayRelease(seen.kind === 'finish')) {
        pass(passing);
        pass(held.map((one) => one.payload));
        passing = [];
        held = [];
      }
      if (held.length === 0 && seen.kind !== 'finish') {
        passing.push(payload);
        continue;
      }
      pass(passing);
      passing = [];
      held.push({ payload, finish: seen.kind === 'finish' });
    }
    pass(passing);
  }

  /** A bad event takes nothing with it that came before. */
  function observe(payload: Uint8Array, passing: readonly Uint8Array[]): Seen {
    try {
      const seen = recorder.observe(payload);
      if (!named && recorder.completionId !== null) {
        named = true;
        attestor.name(exchange, recorder.completionId);
      }
      return seen;
    } catch (error) {
      pass(passing);
      throw error;
    }
  }

  /** Never more finish chunks go out unproven than the request's choices less one. */
  function mayRelease(finishing: boolean): boolean {
    return recorder.finished - (finishing ? 1 : 0) < exchange.choices;
  }

  /** `done`: the backend said so, and its connection may still be open. */
  function finish(done: boolean): void {
    const recording = recorder.finish();
    over = true;
    // After [DONE] the response ends by itself, and its connection serves the next request; if not, it is cut.
    if (done) drained = setTimeout(() => port.cancel(), AFTER_DONE_MS);
    void prove(recording).catch((error) => {
      if (!outgoing.destroyed) giveUp(asProblem(error));
    });
  }

  async function prove(recording: Folded | Promise<Folded>): Promise<void> {
    const warm = setInterval(() => outgoing.write(ATTESTING), KEEP_WARM_MS);
    try {
      const folded = recording instanceof Promise ? await recording : recording;
      const { json } = await attestor.attest(exchange, folded, port.onLeft);
      const last = held.findLastIndex((one) => one.finish);
      for (const [i, { payload }] of held.entries())
        for (const piece of i === last ? withAttestation(payload, json) : [writeEvents([payload])])
          outgoing.write(piece);
      outgoing.end(DONE);
      port.done({ status: head.status, tee: 'attested' });
    } finally {
      clearInterval(warm);
    }
  }

  /** An error takes the place of the finish chunk: `problem`, or the backend's own. */
  function giveUp(problem: Problem, event = errorEvent(problem)): void {
    over = true;
    port.cancel();
    outgoing.end(event);
    port.done({ status: head.status, tee: 'failed', problem });
  }

  function guarded(step: () => void): void {
    if (over) return;
    try {
      step();
    } catch (error) {
      // The end, an error of the backend's among them, may have come before what is wrong.
      if (over) return;
      giveUp(
        error instanceof SseError
          ? new Problem('backend_bad_response', `The backend broke its stream: ${error.message}.`)
          : asProblem(error),
      );
    }
  }

  return {
    data: (chunk) => guarded(() => takeChunk(chunk)),
    end: () => {
      clearTimeout(drained ?? undefined);
      guarded(() => {
        const last = reader.end();
        if (last !== null) take([last]);
        if (!over) finish(false);
      });
    },
    fail: (problem) => {
      clearTimeout(drained ?? undefined);
      guarded(() => giveUp(problem));
    },
  };
}

// The few server-sent events that the gateway writes itself.

const DONE = Buffer.from('data: [DONE]\n\n');
/** A comment: keeps the connection warm, and no client sees it. */
const ATTESTING = Buffer.from(': attesting\n\n');
/** In place of a backend's own comment. */
const WAITING = Buffer.from(': waiting\n\n');

const ATTESTATION = Buffer.from(',"attestation":');
const LF = 0x0a;
const BRACE = 0x7d;
/** Copying so much costs less than more writes. */
const ONE_PIECE_BYTES = 64 * 1024;

/** The event, in pieces, with `,"attestation":…` before the last `}` of its payload: taken out again, the bytes are the backend's. */
function withAttestation(payload: Uint8Array, attestationJson: Uint8Array): Uint8Array[] {
  const brace = payload.lastIndexOf(BRACE);
  const pieces = [payload.subarray(0, brace), ATTESTATION, attestationJson, payload.subarray(brace)];
  if (payload.includes(LF)) return [writeEvents([Buffer.concat(pieces)])];
  const event = [EVENT_START, ...pieces, EVENT_END];
  return attestationJson.length > ONE_PIECE_BYTES ? event : [Buffer.concat(event)];
}
