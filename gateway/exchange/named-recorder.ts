// Records a stream of named events that will be attested, /v1/responses and /v1/messages: checks their order, hashes names and payloads,
// and finds the event that carries the attestation.
import { isUtf8 } from 'node:buffer';
import { topLevelMembers } from '../../proto/json.ts';
import {
  type EventKind,
  type EventRecord,
  isFinalResponse,
  recordEvents,
  type StreamForm,
  type TextDelta,
} from '../../proto/stream/events.ts';
import { EVENT_END, isDone, type NamedEvent, NamedEventReader, writeNamedEvent } from '../../proto/stream/sse.ts';
import { ByteTemplate, bufferOf, EMPTY, type Hole, LineHash } from '../http/bytes.ts';
import type { Problem } from '../http/problem.ts';
import { answerTooLarge, badResponse, type Folded } from '../offload/jobs.ts';
import { MAX_TEMPLATE_BYTES, type Observed, type StreamRecorder, unreadable } from './recorder.ts';

export class NamedRecorder implements StreamRecorder<NamedEvent> {
  readonly reader: NamedEventReader;
  readonly #max_answer_bytes: number;
  readonly #record: EventRecord;
  readonly #hash = new LineHash();
  #events = 0;
  #bytes = 0;
  #complete = false;
  #repeated: RepeatedEvent | null = null;

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

  takeRepeated(bytes: Buffer): number {
    let at = 0;
    for (;;) {
      const found = this.#repeated?.template.read(bytes, at) ?? null;
      if (this.#repeated === null || found === null) return at;
      const { start_bytes, name, text_at } = this.#repeated;
      const payload = bytes.subarray(at + start_bytes, found.end - EVENT_END.length);
      const { values, end } = found;
      const sequence = values[1 - text_at];
      if (!this.#fits(payload)) return at;
      if (!this.#record.repeat(values[text_at] as string, sequence === undefined ? null : Number(sequence))) return at;
      this.#count({ name, payload });
      at = end;
    }
  }

  mayRelease = (): boolean => false;

  /** @throws {Problem} backend_bad_response */
  observe(event: NamedEvent): Observed {
    if (event.name === null && isDone(event.payload)) return { kind: 'done' };
    const kind = this.#add(event);
    if (kind === 'error') return { kind: 'error', event: writeNamedEvent(event) };
    this.#count(event);
    const { textDelta } = this.#record;
    this.#repeated = textDelta === null ? null : repeatedEvent(event, textDelta);
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
    const parts = [payload.subarray(0, at), ATTESTATION, json, payload.subarray(at)];
    return [writeNamedEvent({ name, payload: Buffer.concat(parts) })];
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

  #fits(payload: Uint8Array): boolean {
    return this.#bytes + payload.length + 1 <= this.#max_answer_bytes;
  }

  #count({ name, payload }: NamedEvent): void {
    if (!this.#fits(payload)) throw answerTooLarge(this.#max_answer_bytes);
    this.#bytes += payload.length + 1;
    this.#events++;
    this.#hash.add(Buffer.from(String(name)));
    this.#hash.add(payload);
  }
}

/** A text delta, as most events of a stream are. The next event nearly always differs only in its text and its sequence number. */
interface RepeatedEvent {
  readonly template: ByteTemplate;
  readonly name: string | null;
  /** Bytes before its payload. */
  readonly start_bytes: number;
  /** Which of the template's holes is the text; the other one, if there is one, is the sequence number. */
  readonly text_at: 0 | 1;
}

/** Returns null where an event of the same pattern could have another meaning. */
function repeatedEvent(event: NamedEvent, { member, text, sequence }: TextDelta): RepeatedEvent | null {
  const written = bufferOf(writeNamedEvent(event)).toString('latin1');
  // An escaped name could hide a second member of that name, and a payload of several lines is written in another form.
  if (written.length > MAX_TEMPLATE_BYTES || written.includes('\\') || bufferOf(event.payload).includes('\n'))
    return null;
  const ranges = [rangeOf(written, `"${member}"`, ':"', Buffer.from(text).toString('latin1'), /^"/)];
  if (sequence !== null) ranges.push(rangeOf(written, '"sequence_number"', ':', String(sequence), /^[,}]/));
  const [first, second] = ranges;
  if (first === null || first === undefined || second === null) return null;
  const text_at = second === undefined || first.from < second.from ? 0 : 1;
  const inOrder = second === undefined ? [first] : text_at === 0 ? [first, second] : [second, first];
  const ends = [0, ...inOrder.map(({ to }) => to)];
  const starts = [...inOrder.map(({ from }) => from), written.length];
  const parts = starts.map((to, i) => new Uint8Array(Buffer.from(written.slice(ends[i], to), 'latin1')));
  const holes = inOrder.map((range): Hole => (range === first ? 'text' : 'integer'));
  const start_bytes = written.indexOf('\ndata: ') + '\ndata: '.length;
  return { template: new ByteTemplate(parts, holes), name: event.name, start_bytes, text_at };
}

/** The offsets of a member's value; null unless the member occurs once and is written exactly so. */
function rangeOf(written: string, name: string, before: string, value: string, after: RegExp): TextRange | null {
  const at = written.indexOf(name);
  const from = at + name.length + before.length;
  const to = from + value.length;
  if (at < 0 || written.indexOf(name, at + 1) >= 0) return null;
  return written.startsWith(before + value, at + name.length) && after.test(written.slice(to)) ? { from, to } : null;
}

interface TextRange {
  readonly from: number;
  readonly to: number;
}

const ATTESTATION = Buffer.from(',"attestation":');

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
