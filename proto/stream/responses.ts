// The published rule for streams of /v1/responses: docs/attestation.md §3.2 states it in prose. The last event holds the whole response.
// What clients showed before, texts and calls, must be what it holds, and it may hold no other.
import { topLevelMembers } from '../json.ts';
import { isJsonObject, numberOf, stringifyKeepingNumbers } from '../kept-numbers.ts';
import { type Event, type EventKind, type EventRecord, isFinalResponse, readEvent, textOf } from './events.ts';
import { broken, FoldError } from './fold.ts';

type Json = Record<string, unknown>;

/** A text that is streamed, and where the final response has it. */
interface TextKind {
  readonly name: string;
  /** The types of items that have it. */
  readonly of: readonly string[];
  /** The member with the whole text, in a `.done` event and in the final item or part. */
  readonly member: string;
  /** The item's list of parts, and the event's member with the part's index. Clients show these texts delta by delta. */
  readonly parts?: readonly [list: string, index: string];
}

const CONTENT = ['content', 'content_index'] as const;
const OUTPUT_TEXT: TextKind = { name: 'output text', of: ['message'], member: 'text', parts: CONTENT };
const REFUSAL: TextKind = { name: 'refusal', of: ['message'], member: 'refusal', parts: CONTENT };
const REASONING: TextKind = { name: 'reasoning', of: ['reasoning'], member: 'text', parts: CONTENT };
const SUMMARY: TextKind = { name: 'summary', of: ['reasoning'], member: 'text', parts: ['summary', 'summary_index'] };
const ARGUMENTS: TextKind = { name: 'arguments', of: ['function_call', 'mcp_call'], member: 'arguments' };
const INPUT: TextKind = { name: 'input', of: ['custom_tool_call'], member: 'input' };
const CODE: TextKind = { name: 'code', of: ['code_interpreter_call'], member: 'code' };
/** By the event's type without `.delta` or `.done`. */
const KINDS: ReadonlyMap<string, TextKind> = new Map([
  ['response.output_text', OUTPUT_TEXT],
  ['response.refusal', REFUSAL],
  ['response.reasoning_text', REASONING],
  ['response.reasoning_summary_text', SUMMARY],
  ['response.function_call_arguments', ARGUMENTS],
  ['response.mcp_call_arguments', ARGUMENTS],
  ['response.custom_tool_call_input', INPUT],
  ['response.code_interpreter_call_code', CODE],
]);

/** The item that an event names. null: the event does not say it. */
interface Place {
  readonly item_id: string | null;
  readonly output_index: number | null;
}

/** Deltas of one part that came one after another. */
interface Run extends Place {
  readonly kind: TextKind;
  readonly part: Part;
  text: string;
}

