// The published rules for streams of named events, /v1/responses and /v1/messages: which events end them, and which response they yield.
// docs/attestation.md states them in prose.

import { CHAT_ENDPOINT } from '../attestation/raw.ts';
import { duplicateMember, topLevelMembers } from '../json.ts';
import { isJsonObject, numberOf, parseKeepingNumbers, stringifyKeepingNumbers } from '../kept-numbers.ts';
import { FoldError, parseChunk } from './fold.ts';

/** How an endpoint streams. `completion`: payloads without names (proto/stream/fold.ts). */
export type StreamForm = 'completion' | 'response' | 'message';

const FORMS: Readonly<Record<string, StreamForm>> = {
  [CHAT_ENDPOINT]: 'completion',
  '/v1/completions': 'completion',
  '/v1/responses': 'response',
  '/v1/messages': 'message',
};

/** null: no rule covers streams of this endpoint, so they cannot be proven. */
export function streamFormOf(endpoint: string): StreamForm | null {
  return Object.hasOwn(FORMS, endpoint) ? (FORMS[endpoint] ?? null) : null;
}

/** The meaning of an event for code that forwards the stream. */
export type EventKind =
  /** It may be sent at once. */
  | 'delta'
  /** It completes the response or announces its end, and carries the attestation. */
  | 'final'
  /** It comes after the final event. */
  | 'end'
  /** The backend's own failure, which ends the stream. */
  | 'error';

/** Reads the events of a stream in order. */
export interface EventRecord {
  /** @param text the payload. @throws {FoldError} for an event that is not of the form, or is out of order. */
  add(name: string | null, text: string): EventKind;
  /**
   * Adds an event that differs from the last one only in its text and its `sequence_number`. The last one must have been a
   * {@link TextDelta}. Returns false, and adds nothing, where the event is out of order.
   */
  repeat(text: string, sequence: number | null): boolean;
  /** The parts of the last event that {@link repeat} may change; null: it is no {@link TextDelta}. */
  readonly textDelta: TextDelta | null;
  /** The response's own id, once an event named it. */
  readonly id: string | null;
  /** The JSON text of the response. @throws {FoldError} unless the stream is complete. */
  text(): string;
}

/** An event that appends to an existing text. */
export interface TextDelta {
  /** The member that holds the text; the event has it once. */
  readonly member: 'delta' | 'text';
  readonly text: string;
  readonly sequence: number | null;
}

export function recordEvents(form: Exclude<StreamForm, 'completion'>): EventRecord {
  return form === 'response' ? new ResponseEvents() : new MessageEvents();
}

/** Whether an event of this type completes a response. */
export const isFinalResponse = (type: unknown): boolean =>
  type === 'response.completed' || type === 'response.incomplete';

type Json = Record<string, unknown>;

const textIn = (value: unknown): string | null => (typeof value === 'string' ? value : null);

/** @throws {FoldError} */
function parse(name: string | null, text: string): Json & { readonly type: string } {
  const event = parseChunk(text) as Json;
  if (event.type !== 'error' && (event.object === 'error' || (event.error ?? null) !== null))
    throw new FoldError('an event is an error');
  if (name === null) throw new FoldError('an event has no name');
  if (event.type !== name) throw new FoldError('an event has another name than its type');
  if (Object.hasOwn(event, 'attestation')) throw new FoldError('an event has an attestation of its own');
  return event as Json & { readonly type: string };
}

// /v1/responses: the last event holds the whole response, which must contain the texts that were streamed before.

/** The location of an event's text in the item of the final response, by the event's type without `.delta` or `.done`. */
interface TextLocation {
  /** The member with the whole text, in a `.done` event and in the final response's item or part. */
  readonly member: string;
  /** The item's list of parts, and the event's member with the part's index. */
  readonly parts?: readonly [list: string, index: string];
}

