// The published rule for folding the chunks of a stream into one completion. docs/attestation.md states it in prose.
//
//  1. Members are merged in the order in which they first appear (integer-like names first, as ECMAScript orders them).
//  2. null sets a member that is absent and replaces nothing.
//  3. A string inside `delta` or `text` of an item that merges by its index (6), as choices do, is appended to the earlier string.
//     `role`, `id`, `type`, `name` and every string outside of these (`finish_reason`, `model`, …) are set instead, and the last one
//     that is not empty wins.
//  4. Numbers and booleans are set, and the last one wins. A number keeps its source text.
//  5. Objects merge member by member.
//  6. Arrays whose items have an integer `index` merge by it and are sorted by it; other arrays are appended.
//  7. The last `usage` that is not null is taken whole.
//  8. At the end a choice's `delta` becomes `message`, with role "assistant" and content null where no chunk gave one, and
//     `index` is removed from its tool calls; `object` "chat.completion.chunk" becomes "chat.completion", and each choice of such a
//     stream has a `message`.
import { duplicateMember } from '../json.ts';
import {
  isJsonObject,
  type Json,
  type JsonObject,
  numberOf,
  parseKeepingNumbers,
  stringifyKeepingNumbers,
} from '../kept-numbers.ts';

/** Strings that are set, even inside a delta. */
export const SET_IN_DELTA: ReadonlySet<string> = new Set(['role', 'id', 'type', 'name']);
/** A longer string is serialized by the caller, a longer array in batches. */
const LONG_LENGTH = 64 * 1024;
const BATCH_ITEMS = 128;
/** An item with a larger index counts as one without an index. */
const MAX_INDEX = 10_000;

/** A payload is not a JSON object, or does not fit into its stream. The message never quotes it. */
export class FoldError extends Error {
  override readonly name = 'FoldError';
}

/** A parsed chunk, for the fold and for code that inspects chunks. */
export type Chunk = Readonly<Record<string, unknown>>;

/** A part of a JSON text, or a string that the part contains quoted. */
export type JsonPart = string | { readonly quote: string };

/** Parses one `data:` payload for folding. @throws {FoldError} */
export function parseChunk(payload: string): Chunk {
  let value: unknown;
  try {
    value = parseKeepingNumbers(payload);
  } catch (cause) {
    throw new FoldError('a chunk is not JSON', { cause });
  }
  // llama-server begins some streams with `null`, an event without content.
  if (value === null) return {};
  if (!isJsonObject(value)) throw new FoldError('a chunk is not a JSON object');
  // Parsers differ in which of two members with the same name they take.
  if (duplicateMember(payload) !== null) throw new FoldError('a chunk names a member twice');
  return value;
}

/** Folds chunks as they arrive. `text()` returns the completion so far as JSON text. */
export class Fold {
  readonly #completion: JsonObject = newObject();
  /** Arrays whose items arrived out of the order of their indices. */
  readonly #unordered = new Set<Json[]>();
  /** Text for the choice at `#pendingIndex`, added later: a lookup of the choice for each chunk would cost more than the chunk. */
  #pendingText = '';
  #pendingIndex = -1;

