// The published rule for streams of /v1/responses: docs/attestation.md §3.2 states it in prose. The last event holds the whole response.
// What clients showed before, texts and calls, must be what it holds, and it may hold no other.
import { topLevelMembers } from '../json.ts';
import { isJsonObject, numberOf } from '../kept-numbers.ts';
import { type Event, type EventKind, type EventRecord, isFinalResponse, readEvent, textOf } from './events.ts';
import { broken, FoldError } from './fold.ts';
import {
  checkEmpty,
  differs,
  idOf,
  type Json,
  KINDS,
  listIn,
  Output,
  type Part,
  type Place,
  SHOWN_BY_TEXT,
  type TextKind,
  textsOf,
  typeOf,
} from './response-output.ts';

/** Deltas of one part that came one after another. */
interface Run extends Place {
  readonly kind: TextKind;
  readonly part: Part;
  text: string;
}

interface Announced extends Place {
  readonly item: Json;
}

export class ResponseEvents implements EventRecord {
  #id: string | null = null;
  #model = '';
  #begun = false;
  #sequence = Number.NEGATIVE_INFINITY;
  readonly #parts = new Map<string, Part>();
  readonly #runs: Run[] = [];
  readonly #added: Announced[] = [];
  readonly #done: Announced[] = [];
  /** Messages and reasoning that have begun. */
  readonly #texts = new Set<string>();
  /** The part's index in the last delta of a kind and an item. */
  readonly #lastIndices = new Map<string, number | null>();
  readonly #annotations: Announced[] = [];
  /** The call that has begun and not ended. */
  #openCall: Place | null = null;
  #text: string | null = null;

  get id(): string | null {
    return this.#id;
  }

