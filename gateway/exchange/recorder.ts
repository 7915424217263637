// Records the chunks of a completion's stream that will be attested: hashes and folds the payloads, and finds the chunk with the finish
// reason.
import { isUtf8 } from 'node:buffer';
import { setImmediate } from 'node:timers/promises';
import { type Chunk, Fold, FoldError, type JsonPart, parseChunk } from '../../proto/fold.ts';
import { numberOf } from '../../proto/json.ts';
import { EVENT_END, EVENT_START, type EventReader, isDone, PayloadReader, writeEvents } from '../../proto/sse.ts';
import { errorOf } from '../backend/backend.ts';
import { MANY_BYTES } from '../http/bytes.ts';
import type { Problem } from '../http/problem.ts';
import { badResponse, type Folded } from '../offload/jobs.ts';
import { LineHash } from './line-hash.ts';
import { errorEvent } from './relay.ts';
import { type Repeated, RepeatedEvents } from './repeated-events.ts';

/** The largest single event a backend may send. A finish chunk with the logprobs of a long response is far below. */
export const MAX_EVENT_BYTES = 8 * 1024 * 1024;

/** What the delivery does with an event depends on its kind. */
export type Observed =
  /** A delta, or any other event that may be sent at once. `live`: its choice has not finished. */
  | { readonly kind: 'chunk'; readonly live: boolean }
  /** The event carries the finish_reason of a choice. `live`: that choice had not finished before. */
  | { readonly kind: 'finish'; readonly live: boolean }
  | { readonly kind: 'done' }
  /** The backend reported an error inside its stream. `event`: what the client is sent of it. */
  | { readonly kind: 'error'; readonly event: Uint8Array };

/** Reads and records a stream in the form of its endpoint, and writes what is sent of it. `E` is an event. */
export interface StreamRecorder<E> {
  readonly reader: EventReader<E>;
  /** The backend's id of the answer. null until an event names it. */
  readonly completionId: string | null;
  /** The answer is complete, whatever the backend sends after it. */
  readonly complete: boolean;
  /**
   * Records the events at the start of `bytes` that repeat the previous one except for their text, and returns the offset after them.
   * `bytes` must begin with an event. Invalid events are left for `observe`.
   */
  takeRepeated(bytes: Buffer): number;
  /** @throws {Problem} backend_bad_response */
  observe(event: E): Observed;
  /** Whether events that were held may go out without an attestation, because the answer goes on. */
  mayRelease(finishing: boolean): boolean;
  /** Returns what raw is built from. A promise rejects with the same error. @throws {Problem} backend_bad_response unless it is complete. */
  finish(): Folded | Promise<Folded>;
  write(events: readonly E[]): Uint8Array;
  /** The parts of the event with the attestation in it. Without that member the payload is the backend's. */
  withAttestation(event: E, json: Uint8Array): Uint8Array[];
  errorEvent(problem: Problem): Uint8Array;
  /** Ends every stream that was attested. */
  readonly last: Uint8Array;
}

/** The chunk is nested too deeply for the stack. A chunk that could be merged may still be too deep to be serialized. */
const unfoldable = (cause: unknown): never => {
  throw badResponse('The backend sent a chunk that cannot be folded.', cause);
};

export class Recorder implements StreamRecorder<Uint8Array> {
  readonly reader: PayloadReader;
  readonly complete = false;
  readonly last = DONE;
  readonly errorEvent = errorEvent;
  readonly #max_answer_bytes: number;
  readonly #choices: number;
  readonly #hash = new LineHash();
  readonly #repeated = new RepeatedEvents();
  readonly #fold = new Fold();
  readonly #open = new Set<number>();
  readonly #finished = new Set<number>();
  #events = 0;
  #bytes = 0;
  #completionId: string | null = null;

  /** @param choices that the request asked for. */
  constructor(max_answer_bytes: number, choices = 1) {
    this.reader = new PayloadReader(Math.min(MAX_EVENT_BYTES, max_answer_bytes));
    this.#max_answer_bytes = max_answer_bytes;
    this.#choices = choices;
  }

  get completionId(): string | null {
    return this.#completionId;
  }

  /** Limits the finish chunks that are sent without an attestation to the number of choices less one. */
  mayRelease(finishing: boolean): boolean {
    return this.#finished.size - (finishing ? 1 : 0) < this.#choices;
  }