/** One part of an item as its events name it. Their indices may differ from those in the final response. */
interface Part extends Place {
  readonly kind: TextKind;
  /** All its deltas; null: none came. */
  deltas: string | null;
  done: string | null;
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
  /** The ids and places of calls that have begun. */
  readonly #calls = new Set<string | number | null>();
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
      if (type === 'response.output_item.added' && SHOWN_BY_TEXT.includes(typeOf(item))) return checkEmpty(item);
      const named = { ...place, item_id: idOf(item.id), item };
      if (type === 'response.output_item.done') {
        if (!SHOWN_BY_TEXT.includes(typeOf(item))) this.#checkBegun(named);
        this.#done.push(named);
      } else {
        this.#calls.add(named.item_id).add(named.output_index);
        this.#added.push(named);
        // A call may begin with some of its text.
        for (const [kind, text] of textsOf(item)) if (text !== '') this.#addText(named, kind, event, text);
      }
      return;
    }
    if (PART_EVENT.test(type) && isJsonObject(event.part)) this.#recordPart(place, event, event.part);
    const kind = KINDS.get(type.slice(0, type.lastIndexOf('.')));
    if (kind === undefined) {
      if (type.endsWith('.delta')) throw new FoldError('a delta is of a type that has no rule');
    } else if (type.endsWith('.delta')) this.#addText(place, kind, event, textOf(event.delta));
    else if (type.endsWith('.done')) this.#endText(place, kind, event, textOf(event[kind.member]));
  }

  /** `response.content_part.added` and `.done`, and those of `response.reasoning_summary_part`. */
  #recordPart(place: Place, event: Event, part: Json): void {
    const summary = event.type.includes('summary');
    const type = summary || part.type === 'reasoning_text' ? 'reasoning' : 'message';
    const item = { type, [summary ? 'summary' : 'content']: [part] };
    if (event.type.endsWith('.added')) checkEmpty(item);
    // Some engines end a part without its text.
    else for (const [kind, text] of textsOf(item)) if (text !== '') this.#endText(place, kind, event, text);
  }

  #endText(place: Place, kind: TextKind, event: Event, text: string): void {
    const part = this.#partOf(place, kind, event);
    if (part.done !== null && part.done !== text) throw new FoldError('a text ends twice');
    part.done = text;
  }

  #checkBegun({ item_id, output_index }: Place): void {
    const isKnown = [item_id, output_index].some((name) => name !== null && this.#calls.has(name));
    if (!isKnown) throw new FoldError('an event comes before the beginning of its call');
  }

  #addText(place: Place, kind: TextKind, event: Event, text: string): void {
    if (kind.parts === undefined) this.#checkBegun(place);
    const part = this.#partOf(place, kind, event);
    if (part.done !== null) throw new FoldError('a delta comes after the end of its text');
    part.deltas = (part.deltas ?? '') + text;
    const last = this.#runs.at(-1);
    if (last?.part === part) last.text += text;
    else this.#runs.push({ ...place, kind, part, text });
  }

  #partOf(place: Place, kind: TextKind, event: Event): Part {
    const index = kind.parts === undefined ? 0 : (numberOf(event[kind.parts[1]]) ?? 0);
    const key = JSON.stringify([kind.name, place.item_id, place.output_index, index]);
    const part = this.#parts.get(key) ?? { ...place, kind, deltas: null, done: null };
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
    const output = new Output(listIn(response, 'output'));
    for (const { part, kind, text: streamed, ...place } of this.#runs) output.add(place, kind, streamed);
    for (const { item, ...place } of this.#added) output.begin(place, item);
    for (const part of this.#parts.values()) output.check(part);
    for (const { item, ...place } of this.#done) output.end(place, item);
    output.compare();
    const member = topLevelMembers(text).find(({ key }) => key === 'response');
    this.#text = member === undefined ? null : text.slice(member.valueStart, member.valueEnd);
  }
}

const PART_EVENT = /^response\.(content|reasoning_summary)_part\.(added|done)$/;

const differs = () => new FoldError('the final response differs from what was streamed');

/** An item of the final response, and what was streamed of it. */
interface Item {
  readonly place: number;
  readonly final: Json;
  readonly streamed: Map<TextKind, string>;
  added: boolean;
  done: boolean;
  /** The id that the events of a call give it; null: none came. */
  name: string | null;
}

/** The output of the final response, beside what was streamed. */
class Output {
  readonly #items: readonly Item[];
  readonly #byId = new Map<string, Item | null>();
  /** All deltas of a kind, in the order in which they came. */
  readonly #shown = new Map<TextKind, string>();
  /** The place of the item that was announced last. */
  #last = -1;
  /** The calls by the ids that their events give them. Some clients join calls by these. */
  readonly #calls = new Map<string, Item>();

  constructor(output: readonly unknown[]) {
    this.#items = output.map((item, place) => ({
      place,
      final: isJsonObject(item) ? item : {},
      streamed: new Map(),
      added: false,
      done: false,
      name: null,
    }));
    for (const item of this.#items) {
      // An id that stands twice names no item.
      const id = idOf(item.final.id);
      if (id !== null) this.#byId.set(id, this.#byId.has(id) ? null : item);
    }
  }

  add(place: Place, kind: TextKind, text: string): void {
    const { streamed } = this.#itemAt(place, kind);
    streamed.set(kind, (streamed.get(kind) ?? '') + text);
    this.#shown.set(kind, (this.#shown.get(kind) ?? '') + text);
  }

  /** `response.output_item.added` of a call. */
  begin(place: Place, item: Json): void {
    const at = this.#itemAt(place);
    if (at.added) throw new FoldError('an item comes twice');
    checkMembers(item);
    if (at.place < this.#last) throw new FoldError('items come in another order');
    at.added = true;
    this.#last = at.place;
    if (IDENTITY.some((name) => (item[name] ?? '') !== (at.final[name] ?? ''))) throw differs();
  }

  /** Compares a `.done` with its deltas. A call may come in one piece. */
  check({ kind, deltas, done, ...place }: Part): void {
    if (done === null || (done === '' && deltas === null)) return;
    const { streamed } = this.#itemAt(place, kind);
    if (kind.parts === undefined && !streamed.has(kind)) streamed.set(kind, done);
    // Some engines give the `.done` another id than its deltas.
    else if (done !== (deltas ?? streamed.get(kind) ?? '')) throw differs();
  }

  /** `response.output_item.done`: some clients take calls from it. */
  end(place: Place, item: Json): void {
    const at = this.#itemAt(place);
    if (at.done) throw new FoldError('an item comes twice');
    at.done = true;
    if (!isSame(item, at.final)) throw differs();
  }

  /** @throws {FoldError} unless the output is what was streamed. */
  compare(): void {
    const all = new Map<TextKind, string>();
    const calls = this.#items.map(({ final }) => idOf(final.call_id)).filter((id) => id !== null);
    if (new Set(calls).size < calls.length) throw new FoldError('two calls have the same id');
    for (const { final, streamed, added, done } of this.#items) {
      checkMembers(final);
      const texts = textsOf(final);
      for (const [kind, text] of texts) {
        if (kind.parts !== undefined) all.set(kind, (all.get(kind) ?? '') + text);
        if ((streamed.get(kind) ?? '') !== text) throw differs();
      }
      for (const [kind, text] of streamed) if (text !== '' && !texts.has(kind)) throw differs();
      // Some clients take a call from its beginning, others from its end.
      if (!(added && done) && !SHOWN_BY_TEXT.includes(typeOf(final))) throw differs();
    }
    // Parts and items that were streamed interleaved would be shown in another order.
    for (const [kind, text] of this.#shown)
      if (kind.parts !== undefined && text !== (all.get(kind) ?? '')) throw differs();
  }

  #itemAt({ item_id, output_index }: Place, kind?: TextKind): Item {
    const item = (item_id === null ? null : this.#byId.get(item_id)) ?? this.#items[output_index ?? 0];
    if (item === undefined || kind?.of.includes(typeOf(item.final)) === false) throw differs();
    // Some clients join calls by their place, and pass over a text at the place of a call.
    const atPlace = this.#items[output_index ?? item.place] ?? item;
    const fits = SHOWN_BY_TEXT.includes(typeOf(item.final)) ? atPlace.final.type === item.final.type : false;
    if (!fits && output_index !== item.place) throw differs();
    if (item_id !== null && !SHOWN_BY_TEXT.includes(typeOf(item.final))) {
      item.name ??= item_id;
      if (item.name !== item_id || (this.#calls.get(item_id) ?? item) !== item) throw differs();
      this.#calls.set(item_id, item);
    }
    return item;
  }
}

/** Members of a call by which clients tell it, from its first event on. */
const IDENTITY = ['type', 'name', 'call_id'];
/** Items that are nothing but their texts. All others must be announced. */
const SHOWN_BY_TEXT = ['message', 'reasoning'];

/** The kind of a part of `content` or `summary`, by its type. */
const PART_KINDS: ReadonlyMap<unknown, TextKind> = new Map([
  ['output_text', OUTPUT_TEXT],
  ['refusal', REFUSAL],
  ['reasoning_text', REASONING],
  ['summary_text', SUMMARY],
]);

/** The texts of an item by their kinds, those of several parts joined. */
function textsOf(item: Json): Map<TextKind, string> {
  const texts = new Map<TextKind, string>();
  const put = (kind: TextKind | undefined, holder: unknown) => {
    if (kind === undefined || !isJsonObject(holder) || !kind.of.includes(typeOf(item))) return;
    const text = holder[kind.member];
    if (typeof text === 'string') texts.set(kind, (texts.get(kind) ?? '') + text);
  };
  for (const list of ['content', 'summary'])
    for (const part of listIn(item, list)) {
      const kind = PART_KINDS.get(isJsonObject(part) ? part.type : null);
      if (kind?.parts?.[0] === list) put(kind, part);
    }
  for (const kind of [ARGUMENTS, INPUT, CODE]) put(kind, item);
  return texts;
}

/** Refuses an item with a text of another type: some clients take it for this item's. */
function checkMembers(item: Json): void {
  const own = [...KINDS.values()].filter(({ of }) => of.includes(typeOf(item)));
  if (own.length === 0) return;
  const names = own.map(({ member, parts }) => parts?.[0] ?? member);
  const calls = SHOWN_BY_TEXT.includes(typeOf(item)) ? ['name', 'call_id'] : [];
  for (const name of ['content', 'summary', 'arguments', 'input', 'code', ...calls])
    if (!names.includes(name) && !isEmpty(item[name])) throw new FoldError('an item has the text of another type');
  if (
    own.some(({ member, parts }) => parts === undefined && !isEmpty(item[member]) && typeof item[member] !== 'string')
  )
    throw new FoldError('a text is of another JSON type');
  for (const list of ['content', 'summary'])
    for (const part of listIn(item, list)) {
      const kind = isJsonObject(part) ? PART_KINDS.get(part.type) : undefined;
      if (kind !== undefined && !own.includes(kind)) throw new FoldError('an item has a part of another type');
    }
}

/** Text at the start of an item or a part would be shown by some clients and not by others. */
function checkEmpty(item: Json): void {
  checkMembers(item);
  for (const text of textsOf(item).values())
    if (text !== '') throw new FoldError('an item begins with text that is no delta');
}

/** Members that engines write anew for the final response, or take from the event: neither texts nor calls. */
const UNSHOWN = new Set(['id', 'status', 'logprobs', 'item_id', 'output_index', 'sequence_number']);

/** Whether two items show the same. Empty members count as absent ones. */
function isSame(a: unknown, b: unknown): boolean {
  if (isEmpty(a) || isEmpty(b)) return isEmpty(a) && isEmpty(b);
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((one, i) => isSame(one, b[i]));
  if (!isJsonObject(a)) return stringifyKeepingNumbers(a) === stringifyKeepingNumbers(b);
  if (!isJsonObject(b)) return false;
  return [...new Set([...Object.keys(a), ...Object.keys(b)])].every(
    (name) => UNSHOWN.has(name) || isSame(own(a, name), own(b, name)),
  );
}

const own = (value: Json, name: string): unknown => (Object.hasOwn(value, name) ? value[name] : null);

function isEmpty(value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  return (
    value === undefined || value === null || value === '' || (isJsonObject(value) && Object.keys(value).length === 0)
  );
}

const typeOf = ({ type }: Json): string => (typeof type === 'string' ? type : '');

const idOf = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);

function listIn(item: unknown, name: string): readonly unknown[] {
  const list = isJsonObject(item) ? item[name] : undefined;
  return Array.isArray(list) ? list : [];
}
