// The published rule by which the chunks of a stream fold into one completion. docs/attestation.md states it in prose.
//
//  1. Members are merged in the order in which they first appear (integer-like names first, as ECMAScript orders them).
//  2. null sets a member that is absent and replaces nothing.
//  3. A string inside `delta` or `text` of an item that merges by its index (6), as choices do, is appended to what is there.
//     Set instead, the last one that is not empty winning: `role`, `id`, `type`, `name`, and every string outside
//     (`finish_reason`, `model`, …).
//  4. Numbers and booleans are set, the last one winning. A number keeps its source text.
//  5. Objects merge member by member.
//  6. Arrays whose items carry an integer `index` merge by it, and stand in its order; other arrays are appended.
//  7. `usage` is the last one that is not null, whole.
//  8. At the end a choice's `delta` becomes `message`, with role "assistant" and content null where no chunk gave one, and
//     `index` leaves its tool calls; `object` "chat.completion.chunk" becomes "chat.completion", and each choice of such a
//     stream has a `message`.
import { duplicateMember, isKeptNumber, numberOf, parseKeepingNumbers } from './json.ts';

type Json = null | boolean | number | string | object;
type Bag = Record<string, Json>;

/** Strings that are set even inside a delta. */
const SET_IN_DELTA = new Set(['role', 'id', 'type', 'name']);
/** A string beyond this is left to be quoted, an array beyond that written in batches. */
const LONG_LENGTH = 64 * 1024;
const BATCH_ITEMS = 128;
/** An index beyond this is not a position, and such an array is appended. */
const MAX_INDEX = 10_000;

/** A payload is not a JSON object. The message never quotes it. */
export class FoldError extends Error {
  override readonly name = 'FoldError';
}

/** A chunk as the fold and those who look at chunks on the way see it. */
export type Chunk = Readonly<Record<string, unknown>>;

/** Of a JSON text: a part of it, or a string that stands in it quoted. */
export type Piece = string | { readonly quote: string };

/** One `data:` payload, parsed for folding. @throws {FoldError} */
export function parseChunk(payload: string): Chunk {
  let value: unknown;
  try {
    value = parseKeepingNumbers(payload);
  } catch (cause) {
    throw new FoldError('a chunk is not JSON', { cause });
  }
  // llama-server begins some streams with `null`: an event that changes nothing.
  if (value === null) return {};
  if (!isBag(value)) throw new FoldError('a chunk is not a JSON object');
  // Readers differ in which of two members of one name they take.
  if (duplicateMember(payload) !== null) throw new FoldError('a chunk names a member twice');
  return value;
}

/** Takes chunks as they come; `text()` is the completion so far as JSON text. */
export class Fold {
  readonly #completion: Bag = bag();
  /** Arrays whose items came in another order than that of their indices. */
  readonly #unordered = new Set<Json[]>();
  /** Text that the choice at `#repeating` has yet to get: to look the choice up for each piece would cost more than the piece. */
  #repeated = '';
  #repeating = -1;