  takeRepeated(bytes: Buffer): number {
    let at = 0;
    for (;;) {
      const repeated = this.#repeated.read(bytes, at);
      if (repeated === null || !this.#fits(repeated.data)) return at;
      this.#add(repeated);
      at = repeated.end;
    }
  }

  observe(payload: Uint8Array): Observed {
    if (isDone(payload)) return { kind: 'done' };
    const chunk = this.#parse(payload);
    const { error, choices } = chunk;
    if (error !== undefined && error !== null) return { kind: 'error', event: errorChunk(chunk) };
    if ('attestation' in chunk) throw badResponse('The backend sent an attestation of its own.');
    if (choices !== undefined && choices !== null && !Array.isArray(choices))
      throw badResponse('The backend sent choices that are no list.');
    this.#record(payload, chunk);
    this.#repeated.learn(payload, chunk);
    return this.#observeChoices(choices ?? []);
  }

  write = writeEvents;
  withAttestation = withAttestation;

  finish(): Folded | Promise<Folded> {
    if (this.#finished.size === 0 || this.#open.size > 0)
      throw badResponse('The backend ended its stream before its answer was finished.');
    return this.#bytes > MANY_BYTES
      ? writeInTurns(this.#fold.parts()).then((parts) => this.#folded(parts), unfoldable)
      : this.#folded(this.#text());
  }

  #text(): string {
    try {
      return this.#fold.text();
    } catch (cause) {
      return unfoldable(cause);
    }
  }

  #folded(completion: string | readonly JsonPart[]): Folded {
    const stream = { events: this.#events, sha256: this.#hash.digest() };
    return { completion, stream, completionId: this.#completionId };
  }

  #parse(data: Uint8Array): Chunk {
    if (!isUtf8(data)) throw badResponse('The backend sent a chunk that is not UTF-8.');
    try {
      return parseChunk(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8'));
    } catch (cause) {
      throw badResponse(
        cause instanceof FoldError
          ? `The backend broke its stream: ${cause.message}.`
          : 'The backend sent a chunk that cannot be read.',
        cause,
      );
    }
  }

  #add({ index, content, data }: Repeated): void {
    this.#count(data);
    this.#fold.addContent(index, content);
  }

  #fits(data: Uint8Array): boolean {
    return this.#bytes + data.length + 1 <= this.#max_answer_bytes;
  }

  #count(data: Uint8Array): void {
    if (!this.#fits(data)) throw badResponse('The answer grew larger than what is attested.');
    this.#bytes += data.length + 1;
    this.#events++;
    this.#hash.add(data);
  }

  #record(data: Uint8Array, chunk: Chunk): void {
    this.#count(data);
    if (this.#completionId === null && typeof chunk.id === 'string' && chunk.id !== '') this.#completionId = chunk.id;
    try {
      this.#fold.add(chunk);
    } catch (cause) {
      unfoldable(cause);
    }
  }

  #observeChoices(choices: readonly unknown[]): Observed {
    let live = false;
    let finishes = false;
    for (const choice of choices) {
      if (typeof choice !== 'object' || choice === null) continue;
      const { index, finish_reason } = choice as { index?: unknown; finish_reason?: unknown };
      const at = numberOf(index) ?? 0;
      if (!this.#finished.has(at)) {
        live = true;
        this.#open.add(at);
      }
      if (finish_reason === undefined || finish_reason === null || finish_reason === '') continue;
      finishes = true;
      this.#open.delete(at);
      this.#finished.add(at);
    }
    return { kind: finishes ? 'finish' : 'chunk', live };
  }
}

// Serializes a large completion over several turns of the event loop, so that other requests are served in between.

/** Characters that are serialized in one turn, and the fixed cost of a part in characters. */
const TURN_LENGTH = 256 * 1024;
const PART_LENGTH = 64;

async function writeInTurns(parts: Iterable<JsonPart>): Promise<readonly JsonPart[]> {
  const written: JsonPart[] = [];
  let length = 0;
  // Serialization starts in a turn of its own, because chunks may still be read in the current one.
  await setImmediate();
  for (const part of parts) {
    written.push(part);
    if (typeof part === 'string') {
      length += part.length + PART_LENGTH;
      if (length < TURN_LENGTH) continue;
    } else {
      // V8 joins a text that grew by concatenation when it is first read. This forces the join now and not in a later turn.
      part.quote.charCodeAt(0);
    }
    length = 0;
    await setImmediate();
  }
  return written;
}

// What is written in place of the backend's events.

const LF = 0x0a;
const DONE = Buffer.from('data: [DONE]\n\n');
const ATTESTATION = Buffer.from(',"attestation":');
const BRACE = 0x7d;
/** Up to this size, copying costs less than further writes. */
const MAX_COPIED_BYTES = 64 * 1024;

/** `,"attestation":…` is inserted before the last `}` of the payload. */
function withAttestation(payload: Uint8Array, json: Uint8Array): Uint8Array[] {
  const brace = payload.lastIndexOf(BRACE);
  const parts = [payload.subarray(0, brace), ATTESTATION, json, payload.subarray(brace)];
  if (payload.includes(LF)) return [writeEvents([Buffer.concat(parts)])];
  const event = [EVENT_START, ...parts, EVENT_END];
  return json.length > MAX_COPIED_BYTES ? event : [Buffer.concat(event)];
}

const errorChunk = (chunk: unknown): Buffer => Buffer.from(`data: ${JSON.stringify(errorOf(502, chunk))}\n\n`);