  add(chunk: Chunk): void {
    this.#addPending();
    for (const key of Object.keys(chunk)) {
      const value = chunk[key] as Json;
      if (key === 'usage') {
        if (value !== null || !(key in this.#completion)) this.#completion[key] = value;
      } else this.#completion[key] = merged(this.#completion[key], value, key, false, this.#unordered);
    }
  }

  /**
   * Adds a chunk that repeats an earlier one except for the `content` of the delta of the choice at `index`. Its other members must have no
   * effect when repeated: scalars outside of deltas.
   */
  addContent(index: number, content: string): void {
    if (index !== this.#pendingIndex) {
      this.#addPending();
      this.#pendingIndex = index;
    }
    this.#pendingText += content;
  }

  #addPending(): void {
    if (this.#pendingIndex < 0) return;
    const choices = this.#completion.choices as JsonObject[];
    const last = choices.at(-1) as JsonObject;
    const choice =
      indexOf(last) === this.#pendingIndex ? last : (byIndex(choices).get(this.#pendingIndex) as JsonObject);
    const delta = choice.delta as JsonObject;
    delta.content = (delta.content as string) + this.#pendingText;
    this.#pendingText = '';
    this.#pendingIndex = -1;
  }

  #finish(): void {
    this.#addPending();
    for (const items of this.#unordered) order(items);
    this.#unordered.clear();
  }

  /** The JSON text of the folded completion. */
  text(): string {
    this.#finish();
    return stringifyKeepingNumbers(finished(this.#completion));
  }

  /** The same text in parts, each of which is made quickly. Serializing a large completion at once takes milliseconds. */
  *parts(): Generator<JsonPart> {
    this.#finish();
    yield* partsOf(finished(this.#completion));
  }
}

/** Joins the parts to a JSON text. */
export function joined(parts: readonly JsonPart[]): string {
  return parts.map((part) => (typeof part === 'string' ? part : JSON.stringify(part.quote))).join('');
}

/** Folds a whole transcript: all `data:` payloads in order, without `[DONE]`. @throws {FoldError} */
export function foldPayloads(payloads: Iterable<string>): string {
  const fold = new Fold();
  for (const payload of payloads) fold.add(parseChunk(payload));
  return fold.text();
}

function merged(before: Json | undefined, value: Json, key: string, inDelta: boolean, unordered: Set<Json[]>): Json {
  if (value === null) return before === undefined ? null : before;
  if (typeof value === 'string') return mergedString(before, value, key, inDelta);
  if (Array.isArray(value)) return mergedArray(Array.isArray(before) ? before : [], value, inDelta, unordered);
  if (isJsonObject(value)) {
    const into = isJsonObject(before) ? before : newObject();
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
    // The key 'choices' tells merged() to append to `delta` and `text` of this object.
    const key = inDelta ? '' : 'choices';
    // Nearly always the last item grows, or a new one begins after it.
    const last = before.at(-1);
    const lastIndex = last === undefined ? -1 : (indexOf(last) ?? MAX_INDEX + 1);
    const comesLast = lastIndex < index && !unordered.has(before);
    const found = lastIndex === index ? last : comesLast ? undefined : byIndex(before).get(index);
    const into = merged(found, item, key, inDelta, unordered);
    if (into === found) continue;
    if (!comesLast) unordered.add(before);
    before.push(into);
    indexed.get(before)?.set(index, into);
  }
  return before;
}

/** Sorts items by their indices. An item without an index stays after the items that came before it. */
function order(items: Json[]): void {
  let highest = -1;
  const ranked = items.map((item) => {
    const index = indexOf(item);
    highest = Math.max(highest, index ?? -1);
    return { item, rank: index ?? highest };
  });
  ranked.sort((a, b) => a.rank - b.rank);
  for (const [i, { item }] of ranked.entries()) items[i] = item;
}

/** The items of an array by index, built when an item other than the last grows. It avoids a search of a long array for each chunk. */
const indexed = new WeakMap<Json[], Map<number, Json>>();

function byIndex(items: Json[]): Map<number, Json> {
  const cached = indexed.get(items);
  if (cached !== undefined) return cached;
  const found = new Map<number, Json>();
  for (const item of items) {
    const index = indexOf(item);
    if (index !== null) found.set(index, item);
  }
  indexed.set(items, found);
  return found;
}

function indexOf(item: Json | undefined): number | null {
  if (item === undefined || !isJsonObject(item)) return null;
  const index = numberOf(item.index);
  return index !== null && Number.isInteger(index) && index >= 0 && index <= MAX_INDEX ? index : null;
}

function finished(completion: JsonObject): JsonObject {
  const out = newObject();
  for (const key of Object.keys(completion)) out[key] = completion[key] as Json;
  const chat = out.object === 'chat.completion.chunk';
  if (chat) out.object = 'chat.completion';
  if (Array.isArray(out.choices))
    out.choices = out.choices.map((choice) => (isJsonObject(choice) ? finishedChoice(choice, chat) : choice));
  return out;
}

function finishedChoice(choice: JsonObject, chat: boolean): JsonObject {
  const out = newObject();
  for (const key of Object.keys(choice)) {
    if (key === 'delta') out.message = message(choice.delta as Json);
    else out[key] = choice[key] as Json;
  }
  if (chat && !('message' in out)) out.message = message(newObject());
  return out;
}

function* partsOf(value: Json): Generator<JsonPart> {
  if (typeof value === 'string' && value.length > LONG_LENGTH) yield { quote: value };
  else if (Array.isArray(value)) yield* arrayParts(value);
  else if (isJsonObject(value)) {
    let before = '{';
    for (const key of Object.keys(value)) {
      yield `${before}${JSON.stringify(key)}:`;
      yield* partsOf(value[key] as Json);
      before = ',';
    }
    yield before === '{' ? '{}' : '}';
  } else yield stringifyKeepingNumbers(value);
}

function* arrayParts(items: readonly Json[]): Generator<JsonPart> {
  yield '[';
  if (items.length > BATCH_ITEMS) {
    for (let at = 0; at < items.length; at += BATCH_ITEMS) {
      const batch = stringifyKeepingNumbers(items.slice(at, at + BATCH_ITEMS)).slice(1, -1);
      yield at === 0 ? batch : `,${batch}`;
    }
  } else {
    for (const [i, item] of items.entries()) {
      if (i > 0) yield ',';
      yield* partsOf(item);
    }
  }
  yield ']';
}

function message(delta: Json): Json {
  if (!isJsonObject(delta)) return delta;
  const out = newObject();
  out.role = delta.role ?? 'assistant';
  out.content = delta.content ?? null;
  for (const key of Object.keys(delta)) if (key !== 'role' && key !== 'content') out[key] = delta[key] as Json;
  if (Array.isArray(out.tool_calls)) out.tool_calls = out.tool_calls.map(withoutIndex);
  return out;
}

function withoutIndex(call: Json): Json {
  if (!isJsonObject(call)) return call;
  const out = newObject();
  for (const key of Object.keys(call)) if (key !== 'index') out[key] = call[key] as Json;
  return out;
}

/** Without a prototype, a member named `__proto__` is an ordinary member. */
function newObject(): JsonObject {
  return Object.create(null) as JsonObject;
}
