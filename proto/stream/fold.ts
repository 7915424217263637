// The published rule for folding the chunks of a completion's stream into one completion: docs/attestation.md §3.1 states it in prose.
//
// Members that clients show (texts, reasoning, refusals, calls, identity, usage) are listed below, each with the way in which its values
// are joined. A value that would lose, double, replace or invent something of these makes the stream no foldable stream. Every other member
// is carried: it cannot touch these.
import { duplicateMember, endOfValue, JsonTextError, skipSpace } from '../json.ts';
import {
  isJsonObject,
  type Json,
  type JsonObject,
  numberOf,
  parseKeepingNumbers,
  stringifyKeepingNumbers,
} from '../kept-numbers.ts';
import { byIndex, indexOf, isIndex, type Join, order, put, type Unordered } from './indexed-list.ts';

/** The payloads of a stream do not fold. The message never quotes them. */
export class FoldError extends Error {
  override readonly name = 'FoldError';
  /** `rule`: clients would show something else than the response says. `broken`: it is no whole stream of its form. */
  readonly reason: 'rule' | 'broken';
  constructor(message: string, options?: ErrorOptions, reason: FoldError['reason'] = 'rule') {
    super(message, options);
    this.reason = reason;
  }
}

/** The error for a stream that cannot be read, breaks off, or has an event out of place. */
export const broken = (message: string, cause?: unknown): FoldError => new FoldError(message, { cause }, 'broken');

/** A parsed chunk, for the fold and for code that inspects chunks. */
export type Chunk = Readonly<Record<string, unknown>>;

/** Parses one `data:` payload for folding. @throws {FoldError} */
export function parseChunk(payload: string): Chunk {
  let value: unknown;
  try {
    value = parseKeepingNumbers(payload);
  } catch (cause) {
    throw broken('a chunk is not JSON', cause);
  }
  // llama-server begins some streams with `null`, an event without content.
  if (value === null) return {};
  if (!isJsonObject(value)) throw broken('a chunk is not a JSON object');
  // Parsers differ in which of two members with the same name they take. Copied into another object, `__proto__` is its prototype.
  const name = duplicateMember(payload, '__proto__');
  if (name === '__proto__') throw new FoldError('a chunk names __proto__');
  if (name !== null) throw broken('a chunk names a member twice');
  return value;
}

/** Whether a payload, or a whole response, is an error: OpenAI's and Anthropic's member, or vLLM's object. */
export const isError = ({ error, object }: Readonly<Record<string, unknown>>): boolean =>
  (error ?? null) !== null || object === 'error';

// How the values of a member are joined.

type Members = Readonly<Record<string, Join>>;

const wrong = (message: string): never => {
  throw new FoldError(message);
};
const stringOf = (value: Json): string => (typeof value === 'string' ? value : wrong('a shown member is no text'));
const objectOf = (value: Json): JsonObject => (isJsonObject(value) ? value : wrong('a shown member is no object'));
const listOf = (value: Json): readonly Json[] => (Array.isArray(value) ? value : wrong('a shown member is no list'));

const appended: Join = (before, value) => ((before as string | undefined) ?? '') + stringOf(value);

/** Empty strings say nothing. */
const once: Join = (before = '', value) => {
  const text = stringOf(value);
  return before === '' || text === before ? text : text === '' ? before : wrong('a member changes that is set once');
};

/** Engines write another `id` or `created` into each chunk, and empty ones beside annotations. */
const first: Join = (before = '', value) => {
  if (typeof value !== 'string' && numberOf(value) === null) wrong('an id or a time is neither text nor number');
  return before === '' || before === 0 ? value : before;
};

const whole: Join = (_before, value) => objectOf(value);