const CONTENT = ['content', 'content_index'] as const;
const TEXT_LOCATIONS: Readonly<Record<string, TextLocation>> = {
  'response.output_text': { member: 'text', parts: CONTENT },
  'response.refusal': { member: 'refusal', parts: CONTENT },
  'response.reasoning_text': { member: 'text', parts: CONTENT },
  'response.reasoning_summary_text': { member: 'text', parts: ['summary', 'summary_index'] },
  'response.function_call_arguments': { member: 'arguments' },
  'response.mcp_call_arguments': { member: 'arguments' },
  'response.custom_tool_call_input': { member: 'input' },
  'response.code_interpreter_call_code': { member: 'code' },
};

interface Streamed {
  readonly location: TextLocation;
  readonly item_id: string | null;
  readonly output_index: number;
  readonly part_index: number;
  /** null: no delta came. */
  deltas: string | null;
  done: string | null;
}

class ResponseEvents implements EventRecord {
  #id: string | null = null;
  #begun = false;
  #sequence = -1;
  readonly #streamed = new Map<string, Streamed>();
  /** The text that the last event appended to, if it was a delta. */
  #last: Streamed | null = null;
  #text: string | null = null;
  textDelta: TextDelta | null = null;

  get id(): string | null {
    return this.#id;
  }

