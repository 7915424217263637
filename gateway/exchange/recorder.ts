// Records the chunks of a completion's stream that will be attested: hashes and folds the payloads, and finds the chunk with the finish
// reason.
import { isUtf8 } from 'node:buffer';
import { type Chunk, Fold, FoldError, isError, parseChunk } from '../../proto/stream/fold.ts';
import {
  EVENT_END,
  EVENT_START,
  type EventReader,
  isDone,
  PayloadReader,
  writeEvents,
} from '../../proto/stream/sse.ts';
import { errorOf } from '../backend/errors.ts';
import { LineHash } from '../base/bytes.ts';
import { Problem } from '../base/problem.ts';
import { answerTooLarge, badResponse, type Folded } from '../threads/jobs.ts';
import { errorEvent, spliced } from './relay.ts';

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
  /** @throws {Problem} backend_bad_response */
  observe(event: E): Observed;
  /** Whether held events may be sent without an attestation, because the response goes on. */
  mayRelease(finishing: boolean): boolean;
  /** Returns the input for raw. @throws {Problem} backend_bad_response unless it is complete. */
  finish(): Folded;
  write(events: readonly E[]): Uint8Array;
  /** Returns the parts of the event with the attestation inserted. Without that member the payload is the backend's. */
  withAttestation(event: E, json: Uint8Array): Uint8Array[];
  errorEvent(problem: Problem): Uint8Array;
  /** The bytes that end an attested stream, after its events. */
  readonly last: Uint8Array;
}

/** The problem of a stream that violates its form or JSON, or the rules of the fold. @param item the invalid part: 'a chunk', 'an event' */
export function unreadable(cause: unknown, item: string): Problem {
  if (!(cause instanceof FoldError)) return badResponse(`The backend sent ${item} that cannot be read.`, cause);
  const { message, reason } = cause;
  return reason === 'rule'
    ? new Problem('stream_not_foldable', `The stream of the backend cannot be signed as clients show it: ${message}.`, {
        cause,
      })
    : badResponse(`The backend broke its stream: ${message}.`, cause);
}

/** A chunk that breaks the rules of the fold, or is nested too deeply for the stack: it may be merged and still be too deep to be serialized. */
const unfoldable = (cause: unknown): never => {
  throw cause instanceof FoldError
    ? unreadable(cause, 'a chunk')
    : badResponse('The backend sent a chunk that cannot be folded.', cause);
};

interface FoldedChoice {
  readonly index: number;
  readonly finish_reason?: string | null;
}

export class Recorder implements StreamRecorder<Uint8Array> {
  readonly reader: PayloadReader;
  readonly complete = false;
  readonly last = DONE;
  readonly errorEvent = errorEvent;
  readonly #max_answer_bytes: number;
  readonly #choices: number;
  readonly #hash = new LineHash();
  readonly #fold: Fold;
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
    this.#fold = new Fold(choices);
  }

  get completionId(): string | null {
    return this.#completionId;
  }

  /** Limits the finish chunks that are sent without an attestation to the number of choices less one. */
  mayRelease(finishing: boolean): boolean {
    return this.#finished.size - (finishing ? 1 : 0) < this.#choices;
  }

  observe(payload: Uint8Array): Observed {
    if (isDone(payload)) return { kind: 'done' };
    const chunk = this.#parse(payload);
    const { choices } = chunk;
    if (isError(chunk)) return { kind: 'error', event: errorChunk(chunk) };
    if ('attestation' in chunk) throw badResponse('The backend sent an attestation of its own.');
    this.#record(payload, chunk);
    // The fold takes nothing but a list of objects, each with an index.
    return this.#observeChoices((choices ?? []) as readonly FoldedChoice[]);
  }

  write = writeEvents;
  withAttestation = withAttestation;

  finish(): Folded {
    if (this.#finished.size === 0 || this.#open.size > 0)
      throw badResponse('The backend ended its stream before its answer was finished.');
    const stream = { events: this.#events, sha256: this.#hash.digest() };
    return { completion: this.#text(), stream, completionId: this.#completionId };
  }

  #text(): string {
    try {
      return this.#fold.text();
    } catch (cause) {
      return unfoldable(cause);
    }
  }

  #parse(data: Uint8Array): Chunk {
    if (!isUtf8(data)) throw badResponse('The backend sent a chunk that is not UTF-8.');
    try {
      return parseChunk(Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('utf8'));
    } catch (cause) {
      throw unreadable(cause, 'a chunk');
    }
  }

  #count(data: Uint8Array): void {
    if (this.#bytes + data.length + 1 > this.#max_answer_bytes) throw answerTooLarge(this.#max_answer_bytes);
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

  #observeChoices(choices: readonly FoldedChoice[]): Observed {
    let live = false;
    let finishes = false;
    for (const { index, finish_reason } of choices) {
      if (!this.#finished.has(index)) {
        live = true;
        this.#open.add(index);
      }
      if ((finish_reason ?? '') === '') continue;
      finishes = true;
      this.#open.delete(index);
      this.#finished.add(index);
    }
    return { kind: finishes ? 'finish' : 'chunk', live };
  }
}

// The events that replace those of the backend.

const LF = 0x0a;
const DONE = Buffer.from('data: [DONE]\n\n');

function withAttestation(payload: Uint8Array, json: Uint8Array): Uint8Array[] {
  const parts = spliced(payload, json);
  return payload.includes(LF) ? [writeEvents([Buffer.concat(parts)])] : [EVENT_START, ...parts, EVENT_END];
}

const errorChunk = (chunk: unknown): Buffer => Buffer.from(`data: ${JSON.stringify(errorOf(502, chunk))}\n\n`);
