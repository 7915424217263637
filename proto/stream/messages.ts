// The published rule for streams of /v1/messages: docs/attestation.md §3.3 states it in prose. No event holds the whole message, so the
// events fold into it, as Anthropic's own clients do.
import { duplicateMember } from '../json.ts';
import { isJsonObject, numberOf, parseKeepingNumbers, stringifyKeepingNumbers } from '../kept-numbers.ts';
import {
  type Event,
  type EventKind,
  type EventRecord,
  readEvent,
  SET_BY_DELTA,
  SET_BY_EVENT,
  textOf,
} from './events.ts';
import { broken, FoldError } from './fold.ts';

type Json = Record<string, unknown>;

interface Block {
  readonly value: Json;
  open: boolean;
  /** The parts of a tool's input that came as text. */
  input: string;
}

/** What a delta may have beside its type: some applications show a text wherever it stands. */
const MEMBERS: ReadonlyMap<unknown, readonly string[]> = new Map([
  ['text_delta', ['text']],
  ['citations_delta', ['citation']],
  ['thinking_delta', ['thinking', 'estimated_tokens']],
  ['signature_delta', ['signature']],
  ['compaction_delta', ['content', 'encrypted_content']],
  ['input_json_delta', ['partial_json']],
]);
const BLOCK_EVENTS = ['content_block_start', 'content_block_delta', 'content_block_stop'];
const STOPS = ['stop_reason', 'stop_sequence'];
/** The types of blocks that a delta may change. Clients pass over a delta in any other, and show its text all the same. */
const BLOCKS: ReadonlyMap<unknown, RegExp> = new Map([
  ['text_delta', /^text$/],
  ['citations_delta', /^text$/],
  // LiteLLM writes thoughts into a block of text.
  ['thinking_delta', /^(thinking|text)$/],
  ['signature_delta', /^thinking$/],
  ['compaction_delta', /^compaction$/],
  ['input_json_delta', /tool_use$/],
]);

export class MessageEvents implements EventRecord {
  #message: Json | null = null;
  readonly #blocks: Block[] = [];
  #state: 'open' | 'final' | 'stopped' = 'open';

  get id(): string | null {
    const id = this.#message?.id;
    return typeof id === 'string' ? id : null;
  }

