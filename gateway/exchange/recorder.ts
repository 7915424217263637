// Records the chunks of a completion's stream that will be attested: hashes and folds the payloads, and finds the chunk with the finish
// reason.
import { isUtf8 } from 'node:buffer';
import { setImmediate } from 'node:timers/promises';
import { numberOf } from '../../proto/kept-numbers.ts';
import { type Chunk, Fold, FoldError, type JsonPart, parseChunk } from '../../proto/stream/fold.ts';
import {
  EVENT_END,
  EVENT_START,
  type EventReader,
  isDone,
  PayloadReader,
  writeEvents,
} from '../../proto/stream/sse.ts';
import { errorOf } from '../backend/errors.ts';
import { ByteTemplate, LineHash, MANY_BYTES } from '../http/bytes.ts';
import type { Problem } from '../http/problem.ts';
import { answerTooLarge, badResponse, type Folded } from '../offload/jobs.ts';
import { errorEvent } from './relay.ts';

/** An event's kind, by which the delivery decides how to send it. */
export type Observed =
  /** A delta, or any other event that may be sent at once. `live`: its choice has not finished. */
  | { readonly kind: 'chunk'; readonly live: boolean }
  /** The event carries the finish_reason of a choice. `live`: that choice had not finished before. */
  | { readonly kind: 'finish'; readonly live: boolean }
  | { readonly kind: 'done' }
  /** The backend reported an error inside its stream. `event`: the error event for the client. */
  | { readonly kind: 'error'; readonly event: Uint8Array };

/** Reads and records a stream in the form of its endpoint, and writes its events for the client. `E` is an event. */
export interface StreamRecorder<E> {
  readonly reader: EventReader<E>;
  /** The latest id of the response that an event named; null until one does. */
  readonly completionId: string | null;
  /** The response is complete, even if the backend's stream has not ended. */
  readonly complete: boolean;
  /**
   * Records the events at the start of `bytes` that repeat the previous one except for their text, and returns the offset after them.
   * `bytes` must begin with an event. Invalid events are left for `observe`.
   */
  takeRepeated(bytes: Buffer): number;
  /** @throws {Problem} backend_bad_response */
  observe(event: E): Observed;
  /** Whether held events may be sent without an attestation, because the response goes on. */
  mayRelease(finishing: boolean): boolean;
  /** Returns the input for raw. A promise rejects with the same error. @throws {Problem} backend_bad_response unless it is complete. */
  finish(): Folded | Promise<Folded>;
  write(events: readonly E[]): Uint8Array;
  /** Returns the parts of the event with the attestation inserted. Without that member the payload is the backend's. */
  withAttestation(event: E, json: Uint8Array): Uint8Array[];
  errorEvent(problem: Problem): Uint8Array;
  /** The bytes that end an attested stream, after its events. */
  readonly last: Uint8Array;
}

