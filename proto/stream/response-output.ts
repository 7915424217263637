// The output of a final response beside what was streamed of it: docs/attestation.md §3.2.
import { isJsonObject, stringifyKeepingNumbers } from '../kept-numbers.ts';
import { FoldError } from './fold.ts';

export type Json = Record<string, unknown>;

/** A text that is streamed, and where the final response has it. */
export interface TextKind {
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
export const KINDS: ReadonlyMap<string, TextKind> = new Map([
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
export interface Place {
  readonly item_id: string | null;
  readonly output_index: number | null;
}

/** One part of an item as its events name it. Their indices may differ from those in the final response. */
export interface Part extends Place {
  readonly kind: TextKind;
  /** All its deltas; null: none came. */
  deltas: string | null;
  done: string | null;
  /** Whether its own `.done` came. */
  ended: boolean;
}

export const differs = () => new FoldError('the final response differs from what was streamed');

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
export class Output {
  readonly #items: readonly Item[];
  readonly #byId = new Map<string, Item>();
  /** All deltas of a kind, in the order in which they came. */
  readonly #shown = new Map<TextKind, string>();
  readonly #annotations = new Map<Json, ReadonlySet<string>>();
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
      const id = idOf(item.final.id);
      if (id === null) continue;
      if (this.#byId.has(id)) throw new FoldError('two items have the same id');
      this.#byId.set(id, item);
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
    const growing = [...KINDS.values()].map(({ member }) => member);
    const fixed = Object.keys(item).filter((name) => !UNSHOWN.has(name) && !growing.includes(name));
    if (fixed.some((name) => !isEmpty(item[name]) && !isSame(item[name], own(at.final, name)))) throw differs();
  }

  /** Compares a `.done` with its deltas. A call may come in one piece. */
  check({ kind, deltas, done, ...place }: Part): void {
    if (done === null || (done === '' && deltas === null && kind.parts !== undefined)) return;
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

  /** A citation that is shown is one of the item's. */
  checkAnnotation(place: Place, annotation: unknown): void {
    const { final } = this.#itemAt(place, OUTPUT_TEXT);
    if (!this.#annotations.has(final))
      this.#annotations.set(
        final,
        new Set(
          listIn(final, 'content')
            .flatMap((part) => listIn(part, 'annotations'))
            .map(stringifyKeepingNumbers),
        ),
      );
    if (this.#annotations.get(final)?.has(stringifyKeepingNumbers(annotation ?? null)) !== true) throw differs();
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
    const item = this.#byId.get(item_id ?? '') ?? this.#items[output_index ?? 0];
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
export const SHOWN_BY_TEXT = ['message', 'reasoning'];

/** The kind of a part of `content` or `summary`, by its type. */
const PART_KINDS: ReadonlyMap<unknown, TextKind> = new Map([
  ['output_text', OUTPUT_TEXT],
  ['refusal', REFUSAL],
  ['reasoning_text', REASONING],
  ['summary_text', SUMMARY],
]);

/** The texts of an item by their kinds, those of several parts joined. */
export function textsOf(item: Json): Map<TextKind, string> {
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
  for (const { member, parts } of own) if (parts === undefined) checkText(item[member]);
  for (const list of ['content', 'summary']) {
    if (!Array.isArray(item[list] ?? [])) throw new FoldError('a text is of another JSON type');
    for (const part of listIn(item, list)) {
      const kind = isJsonObject(part) ? PART_KINDS.get(part.type) : undefined;
      if (kind === undefined) continue;
      if (!own.includes(kind) || kind.parts?.[0] !== list) throw new FoldError('an item has a part of another type');
      checkText((part as Json)[kind.member]);
    }
  }
}

function checkText(value: unknown): void {
  if (typeof (value ?? '') !== 'string') throw new FoldError('a text is of another JSON type');
}

/** Text at the start of an item or a part would be shown by some clients and not by others. */
export function checkEmpty(item: Json): void {
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

export const typeOf = ({ type }: Json): string => (typeof type === 'string' ? type : '');

export const idOf = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);

export function listIn(item: unknown, name: string): readonly unknown[] {
  const list = isJsonObject(item) ? item[name] : undefined;
  return Array.isArray(list) ? list : [];
}