  add(chunk: Chunk): void {
    this.#settle();
    for (const key of Object.keys(chunk)) {
      const value = chunk[key] as Json;
      if (key === 'usage') {
        if (value !== null || !(key in this.#completion)) this.#completion[key] = value;
      } else this.#completion[key] = merged(this.#completion[key], value, key, false, this.#unordered);
    }
  }

  /**
   * Adds a chunk that repeats an earlier one but for the `content` of the delta of the choice at `index`. Its other members must be
   * such that a repetition changes nothing: scalars outside of deltas.
   */
  addContent(index: number, content: string): void {
    if (index !== this.#repeating) {
      this.#settle();
      this.#repeating = index;
    }
    this.#repeated += content;
  }

  #settle(): void {
    if (this.#repeating < 0) return;
    const choices = this.#completion.choices as Bag[];
    const last = choices.at(-1) as Bag;
    const choice = indexOf(last) === this.#repeating ? last : (byIndex(choices).get(this.#repeating) as Bag);
    const delta = choice.delta as Bag;
    delta.content = (delta.content as string) + this.#repeated;
    this.#repeated = '';
    this.#repeating = -1;
  }

  #finish(): void {
    this.#settle();
    for (const items of this.#unordered) order(items);
    this.#unordered.clear();
  }

  /** The JSON text of the folded completion. */
  text(): string {
    this.#finish();
    return JSON.stringify(finished(this.#completion));
  }

  /** The same text in pieces, none of which takes long to make: of a large completion the whole takes milliseconds. */
  *pieces(): Generator<Piece> {
    this.#finish();
    yield* piecesOf(finished(this.#completion));
  }
}

/** The JSON text that the pieces make. */
export function joined(pieces: readonly Piece[]): string {
  return pieces.map((piece) => (typeof piece === 'string' ? piece : JSON.stringify(piece.quote))).join('');
}

/** Folds a whole transcript: every `data:` payload but `[DONE]`, in order. @throws {FoldError} */
export function foldPayloads(payloads: Iterable<string>): string {
  const fold = new Fold();
  for (const payload of payloads) fold.add(parseChunk(payload));
  return fold.text();
}

function merged(before: Json | undefined, value: Json, key: string, inDelta: boolean, unordered: Set<Json[]>): Json {
  if (value === null) return before === undefined ? null : before;
  if (typeof value === 'string') return mergedString(before, value, key, inDelta);
  if (Array.isArray(value)) return mergedArray(Array.isArray(before) ? before : [], value, inDelta, unordered);
  if (isBag(value)) {
    const into = isBag(before) ? before : bag();
    for (const name of Object.keys(value)) {
      const inside = inDelta || (key === 'choices' && (name === 'delta' || name === 'text'));
      into[name] = merged(into[name], value[name] as Json, name, inside, unordered);
    }
    return into;
  }
  return value;
}

function mergedString(before: Json | undefined, value: string, key: string, inDelta: boolean): Json {
  if (typeof before !== 'string') return value;
  if (inDelta && !SET_IN_DELTA.has(key)) return before + value;
  return value === '' ? before : value;
}

function mergedArray(before: Json[], items: Json[], inDelta: boolean, unordered: Set<Json[]>): Json[] {
  for (const item of items) {
    const index = indexOf(item);
    if (index === null) {
      before.push(merged(undefined, item, '', inDelta, unordered));
      continue;
    }
    // The key 'choices' tells merged() that `delta` and `text` of this object are to be appended to.
    const key = inDelta ? '' : 'choices';
    // Nearly always it is the last one that grows, or one after it that begins.
    const last = before.at(-1);
    const lastIndex = last === undefined ? -1 : (indexOf(last) ?? MAX_INDEX + 1);
    const behind = lastIndex < index && !unordered.has(before);
    const found = lastIndex === index ? last : behind ? undefined : byIndex(before).get(index);
    const into = merged(found, item, key, inDelta, unordered);
    if (into === found) continue;
    if (!behind) unordered.add(before);
    before.push(into);
    indexed.get(before)?.set(index, into);
  }
  return before;
}

/** Puts items in the order of their indices; one without an index stays behind those that came before it. */
function order(items: Json[]): void {
  let highest = -1;
  const placed = items.map((item) => {
    const index = indexOf(item);
    highest = Math.max(highest, index ?? -1);
    return { item, place: index ?? highest };
  });
  placed.sort((a, b) => a.place - b.place);
  for (const [i, { item }] of placed.entries()) items[i] = item;
}

/** The items of an array by their index, once another than the last has grown: an array may be long, and would be searched for each. */
const indexed = new WeakMap<Json[], Map<number, Json>>();

function byIndex(items: Json[]): Map<number, Json> {
  const known = indexed.get(items);
  if (known !== undefined) return known;
  const found = new Map<number, Json>();
  for (const item of items) {
    const index = indexOf(item);
    if (index !== null) found.set(index, item);
  }
  indexed.set(items, found);
  return found;
}

function indexOf(item: Json | undefined): number | null {
  if (item === undefined || !isBag(item)) return null;
  const index = numberOf(item.index);
  return index !== null && Number.isInteger(index) && index >= 0 && index <= MAX_INDEX ? index : null;
}

function finished(completion: Bag): Bag {
  const out = bag();
  for (const key of Object.keys(completion)) out[key] = completion[key] as Json;
  const chat = out.object === 'chat.completion.chunk';
  if (chat) out.object = 'chat.completion';
  if (Array.isArray(out.choices))
    out.choices = out.choices.map((choice) => (isBag(choice) ? finishedChoice(choice, chat) : choice));
  return out;
}

function finishedChoice(choice: Bag, chat: boolean): Bag {
  const out = bag();
  for (const key of Object.keys(choice)) {
    if (key === 'delta') out.message = message(choice.delta as Json);
    else out[key] = choice[key] as Json;
  }
  if (chat && !('message' in out)) out.message = message(bag());
  return out;
}

function* piecesOf(value: Json): Generator<Piece> {
  if (typeof value === 'string' && value.length > LONG_LENGTH) yield { quote: value };
  else if (Array.isArray(value)) yield* arrayPieces(value);
  else if (isBag(value)) {
    let before = '{';
    for (const key of Object.keys(value)) {
      yield `${before}${JSON.stringify(key)}:`;
      yield* piecesOf(value[key] as Json);
      before = ',';
    }
    yield before === '{' ? '{}' : '}';
  } else yield JSON.stringify(value);
}

function* arrayPieces(items: readonly Json[]): Generator<Piece> {
  yield '[';
  if (items.length > BATCH_ITEMS) {
    for (let at = 0; at < items.length; at += BATCH_ITEMS) {
      const batch = JSON.stringify(items.slice(at, at + BATCH_ITEMS)).slice(1, -1);
      yield at === 0 ? batch : `,${batch}`;
    }
  } else {
    for (const [i, item] of items.entries()) {
      if (i > 0) yield ',';
      yield* piecesOf(item);
    }
  }
  yield ']';
}

function message(delta: Json): Json {
  if (!isBag(delta)) return delta;
  const out = bag();
  out.role = delta.role ?? 'assistant';
  out.content = delta.content ?? null;
  for (const key of Object.keys(delta)) if (key !== 'role' && key !== 'content') out[key] = delta[key] as Json;
  if (Array.isArray(out.tool_calls)) out.tool_calls = out.tool_calls.map(withoutIndex);
  return out;
}

function withoutIndex(call: Json): Json {
  if (!isBag(call)) return call;
  const out = bag();
  for (const key of Object.keys(call)) if (key !== 'index') out[key] = call[key] as Json;
  return out;
}

/** Without a prototype a member named `__proto__` is a member like any other. */
function bag(): Bag {
  return Object.create(null) as Bag;
}

function isBag(value: unknown): value is Bag {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !isKeptNumber(value);
}