/** The problem of a stream that violates its form or JSON. @param item the invalid part: 'a chunk', 'an event' */
export const unreadable = (cause: unknown, item: string): Problem =>
  badResponse(
    cause instanceof FoldError
      ? `The backend broke its stream: ${cause.message}.`
      : `The backend sent ${item} that cannot be read.`,
    cause,
  );

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

  /** @param choices number of choices in the request. */
  constructor(max_answer_bytes: number, choices = 1) {
    this.reader = new PayloadReader(max_answer_bytes);
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
    if ((error !== undefined && error !== null) || chunk.object === 'error')
      return { kind: 'error', event: errorChunk(chunk) };
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
      throw unreadable(cause, 'a chunk');
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
    if (!this.#fits(data)) throw answerTooLarge(this.#max_answer_bytes);
    this.#bytes += data.length + 1;
    this.#events++;
    this.#hash.add(data);
  }

  #record(data: Uint8Array, chunk: Chunk): void {
    this.#count(data);
    if (typeof chunk.id === 'string' && chunk.id !== '') this.#completionId = chunk.id;
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

// The events that replace those of the backend.

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

// Recognizes an event that repeats the previous one except for its text, as most events of a stream do, and reads it without parsing JSON.

/** The new values in a repeated event. */
interface Repeated {
  /** Index of the choice. */
  readonly index: number;
  readonly content: string;
  /** The payload, as a view. */
  readonly data: Uint8Array;
  /** Offset after the event. */
  readonly end: number;
}

const DELTA = '"delta"';
const CONTENT = /"delta"\s*:\s*\{\s*"content"\s*:\s*"/;
/** The content must be the last member of its delta: a later member of the same name would replace it. */
const CLOSED = /^"\s*\}/;
/** A larger event is never used as a template. */
export const MAX_TEMPLATE_BYTES = 2_048;
/** Events of choices above this index are always parsed. The fold merges choices up to the index 10,000. */
const MAX_INDEX = 1_000;

/** An event as the gateway writes it, with a hole for the text of the choice at `index`. */
interface EventTemplate {
  readonly index: number;
  readonly bytes: ByteTemplate;
}

/**
 * An event is a repetition when the gateway would write it in the same form, its bytes before and after the text of its only delta equal
 * those of an earlier payload, and the text is plain: no escape, no quote, no control character. Its payload is then valid JSON because the
 * earlier one was, and it parses to the same value except for the text.
 */
export class RepeatedEvents {
  #template: EventTemplate | null = null;

  /** Learns a parsed payload, because the next event may repeat it. */
  learn(payload: Uint8Array, chunk: Chunk): void {
    this.#template = null;
    const index = onlyContent(chunk);
    if (index === null || payload.length > MAX_TEMPLATE_BYTES) return;
    const text = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).toString('latin1');
    // An escaped name could hide a second delta, so nothing may be escaped. A payload with a second line is written in another form.
    if (text.includes('\\') || text.includes('\n')) return;
    const found = CONTENT.exec(text);
    // When a member occurs twice, the JSON parser decides which one counts.
    if (found === null || text.indexOf(DELTA) !== text.lastIndexOf(DELTA)) return;
    const from = found.index + found[0].length;
    const to = text.indexOf('"', from);
    if (!CLOSED.test(text.slice(to, to + 64))) return;
    const before = new Uint8Array(Buffer.concat([EVENT_START, payload.subarray(0, from)]));
    const after = new Uint8Array(Buffer.concat([payload.subarray(to), EVENT_END]));
    this.#template = { index, bytes: new ByteTemplate([before, after], ['text']) };
  }

  /** Reads the event that begins at `at`. Returns null when it is no repetition or is not complete. */
  read(bytes: Buffer, at: number): Repeated | null {
    const template = this.#template;
    if (template === null) return null;
    const found = template.bytes.read(bytes, at);
    if (found === null) return null;
    const { values, end } = found;
    const data = bytes.subarray(at + EVENT_START.length, end - EVENT_END.length);
    return { index: template.index, content: values[0] as string, data, end };
  }
}

/** Returns the index of the only choice, or null unless every other member of the chunk can be repeated without effect. */
function onlyContent(chunk: Chunk): number | null {
  let choice: Record<string, unknown> | null = null;
  for (const name in chunk) {
    const value = chunk[name];
    if (name !== 'choices') {
      if (typeof value === 'object' && value !== null) return null;
    } else if (Array.isArray(value) && value.length === 1) choice = value[0];
  }
  if (typeof choice !== 'object' || choice === null) return null;
  for (const name in choice) {
    const value = choice[name];
    if (name === 'delta') {
      if (typeof value !== 'object' || value === null || Object.keys(value).length !== 1) return null;
      if (typeof (value as { content?: unknown }).content !== 'string') return null;
    } else if (name === 'finish_reason' ? value !== null : name !== 'index' && value !== null) return null;
  }
  const index = numberOf(choice.index);
  return index !== null && Number.isInteger(index) && index >= 0 && index <= MAX_INDEX && 'delta' in choice
    ? index
    : null;
}