  add(name: string | null, text: string): EventKind {
    const event = readEvent(name, text);
    const { type } = event;
    if (type === 'error') return 'error';
    if (this.#text !== null) throw broken('an event comes after the final one');
    this.#checkOrder(type, event);
    if (type === 'response.failed') return 'error';
    if (isFinalResponse(type)) {
      this.#finish(event, text);
      return 'final';
    }
    if (isJsonObject(event.response) && listIn(event.response, 'output').length > 0)
      throw new FoldError('a response begins with output');
    this.#record(type, event);
    return 'delta';
  }

  text(): string {
    if (this.#text === null) throw broken('the stream ended before its response was complete');
    return this.#text;
  }

  #checkOrder(type: string, event: Event): void {
    if ((type === 'response.created') === this.#begun)
      throw broken(this.#begun ? 'a second response begins' : 'the response has not begun');
    this.#begun = true;
    const sequence = numberOf(event.sequence_number);
    if (sequence !== null && sequence < this.#sequence) throw broken('the events are out of order');
    this.#sequence = sequence ?? this.#sequence;
    if (!isJsonObject(event.response)) return;
    const { id, model } = event.response;
    if (this.#id !== null && typeof id === 'string' && id !== this.#id) throw new FoldError('two responses are mixed');
    if (typeof id === 'string') this.#id = id;
    if ((model ?? '') === '') return;
    if (typeof model !== 'string') throw new FoldError('the model is no text');
    if (this.#model !== '' && model !== this.#model) throw new FoldError('the model changes');
    this.#model = model;
  }

  #record(type: string, event: Event): void {
    const place = { item_id: idOf(event.item_id), output_index: numberOf(event.output_index) };
    if (type === 'response.output_item.added' || type === 'response.output_item.done') {
      if (!isJsonObject(event.item)) throw new FoldError('an event has no item');
      const { item } = event;
      // Messages and reasoning show nothing before their first delta, and vLLM announces some of them under another's id.
      if (type === 'response.output_item.added' && SHOWN_BY_TEXT.includes(typeOf(item))) {
        const name = JSON.stringify([item.type, item.id, place.output_index]);
        if (this.#texts.has(name)) throw new FoldError('an item comes twice');
        this.#texts.add(name);
        return checkEmpty(item);
      }
      const named = { ...place, item_id: idOf(item.id), item };
      if (type === 'response.output_item.done') {
        if (!SHOWN_BY_TEXT.includes(typeOf(item))) {
          this.#checkOpen(named);
          this.#openCall = null;
        }
        this.#done.push(named);
      } else {
        if (this.#openCall !== null) throw new FoldError('a call begins before another has ended');
        this.#openCall = named;
        this.#added.push(named);
        // A call may begin with some of its text.
        for (const [kind, text] of textsOf(item)) if (text !== '') this.#addText(named, kind, event, text);
      }
      return;
    }
    if (PART_EVENT.test(type) && isJsonObject(event.part)) this.#recordPart(place, event, event.part);
    const kind = KINDS.get(type.slice(0, type.lastIndexOf('.')));
    if (kind === undefined) {
      if (!EVENTS.test(type)) throw new FoldError('an event is of a type that has no rule');
      if (type === ANNOTATION) this.#annotations.push({ ...place, item: { annotation: event.annotation } });
    } else if (type.endsWith('.delta')) this.#addText(place, kind, event, textOf(event.delta));
    else if (type.endsWith('.done')) {
      const part = this.#endText(place, kind, event, textOf(event[kind.member]));
      // Some clients take the text from here each time.
      if (part.ended) throw new FoldError('a text ends twice');
      part.ended = true;
    }
  }

  /** `response.content_part.added` and `.done`, and those of `reasoning_part` (vLLM) and `reasoning_summary_part`. */
  #recordPart(place: Place, event: Event, part: Json): void {
    const summary = event.type.includes('summary');
    const type = summary || part.type === 'reasoning_text' ? 'reasoning' : 'message';
    const item = { type, [summary ? 'summary' : 'content']: [part] };
    if (event.type.endsWith('.added')) checkEmpty(item);
    // Some engines end a part without its text.
    else for (const [kind, text] of textsOf(item)) if (text !== '') this.#endText(place, kind, event, text);
  }

  #endText(place: Place, kind: TextKind, event: Event, text: string): Part {
    if (kind.parts === undefined) this.#checkOpen(place);
    const part = this.#partOf(place, kind, event);
    if (part.done !== null && part.done !== text) throw new FoldError('a text ends twice');
    part.done = text;
    return part;
  }

  #checkOpen({ item_id, output_index }: Place): void {
    const open = this.#openCall;
    const isOpen =
      (item_id !== null && item_id === open?.item_id) || (output_index !== null && output_index === open?.output_index);
    if (!isOpen) throw new FoldError('an event is of no call that is open');
  }

  /** Clients order parts by their indices, or as they come. */
  #checkIndex({ item_id, output_index }: Place, { name, parts }: TextKind, event: Event): void {
    const index = parts === undefined ? null : numberOf(event[parts[1]]);
    const key = JSON.stringify([name, item_id, output_index]);
    const last = this.#lastIndices.get(key) ?? (this.#lastIndices.has(key) ? null : index);
    if ((last === null) !== (index === null) || (index ?? 0) < (last ?? 0))
      throw new FoldError('parts come in another order');
    this.#lastIndices.set(key, index);
  }

  #addText(place: Place, kind: TextKind, event: Event, text: string): void {
    if (kind.parts === undefined) this.#checkOpen(place);
    else this.#checkIndex(place, kind, event);
    const part = this.#partOf(place, kind, event);
    if (part.done !== null) throw new FoldError('a delta comes after the end of its text');
    part.deltas = (part.deltas ?? '') + text;
    const last = this.#runs.at(-1);
    if (last?.part === part) last.text += text;
    else this.#runs.push({ ...place, kind, part, text });
  }

  #partOf(place: Place, kind: TextKind, event: Event): Part {
    const index = kind.parts === undefined ? null : numberOf(event[kind.parts[1]]);
    const key = JSON.stringify([kind.name, place.item_id, place.output_index, index]);
    const part = this.#parts.get(key) ?? { ...place, kind, deltas: null, done: null, ended: false };
    this.#parts.set(key, part);
    return part;
  }

  #finish(event: Event, text: string): void {
    const { response } = event;
    if (!isJsonObject(response) || Object.keys(response).length === 0) throw broken('the final event has no response');
    if (Object.hasOwn(response, 'attestation')) throw broken('the response has an attestation of its own');
    if ((response.error ?? null) !== null) throw broken('the final response has an error');
    // They are shown from the first event on.
    if ((this.#id !== null && response.id !== this.#id) || (this.#model !== '' && response.model !== this.#model))
      throw differs();
    if (!Array.isArray(response.output ?? [])) throw differs();
    const output = new Output(listIn(response, 'output'));
    for (const { part, kind, text: streamed, ...place } of this.#runs) output.add(place, kind, streamed);
    for (const { item, ...place } of this.#added) output.begin(place, item);
    for (const part of this.#parts.values()) output.check(part);
    for (const { item, ...place } of this.#done) output.end(place, item);
    for (const { item, ...place } of this.#annotations) output.checkAnnotation(place, item.annotation);
    output.compare();
    const member = topLevelMembers(text).find(({ key }) => key === 'response');
    this.#text = member === undefined ? null : text.slice(member.valueStart, member.valueEnd);
  }
}

const ANNOTATION = 'response.output_text.annotation.added';
/** Other events: they tell of states, and show nothing. A client could show one of a new type. */
const EVENTS =
  /^(keepalive|ping|response\.(created|queued|in_progress|(content|reasoning|reasoning_summary)_part\.(added|done)|output_text\.annotation\.added|(web_search|file_search|code_interpreter|image_generation|mcp)_call\.(in_progress|searching|interpreting|generating|partial_image|completed|failed)|mcp_list_tools\.(in_progress|completed|failed)))$/;
const PART_EVENT = /^response\.(content|reasoning|reasoning_summary)_part\.(added|done)$/;