const SCALAR = /^[ \t\n\r]*[^"[{ \t\n\r]/;

/** Arguments are JSON, so a client may take the first complete value for all of it. {@link checkArguments} sees to objects, lists and texts. */
const jsonText: Join = (before = '', value) => {
  if (SCALAR.test(before as string) && /[^ \t\n\r]/.test(stringOf(value))) wrong('arguments go on after their end');
  return before + stringOf(value);
};

function object(members: Members): Join {
  return (before, value, unordered) =>
    mergeInto((before as JsonObject) ?? newObject(), objectOf(value), members, unordered);
}

/** @param members those that are shown; all others are carried. */
function mergeInto(into: JsonObject, value: JsonObject, members: Members, unordered: Unordered): JsonObject {
  for (const name of Object.keys(value)) {
    const added = value[name] as Json;
    const before = into[name];
    if (added === null) into[name] = before ?? null;
    else {
      const join = Object.hasOwn(members, name) ? (members[name] as Join) : carried;
      into[name] = join(before ?? undefined, added, unordered);
    }
  }
  return into;
}

/** A list whose items clients show one after another. */
const added: Join = (before, value) => [...((before as Json[] | undefined) ?? []), ...listOf(value)];

/** A list of items that clients tell apart by their indices. @param inOrder whether a new item has a greater index than all others. */
function indexedList(join: Join, inOrder: boolean): Join {
  return (before, value, unordered) => {
    const list = (before as Json[] | undefined) ?? [];
    const seen = new Set<number>();
    for (const item of listOf(value)) {
      const { index } = objectOf(item);
      // Clients disagree about indices that are written in another way, such as 1.0.
      if (typeof index !== 'number' || !isIndex(index)) throw new FoldError('an item has no index');
      if (seen.has(index)) throw new FoldError('an index stands twice in a chunk');
      seen.add(index);
      if (inOrder && index < (indexOf(list.at(-1)) ?? -1) && !byIndex(list).has(index))
        throw new FoldError('an item comes before those of lower indices');
      put(list, index, item, join, unordered);
    }
    return list;
  };
}

const kindOf = (value: Json): string =>
  Array.isArray(value) ? 'list' : numberOf(value) !== null ? 'number' : typeof value;

/** Every other member. Objects and lists grow, any other value replaces the one before. */
function carried(before: Json | undefined, value: Json, unordered: Unordered): Json {
  if (before !== undefined && kindOf(before) !== kindOf(value)) throw new FoldError('a member changes its JSON type');
  if (typeof value === 'string') return value === '' && typeof before === 'string' ? before : value;
  if (Array.isArray(value)) {
    const list: Json[] = Array.isArray(before) ? before : [];
    for (const item of value as Json[]) {
      const index = indexOf(item);
      if (index === null) list.push(item === null ? null : carried(undefined, item, unordered));
      else put(list, index, item, carried, unordered);
    }
    return list;
  }
  if (!isJsonObject(value)) return value;
  return mergeInto(before !== undefined && isJsonObject(before) ? before : newObject(), value, {}, unordered);
}

// Content is a text, or a list of parts.

interface TextPart {
  readonly type: 'text';
  readonly text: string;
}

function content(before: Json | undefined, value: Json): Json {
  if (typeof value === 'string' && !Array.isArray(before)) return appended(before, value, new Set());
  const parts: Json[] = Array.isArray(before) ? before : [];
  if (typeof before === 'string') addPart(parts, { type: 'text', text: before });
  if (typeof value === 'string') addPart(parts, { type: 'text', text: value });
  else for (const part of listOf(value)) addPart(parts, objectOf(part));
  return parts;
}

/** Contents with a part that is reasoning. */
const thoughtful = new WeakSet<object>();

function addPart(parts: Json[], part: object): void {
  // Some clients merge parts by their index, others do not.
  if ('index' in part) throw new FoldError('a part of content has an index');
  const last = parts.at(-1);
  if ('type' in part && (part.type === 'thinking' || part.type === 'reasoning')) thoughtful.add(parts);
  if (!isTextPart(part)) parts.push(part);
  else if (last !== undefined && isTextPart(last))
    parts[parts.length - 1] = { type: 'text', text: last.text + part.text };
  else if (part.text !== '') parts.push({ type: 'text', text: part.text });
}

const isTextPart = (part: Json): part is TextPart =>
  isJsonObject(part) && part.type === 'text' && typeof part.text === 'string' && Object.keys(part).length === 2;

/** The text where the parts are nothing but text. */
function finishedContent(value: Json | undefined): Json {
  if (!Array.isArray(value)) return value ?? null;
  const [part, ...more] = value as Json[];
  if (part === undefined) return '';
  return more.length === 0 && isTextPart(part) ? part.text : value;
}

// The members that are shown.

const DETAIL = object({
  type: once,
  id: once,
  format: once,
  text: appended,
  summary: appended,
  data: appended,
});

/** Fragments have the index of their detail. A detail of another type may have the same index. */
function details(before: Json | undefined, value: Json, unordered: Unordered): Json {
  const list = (before as Json[] | undefined) ?? [];
  for (const item of listOf(value)) {
    const index = indexOf(item);
    const known = index === null ? undefined : (byIndex(list).get(index) as JsonObject | undefined);
    const { type } = objectOf(item);
    const same =
      known !== undefined && ((known.type ?? null) === null || (type ?? null) === null || known.type === type);
    const into = DETAIL(same ? known : undefined, item, unordered);
    if (same) continue;
    list.push(into);
    if (index !== null) byIndex(list).set(index, into);
  }
  return list;
}

const mergeCall = object({
  id: once,
  type: once,
  function: object({ name: once, arguments: jsonText }),
  custom: object({ name: once, input: appended }),
});

/** Some clients take a fragment without a name for one of the call before. */
function call(before: Json | undefined, value: Json, unordered: Unordered): Json {
  const into = mergeCall(before, value, unordered) as JsonObject;
  const names = [into.function, into.custom].map((one) => String((one as JsonObject | null | undefined)?.name ?? ''));
  if (!names.some((name) => /[^ \t\n\r]/.test(name))) throw new FoldError('a call begins without a name');
  return into;
}

/** Names of one thing. A client reads the one or the other. */
const REASONING = ['reasoning', 'reasoning_content', 'reasoning_text', 'thinking'] as const;

/** The names of texts that grow with each chunk. */
export const APPENDED: ReadonlySet<string> = new Set([
  ...REASONING,
  ...['content', 'refusal', 'text', 'arguments', 'input', 'data', 'transcript', 'summary'],
]);

const mergeDelta = object({
  role: once,
  content,
  refusal: appended,
  ...Object.fromEntries(REASONING.map((name) => [name, appended])),
  reasoning_details: details,
  tool_calls: indexedList(call, true),
  function_call: object({ name: once, arguments: jsonText }),
  audio: object({ id: once, data: appended, transcript: appended }),
  annotations: added,
});

/** The names that a delta's reasoning has stood under so far. */
const reasoningNames = new WeakMap<object, string>();

function delta(before: Json | undefined, value: Json, unordered: Unordered): Json {
  const into = mergeDelta(before, value, unordered) as JsonObject;
  const names = REASONING.filter((name) => ((value as JsonObject)[name] ?? null) !== null);
  const texts = names.map((name) => (value as JsonObject)[name]);
  if (texts.every((text) => text === '')) return into;
  const { content } = into;
  if (Array.isArray(content) && thoughtful.has(content)) throw new FoldError('reasoning stands in two places');
  const known = reasoningNames.get(into) ?? names.join();
  if (known !== names.join() || texts.some((text) => text !== texts[0]))
    throw new FoldError('reasoning stands under two names');
  reasoningNames.set(into, known);
  return into;
}

const COMPLETION: Members = {
  id: first,
  created: first,
  object: once,
  model: once,
  usage: whole,
  message: () => wrong('a chunk has a message'),
  choices: indexedList(
    object({
      text: appended,
      finish_reason: once,
      logprobs: object({ content: added, refusal: added }),
      delta,
      message: () => wrong('a choice of a stream has a message'),
    }),
    false,
  ),
};

const isEmptyValue = (value: Json): boolean =>
  value === null || value === '' || (Array.isArray(value) && value.length === 0);

/** Folds chunks as they arrive. `text()` returns the completion so far as JSON text. */
export class Fold {
  readonly #completion: JsonObject = newObject();
  readonly #unordered: Unordered = new Set();
  readonly #max_choices: number | null;
  /** Whether a delta came in a chunk that names no object. */
  #nameless = false;

  /** @param max_choices number of choices that the request asks for; null: the chunks are a part of a stream. */
  constructor(max_choices: number | null = 1) {
    this.#max_choices = max_choices;
  }

  /** @throws {FoldError} */
  add(chunk: Chunk): void {
    if (isError(chunk)) throw broken('a chunk is an error');
    if (this.#goesOn(chunk)) throw new FoldError('a choice goes on after its end');
    mergeInto(this.#completion, chunk as JsonObject, COMPLETION, this.#unordered);
    const { choices, object } = this.#completion;
    const deltas = Array.isArray(chunk.choices) && chunk.choices.some(({ delta: one }) => (one ?? null) !== null);
    this.#nameless ||= deltas && (chunk.object ?? '') === '';
    // Some clients pass over such a chunk.
    if (this.#nameless && object === 'chat.completion.chunk') throw new FoldError('a chunk does not name its object');
    if (this.#max_choices !== null && Array.isArray(choices) && choices.length > this.#max_choices)
      throw new FoldError('there are more choices than the request asks for');
  }

  /** Whether a choice that has finished gets more. Some clients stop reading there. */
  #goesOn({ choices }: Chunk): boolean {
    const known = this.#completion.choices;
    if (!Array.isArray(choices) || !Array.isArray(known)) return false;
    return choices.some((choice) => {
      const { finish_reason = null } = (byIndex(known).get(numberOf(choice?.index) ?? -1) ?? {}) as JsonObject;
      if ((finish_reason ?? '') === '' || !isJsonObject(choice)) return false;
      const { role: _, ...more } = isJsonObject(choice.delta ?? null) ? (choice.delta as JsonObject) : {};
      return (choice.text ?? '') !== '' || Object.values(more).some((value) => !isEmptyValue(value));
    });
  }

  /** The JSON text of the folded completion. @throws {FoldError} */
  text(): string {
    return stringifyKeepingNumbers(this.#finished());
  }

  #finished(): JsonObject {
    for (const items of this.#unordered) order(items);
    this.#unordered.clear();
    const { choices } = this.#completion;
    if (this.#max_choices !== null && Array.isArray(choices) && choices.some(({ index }, i) => index !== i))
      throw new FoldError('a choice is missing');
    return finished(this.#completion);
  }
}

/**
 * Folds a whole transcript: all `data:` payloads in order, without `[DONE]`.
 * @param max_choices number of choices that the request asks for; null: the payloads are a part of a stream. @throws {FoldError}
 */
export function foldPayloads(payloads: Iterable<string>, max_choices: number | null = 1): string {
  const fold = new Fold(max_choices);
  for (const payload of payloads) fold.add(parseChunk(payload));
  return fold.text();
}

// The end: deltas become messages.

/** @throws {FoldError} */
function finished(completion: JsonObject): JsonObject {
  const out = newObject();
  for (const key of Object.keys(completion)) out[key] = completion[key] as Json;
  const chat = out.object === 'chat.completion.chunk';
  if (chat) out.object = 'chat.completion';
  if (Array.isArray(out.choices))
    out.choices = (out.choices as JsonObject[]).map((choice) => finishedChoice(choice, chat));
  return out;
}

function finishedChoice(choice: JsonObject, chat: boolean): JsonObject {
  if ((choice.text ?? '') !== '' && (choice.delta ?? null) !== null)
    throw new FoldError('a choice has text and a delta');
  const out = newObject();
  for (const key of Object.keys(choice)) {
    if (key === 'delta' && (chat || choice.delta !== null)) out.message = message(choice.delta as JsonObject | null);
    // A choice may have no message of its own, and null says nothing.
    else if (key !== 'message' && key !== 'delta') out[key] = choice[key] as Json;
  }
  if (chat && !('message' in out)) out.message = message(null);
  return out;
}

function message(value: JsonObject | null): JsonObject {
  const delta = value ?? newObject();
  const out = newObject();
  out.role = (delta.role ?? '') === '' ? 'assistant' : (delta.role as string);
  out.content = finishedContent(delta.content);
  for (const key of Object.keys(delta)) if (key !== 'role' && key !== 'content') out[key] = delta[key] as Json;
  if (isJsonObject(out.function_call ?? null)) checkArguments(out.function_call as JsonObject);
  if (!Array.isArray(out.tool_calls)) return out;
  const ids = (out.tool_calls as JsonObject[]).map(({ id }) => id ?? '').filter((id) => id !== '');
  if (new Set(ids).size < ids.length) throw new FoldError('two calls have the same id');
  out.tool_calls = (out.tool_calls as JsonObject[]).map(finishedCall);
  return out;
}

function finishedCall(call: JsonObject): JsonObject {
  const out = newObject();
  for (const key of Object.keys(call)) if (key !== 'index') out[key] = call[key] as Json;
  if (isJsonObject(out.function ?? null)) checkArguments(out.function as JsonObject);
  return out;
}

/** Refuses arguments that go on after a complete value, as those of two calls under one index do. */
function checkArguments({ arguments: text }: JsonObject): void {
  if (typeof text !== 'string' || text === '' || SCALAR.test(text)) return;
  let end: number;
  try {
    end = endOfValue(text, skipSpace(text, 0));
  } catch (cause) {
    // The arguments were cut off, by a limit of tokens.
    if (cause instanceof JsonTextError) return;
    throw cause;
  }
  if (skipSpace(text, end) < text.length) throw new FoldError('arguments go on after their end');
}

/** Without a prototype, a member named `__proto__` is an ordinary member. */
function newObject(): JsonObject {
  return Object.create(null) as JsonObject;
}
