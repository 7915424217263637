// Delivers a stream with its attestation: deltas at once, the finish chunk only with the proof in it. No proof, no "stop".
import { type SseEvent, SseLimitError, SseSplitter } from '../../proto/sse.ts';
import type { Folded } from '../aside/draft.ts';
import type { Attestor } from '../attestor.ts';
import type { AnswerHead } from '../engine/engine.ts';
import { errorOf } from '../engine/error.ts';
import { asProblem, Problem } from '../problem.ts';
import { Recorder, type Seen } from '../recorder/recorder.ts';
import { ATTESTING, DONE, errorEvent, terminated, withAttestation } from '../sse.ts';
import type { Delivery, Exchange } from './exchange.ts';
import { headersOf } from './headers.ts';
import { flowingWriter, type Port } from './relay.ts';

/** The largest single event a backend may send: a finish chunk with every logprob of a long answer is far below. */
const MAX_EVENT_BYTES = 8 * 1024 * 1024;
const KEEP_WARM_MS = 5_000;
const AFTER_DONE_MS = 1_000;

interface Held {
  readonly event: SseEvent;
  readonly finish: boolean;
}

export function streamDelivery(
  head: AnswerHead,
  port: Port,
  exchange: Exchange,
  attestor: Attestor,
  max_answer_bytes: number,
): Delivery {
  const { outgoing } = exchange;
  const splitter = new SseSplitter(Math.min(MAX_EVENT_BYTES, max_answer_bytes));
  const recorder = new Recorder(max_answer_bytes);
  /** The finish chunk and what came after it, in order. Empty until a finish chunk comes. */
  let held: Held[] = [];
  let over = false;
  let named = false;
  let drained: NodeJS.Timeout | null = null;
  const write = flowingWriter(exchange, port);

  outgoing.writeHead(head.status, headersOf(head, true));
  outgoing.flushHeaders();

  /** Events that may go out leave in one write, as the bytes in which they came: each begins where the one before it ends. */
  function pass(events: readonly SseEvent[]): void {
    const first = events[0];
    const last = events.at(-1);
    if (first === undefined || last === undefined) return;
    if (!last.complete) return write(terminated(last)); // the stream's last event comes alone
    const from = first.bytes.byteOffset;
    write(Buffer.from(first.bytes.buffer, from, last.bytes.byteOffset + last.bytes.byteLength - from));
  }

  /** Nearly all of a stream: events that say a little more, and go out as they are. */
  function takeChunk(chunk: Buffer): void {
    const repeated = held.length > 0 || splitter.midEvent ? 0 : recorder.repeats(chunk);
    if (repeated === chunk.length) return write(chunk);
    if (repeated > 0) write(chunk.subarray(0, repeated));
    take(splitter.push(chunk.subarray(repeated)));
  }

  function take(events: readonly SseEvent[]): void {
    let passing: SseEvent[] = [];
    for (const event of events) {
      const seen = observe(event, passing);
      if (seen.kind === 'done' || seen.kind === 'error') {
        pass(passing);
        return seen.kind === 'done'
          ? finish(event)
          : giveUp(
              new Problem('backend_bad_response', 'The backend sent an error in its stream.'),
              Buffer.from(`data: ${JSON.stringify(errorOf(502, seen.body))}\n\n`),
            );
      }
      const live = seen.kind !== 'note' && seen.live;
      // Another choice goes on, so what was held was not the last finish chunk.
      if (live && held.length > 0 && mayRelease(seen.kind === 'finish')) {
        pass(passing);
        passing = [];
        for (const one of held) write(terminated(one.event));
        held = [];
      }
      // What has no data says nothing: it need not wait, and is not kept.
      const hold = seen.kind !== 'note' && (held.length > 0 || seen.kind === 'finish');
      if (!hold) {
        passing.push(event);
        continue;
      }
      pass(passing);
      passing = [];
      held.push({ event, finish: seen.kind === 'finish' });
    }
    pass(passing);
  }

  /** A bad event takes nothing with it that came before. */
  function observe(event: SseEvent, passing: readonly SseEvent[]): Seen {
    try {
      const seen = recorder.observe(event);
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

  function finish(done: SseEvent | null): void {
    over = true;
    const recording = recorder.finish();
    // After [DONE] the response ends by itself, and its connection serves the next request; if not, it is cut.
    if (done !== null) drained = setTimeout(() => port.cancel(), AFTER_DONE_MS);
    void prove(recording, done).catch((error) => {
      if (!outgoing.destroyed) giveUp(asProblem(error));
    });
  }

  async function prove(recording: Folded | Promise<Folded>, done: SseEvent | null): Promise<void> {
    const warm = setInterval(() => outgoing.write(ATTESTING), KEEP_WARM_MS);
    try {
      const folded = recording instanceof Promise ? await recording : recording;
      const { json } = await attestor.attest(exchange, folded, port.onLeft);
      const last = held.findLastIndex((one) => one.finish);
      for (const [i, one] of held.entries()) {
        const event = { ...one.event, bytes: terminated(one.event) };
        for (const piece of i === last ? withAttestation(event, json) : [event.bytes]) outgoing.write(piece);
      }
      outgoing.end(done === null ? DONE : terminated(done));
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
      giveUp(
        error instanceof SseLimitError
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
        const rest = splitter.end();
        if (rest !== null) take([rest]);
        if (!over) finish(null);
      });
    },
    fail: (problem) => {
      clearTimeout(drained ?? undefined);
      guarded(() => giveUp(problem));
    },
  };
}
