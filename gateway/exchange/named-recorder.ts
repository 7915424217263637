// Records a stream of named events that will be attested, /v1/responses and /v1/messages: checks their order, hashes names and payloads,
// and finds the event that carries the attestation.
import { isUtf8 } from 'node:buffer';
import { topLevelMembers } from '../../proto/json.ts';
import { type EventKind, type EventRecord, isFinalResponse } from '../../proto/stream/events.ts';
import type { StreamForm } from '../../proto/stream/forms.ts';
import { recordEvents } from '../../proto/stream/record-events.ts';
import { isDone, type NamedEvent, NamedEventReader, writeNamedEvent } from '../../proto/stream/sse.ts';
import { bufferOf, EMPTY, LineHash } from '../base/bytes.ts';
import type { Problem } from '../base/problem.ts';
import { answerTooLarge, badResponse, type Folded } from '../threads/jobs.ts';
import { type Observed, type StreamRecorder, unreadable } from './recorder.ts';
import { spliced } from './relay.ts';

export class NamedRecorder implements StreamRecorder<NamedEvent> {
  readonly reader: NamedEventReader;
  readonly #max_answer_bytes: number;
  readonly #record: EventRecord;
  readonly #hash = new LineHash();
  #events = 0;
  #bytes = 0;
  #complete = false;

  constructor(form: Exclude<StreamForm, 'completion'>, max_answer_bytes: number) {
    this.reader = new NamedEventReader(max_answer_bytes);
    this.#max_answer_bytes = max_answer_bytes;
    this.#record = recordEvents(form);
  }

  get completionId(): string | null {
    return this.#record.id;
  }

  /** The response is complete. Any event after it is an error. */
  get complete(): boolean {
    return this.#complete;
  }

  mayRelease = (): boolean => false;

  /** @throws {Problem} backend_bad_response */
  observe(event: NamedEvent): Observed {
    if (event.name === null && isDone(event.payload)) return { kind: 'done' };
    const kind = this.#add(event);
    if (kind === 'error') return { kind: 'error', event: writeNamedEvent(event) };
    this.#count(event);
    this.#complete ||= kind === 'final' ? isFinalResponse(event.name) : event.name === 'message_stop';
    return { kind: kind === 'final' ? 'finish' : 'chunk', live: false };
  }

  /** @throws {Problem} backend_bad_response unless the answer is complete. */
  finish(): Folded {
    const completion = orBadResponse(() => this.#record.text());
    const stream = { events: this.#events, sha256: this.#hash.digest() };
    return { completion, stream, completionId: this.completionId };
  }

  write(events: readonly NamedEvent[]): Uint8Array {
    const [first] = events;
    return events.length === 1 && first !== undefined
      ? writeNamedEvent(first)
      : Buffer.concat(events.map(writeNamedEvent));
  }

  withAttestation({ name, payload }: NamedEvent, json: Uint8Array): Uint8Array[] {
    const at = attestationOffset(name, bufferOf(payload).toString('utf8'));
    return [writeNamedEvent({ name, payload: Buffer.concat(spliced(payload, json, at)) })];
  }

  /** These forms have no event that ends every stream. */
  readonly last = EMPTY;

  /** Has the members by which clients of both forms recognize an error. */
  errorEvent({ body }: Problem): Uint8Array {
    const { code, message, param } = body.error;
    const payload = Buffer.from(JSON.stringify({ type: 'error', code, message, param, error: body.error }));
    return writeNamedEvent({ name: 'error', payload });
  }

  #add({ name, payload }: NamedEvent): EventKind {
    if (!isUtf8(payload)) throw badResponse('The backend sent an event that is not UTF-8.');
    const text = bufferOf(payload).toString('utf8');
    return orBadResponse(() => this.#record.add(name, text));
  }

  #count({ name, payload }: NamedEvent): void {
    if (this.#bytes + payload.length + 1 > this.#max_answer_bytes) throw answerTooLarge(this.#max_answer_bytes);
    this.#bytes += payload.length + 1;
    this.#events++;
    this.#hash.add(Buffer.from(String(name)));
    this.#hash.add(payload);
  }
}

/** The offset in bytes of the `}` before which the attestation is inserted: that of `response` in a final event, else the event's own. */
function attestationOffset(name: string | null, text: string): number {
  const member = isFinalResponse(name) ? topLevelMembers(text).find(({ key }) => key === 'response') : undefined;
  return Buffer.byteLength(text.slice(0, member === undefined ? text.lastIndexOf('}') : member.valueEnd - 1));
}

/** @throws {Problem} backend_bad_response where `read` throws. */
function orBadResponse<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw unreadable(cause, 'an event');
  }
}