  add(name: string | null, text: string): EventKind {
    const event = readEvent(name, text);
    const { type } = event;
    if (type === 'error') return 'error';
    if (this.#state === 'stopped') throw broken('an event comes after the final one');
    if (type === 'message_start') this.#begin(event);
    else if (this.#message === null && type !== 'ping') throw broken('the message has not begun');
    else if (BLOCK_EVENTS.includes(type)) this.#takeBlock(event);
    else if (type === 'message_delta') return this.#takeDelta(event);
    else if (type === 'message_stop') return this.#stop();
    return this.#state === 'final' ? 'end' : 'delta';
  }

  text(): string {
    if (this.#state !== 'stopped') throw broken('the stream ended before its message was complete');
    return stringifyKeepingNumbers({ ...this.#message, content: this.#blocks.map(({ value }) => value) });
  }

  #begin({ message }: Event): void {
    if (this.#message !== null) throw broken('a second message begins');
    if (!isJsonObject(message) || !isEmpty(message.content)) throw new FoldError('the message does not begin empty');
    if (Object.hasOwn(message, 'attestation')) throw broken('the message has an attestation of its own');
    this.#message = copy(message);
    if (isJsonObject(message.usage)) this.#message.usage = copy(message.usage);
  }

  #takeBlock({ type, index, content_block, delta }: Event): void {
    if (this.#state !== 'open') throw new FoldError('content comes after its end');
    const at = numberOf(index);
    if (type === 'content_block_start') {
      if (at !== this.#blocks.length || !isJsonObject(content_block)) throw new FoldError('a block is out of order');
      // Some clients read these texts in deltas only.
      const texts = ['text', 'thinking', ...(content_block.type === 'compaction' ? ['content'] : [])];
      if (texts.some((name) => (content_block[name] ?? '') !== ''))
        throw new FoldError('a block begins with text that is no delta');
      // Anthropic's client would add the first delta to "undefined".
      if (content_block.type === 'thinking' && content_block.thinking !== '')
        throw new FoldError('a block of thoughts has no text');
      this.#blocks.push({ value: copy(content_block), open: true, input: '' });
      return;
    }
    const block = this.#blocks[at ?? -1];
    if (block?.open !== true) throw new FoldError('an event is of no block that is open');
    if (type === 'content_block_stop') close(block);
    else {
      const { type: kind } = isJsonObject(delta) ? delta : {};
      // llama-server signs its thoughts after the text. All else that is not of the last block is shown in another order.
      if (block !== this.#blocks.at(-1) && kind !== 'signature_delta')
        throw new FoldError('a delta is of no block that is open');
      const { type: of } = block.value;
      if (typeof of !== 'string' || BLOCKS.get(kind)?.test(of) !== true)
        throw new FoldError('a delta does not fit its block, or is of a type that has no rule');
      if (Object.keys(delta as Json).some((name) => name !== 'type' && !MEMBERS.get(kind)?.includes(name)))
        throw new FoldError('a delta has a member of another type');
      addDelta(block, delta as Json);
    }
  }

  #takeDelta(event: Event): EventKind {
    const message = this.#message as Json;
    const delta = isJsonObject(event.delta) ? event.delta : {};
    // Anthropic's client takes both members from the last such event.
    if (this.#state === 'final' && STOPS.some((name) => (delta[name] ?? null) !== (message[name] ?? null)))
      throw new FoldError('a message stops twice');
    put(message, delta, SET_BY_DELTA);
    put(message, event, SET_BY_EVENT);
    if (isJsonObject(event.usage)) {
      if (!isJsonObject(message.usage)) message.usage = copy({});
      put(message.usage as Json, event.usage, Object.keys(event.usage));
    }
    if ((delta.stop_reason ?? null) === null) return this.#state === 'final' ? 'end' : 'delta';
    for (const block of this.#blocks) if (block.open) close(block);
    this.#state = 'final';
    return 'final';
  }

  #stop(): EventKind {
    if (this.#state !== 'final') throw broken('the message stops without a reason');
    this.#state = 'stopped';
    return 'end';
  }
}

const isEmpty = (list: unknown): boolean => (list ?? null) === null || (Array.isArray(list) && list.length === 0);

/** Sets these members of `from`. null replaces nothing. */
function put(into: Json, from: Json, names: readonly string[]): void {
  for (const name of names) if (Object.hasOwn(from, name)) into[name] = from[name] ?? into[name] ?? null;
}

/** Without a prototype, a member named `__proto__` is an ordinary member. */
function copy(value: Json): Json {
  const into = Object.create(null) as Json;
  for (const [name, member] of Object.entries(value)) into[name] = member;
  return into;
}

/** @param delta of a type that fits the block. @throws {FoldError} */
function addDelta(block: Block, delta: Json): void {
  const { value } = block;
  switch (delta.type) {
    case 'text_delta':
      return append(value, 'text', delta.text);
    case 'thinking_delta':
      return append(value, 'thinking', delta.thinking);
    case 'compaction_delta':
      return append(value, 'content', delta.content ?? '');
    case 'input_json_delta':
      if (!isEmptyObject(value.input ?? {})) throw new FoldError('the input of a tool comes twice');
      block.input += textOf(delta.partial_json);
      return;
    case 'signature_delta':
      value.signature = textOf(delta.signature);
      return;
    case 'citations_delta':
      if (!Array.isArray(value.citations)) value.citations = [];
      (value.citations as unknown[]).push(delta.citation ?? null);
  }
}

const isEmptyObject = (value: unknown): boolean => isJsonObject(value) && Object.keys(value).length === 0;

function append(value: Json, member: string, added: unknown): void {
  value[member] = textOf(value[member] ?? '') + textOf(added);
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