  add(name: string | null, text: string): EventKind {
    const event = parse(name, text);
    const { type } = event;
    if (type === 'error') return 'error';
    if (this.#text !== null) throw new FoldError('an event comes after the final one');
    this.#last = null;
    this.textDelta = null;
    this.#checkOrder(type, event);
    if (type === 'response.failed') return 'error';
    if (isFinalResponse(type)) {
      this.#finish(event, text);
      return 'final';
    }
    this.#record(type, event);
    return 'delta';
  }

  repeat(text: string, sequence: number | null): boolean {
    if (this.#last === null || (sequence !== null && sequence < this.#sequence)) return false;
    this.#last.deltas += text;
    this.#sequence = sequence ?? this.#sequence;
    return true;
  }

  text(): string {
    if (this.#text === null) throw new FoldError('the stream ended before its response was complete');
    return this.#text;
  }

  #checkOrder(type: string, event: Json): void {
    if ((type === 'response.created') === this.#begun)
      throw new FoldError(this.#begun ? 'a second response begins' : 'the response has not begun');
    this.#begun = true;
    const sequence = numberOf(event.sequence_number);
    if (sequence !== null && sequence < this.#sequence) throw new FoldError('the events are out of order');
    this.#sequence = sequence ?? this.#sequence;
    if (!isJsonObject(event.response)) return;
    const id = textIn(event.response.id);
    if (this.#id !== null && id !== null && id !== this.#id) throw new FoldError('two responses are mixed');
    this.#id ??= id;
  }

  #record(type: string, event: Json): void {
    const kind = type.slice(0, type.lastIndexOf('.'));
    const location = Object.hasOwn(TEXT_LOCATIONS, kind) ? TEXT_LOCATIONS[kind] : undefined;
    if (location === undefined) return;
    const item_id = textIn(event.item_id);
    const output_index = numberOf(event.output_index) ?? 0;
    const part_index = location.parts === undefined ? 0 : (numberOf(event[location.parts[1]]) ?? 0);
    const key = `${kind} ${output_index} ${part_index} ${item_id}`;
    const streamed = this.#streamed.get(key) ?? {
      location,
      item_id,
      output_index,
      part_index,
      deltas: null,
      done: null,
    };
    this.#streamed.set(key, streamed);
    if (type.endsWith('.delta')) {
      const text = textIn(event.delta) ?? noText();
      streamed.deltas = (streamed.deltas ?? '') + text;
      this.#last = streamed;
      this.textDelta = { member: 'delta', text, sequence: numberOf(event.sequence_number) };
    }
    if (type.endsWith('.done')) streamed.done = textIn(event[location.member]) ?? noText();
  }

  #finish(event: Json, text: string): void {
    const { response } = event;
    if (!isJsonObject(response) || Object.keys(response).length === 0)
      throw new FoldError('the final event has no response');
    if (Object.hasOwn(response, 'attestation')) throw new FoldError('the response has an attestation of its own');
    if ((response.error ?? null) !== null) throw new FoldError('the final response has an error');
    const output = listIn(response, 'output');
    const items = new Map<unknown, unknown>();
    for (const item of output) if (isJsonObject(item) && !items.has(item.id)) items.set(item.id, item);
    for (const { location, item_id, output_index, part_index, deltas, done } of this.#streamed.values()) {
      const item = (item_id === null ? undefined : items.get(item_id)) ?? output[output_index];
      const part: unknown = location.parts === undefined ? item : listIn(item, location.parts[0])[part_index];
      const final = isJsonObject(part) ? part[location.member] : undefined;
      if ((deltas !== null && deltas !== final) || (done !== null && done !== final))
        throw new FoldError('the final response differs from what was streamed');
    }
    const member = topLevelMembers(text).find(({ key }) => key === 'response');
    this.#text = member === undefined ? null : text.slice(member.valueStart, member.valueEnd);
  }
}

function listIn(item: unknown, name: string): readonly unknown[] {
  const list = isJsonObject(item) ? item[name] : undefined;
  return Array.isArray(list) ? list : [];
}

function noText(): never {
  throw new FoldError('a delta has no text');
}

// /v1/messages: no event holds the whole message. The events fold into it.
//
//  1. `message` of message_start is the message; its `content` must be absent, null or an empty list.
//  2. content_block_start: `content_block` is the block at `index`, which must be the number of blocks so far.
//  3. content_block_delta, to the block at `index` while it is open, by the type of its `delta`:
//     input_json_delta: `partial_json` is appended to a text, which replaces the block's `input` at its content_block_stop, unless empty;
//     citations_delta: `citation` is appended to the list `citations`; signature_delta: `signature` is set;
//     any other: its members but `type` are added to the block: a string is appended to a string, anything else is set.
//  4. message_delta: the event's members but `type`, `delta` and `usage` are set on the message, then those of `delta`, and those of
//     the event's `usage` on the message's `usage`. The first two set no `content`, `usage` or `attestation`. After the event whose
//     `delta` has a `stop_reason`, later ones have nothing but `usage`.
//  5. Other events, such as `ping` and types of the future, change nothing.
//  6. `content` of the message is the list of blocks, at the position where message_start has it, otherwise last.

interface Block {
  readonly value: Json;
  open: boolean;
  input: string;
}

class MessageEvents implements EventRecord {
  #message: Json | null = null;
  #usage: Json | null = null;
  readonly #blocks: Block[] = [];
  /** The block that the last event appended to, if it was a text delta. */
  #last: Block | null = null;
  textDelta: TextDelta | null = null;
  #state: 'open' | 'final' | 'stopped' = 'open';

  get id(): string | null {
    return textIn(this.#message?.id);
  }

  add(name: string | null, text: string): EventKind {
    const event = parse(name, text);
    const { type } = event;
    if (type === 'error') return 'error';
    this.#last = null;
    this.textDelta = null;
    if (this.#state === 'stopped') throw new FoldError('an event comes after the final one');
    if (type === 'message_start') this.#begin(event);
    else if (this.#message === null && type !== 'ping') throw new FoldError('the message has not begun');
    else if (type.startsWith('content_block_')) this.#takeBlock(type, event);
    else if (type === 'message_delta') return this.#takeDelta(event);
    else if (type === 'message_stop') return this.#stop();
    return this.#state === 'final' ? 'end' : 'delta';
  }

  repeat(text: string): boolean {
    if (this.#last === null) return false;
    (this.#last.value.text as string) += text;
    return true;
  }

  text(): string {
    if (this.#state !== 'stopped') throw new FoldError('the stream ended before its message was complete');
    return stringifyKeepingNumbers({ ...this.#message, content: this.#blocks.map(({ value }) => value) });
  }

  #begin({ message }: Json): void {
    if (this.#message !== null) throw new FoldError('a second message begins');
    if (!isJsonObject(message) || !isEmpty(message.content)) throw new FoldError('the message does not begin empty');
    if (Object.hasOwn(message, 'attestation')) throw new FoldError('the message has an attestation of its own');
    this.#message = copy(message);
    if (isJsonObject(message.usage)) this.#usage = copy(message.usage);
  }

  #takeBlock(type: string, { index, content_block, delta }: Json): void {
    if (this.#state !== 'open') throw new FoldError('content comes after its end');
    const at = numberOf(index);
    if (type === 'content_block_start') {
      if (at !== this.#blocks.length || !isJsonObject(content_block)) throw new FoldError('a block is out of order');
      this.#blocks.push({ value: copy(content_block), open: true, input: '' });
      return;
    }
    const block = this.#blocks[at ?? -1];
    if (block?.open !== true) throw new FoldError('a delta is of no block that is open');
    if (type === 'content_block_stop') close(block);
    else if (type === 'content_block_delta') {
      addDelta(block, isJsonObject(delta) ? delta : noText());
      const { type: kind, text } = delta as Json;
      if (kind !== 'text_delta' || typeof text !== 'string' || typeof block.value.text !== 'string') return;
      this.#last = block;
      this.textDelta = { member: 'text', text, sequence: null };
    }
  }

  #takeDelta({ type: _, delta, usage, ...others }: Json): EventKind {
    const message = this.#message as Json;
    const parts = isJsonObject(delta) ? delta : {};
    const set = [...Object.keys(others), ...Object.keys(parts)];
    if (this.#state === 'final' && set.length > 0) throw new FoldError('a message stops twice');
    if (set.some((name) => NOT_SET.includes(name))) throw new FoldError('a message_delta sets what is not its own');
    put(message, others);
    put(message, parts);
    if (isJsonObject(usage)) message.usage = this.#usage = put(this.#usage ?? copy({}), usage);
    if ((parts.stop_reason ?? null) === null) return this.#state === 'final' ? 'end' : 'delta';
    if (this.#blocks.some(({ open }) => open)) throw new FoldError('the message ends inside of a block');
    this.#state = 'final';
    return 'final';
  }

  #stop(): EventKind {
    if (this.#state !== 'final') throw new FoldError('the message stops without a reason');
    this.#state = 'stopped';
    return 'end';
  }
}

/** Members of a message that message_delta may not set: other events or the gateway make them. */
const NOT_SET: readonly string[] = ['content', 'usage', 'attestation'];

const isEmpty = (list: unknown): boolean => (list ?? null) === null || (Array.isArray(list) && list.length === 0);

/** Without a prototype, a member named `__proto__` is an ordinary member. */
const copy = (value: Json): Json => put(Object.create(null) as Json, value);

function put(into: Json, members: Json): Json {
  for (const [name, value] of Object.entries(members)) into[name] = value;
  return into;
}

function addDelta(block: Block, { type, ...members }: Json): void {
  const { value } = block;
  if (type === 'input_json_delta') block.input += textIn(members.partial_json) ?? noText();
  else if (type === 'citations_delta') {
    if (!Array.isArray(value.citations)) value.citations = [];
    (value.citations as unknown[]).push(members.citation ?? null);
  } else if (type === 'signature_delta') value.signature = textIn(members.signature) ?? noText();
  else
    for (const [name, added] of Object.entries(members)) {
      const before = value[name];
      value[name] = typeof before === 'string' && typeof added === 'string' ? before + added : added;
    }
}

/** @throws {FoldError} */
function close(block: Block): void {
  block.open = false;
  if (block.input === '') return;
  try {
    block.value.input = parseKeepingNumbers(block.input);
  } catch (cause) {
    throw new FoldError('the input of a tool is not JSON', { cause });
  }
  // Parsers differ in which of two members with the same name they take.
  if (duplicateMember(block.input) !== null) throw new FoldError('the input of a tool names a member twice');
}
