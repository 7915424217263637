// The messages of a request and of its response in one form for the three kinds of conversation, so that what a client copies can be compared.
// Compared exactly: words, ids, names of tools, arguments as JSON values. May differ: white space in arguments, the order of members, text as
// a string or as parts, `cache_control`, `annotations` and `status` of a part or an item, its id, and whether reasoning is told again.
import { createHash } from 'node:crypto';
import { duplicateMember, isObject } from '../../proto/json.ts';
import { isKeptNumber, keptText, parseKeepingNumbers } from '../../proto/kept-numbers.ts';

/** `aside`: reasoning and what the service ran by itself, which a client may leave out. `reference`: an item that only the service holds. */
export type Kind = 'instructions' | 'user' | 'answer' | 'call' | 'result' | 'aside' | 'reference';

export interface Item {
  readonly kind: Kind;
  /** Of everything in it that is compared. */
  readonly hash: string;
  /** Of a call, or of the call that a result is for. */
  readonly id: string | null;
  /** The role, or the tool's name. */
  readonly name: string;
  /** Of its content alone. */
  readonly content: string;
  readonly length: number;
  /** For a report that shows the conversation; never kept. */
  readonly text: string;
}

export interface Conversation {
  readonly instructions: readonly Item[];
  readonly items: readonly Item[];
  /** One for each choice. */
  readonly responses: readonly (readonly Item[])[];
  readonly model: string | null;
  readonly responseId: string | null;
  /** The response's items by their ids, for later references to them. */
  readonly byId: readonly (readonly [id: string, item: Item])[];
  /** The response or the conversation whose state the service added to the request. */
  readonly previous: string | null;
  readonly conversationId: string | null;
}

export const hashOf = (...parts: readonly string[]): string =>
  createHash('sha256')
    // In UTF-8 all halves of surrogate pairs are one character.
    .update(parts.map((part) => `${part.length}:${part}`).join(), 'utf16le')
    .digest('base64url');

type Json = Readonly<Record<string, unknown>>;
const objects = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isObject) : []);
/** The elements of a list; one that is no object is a message of the client's. */
const elements = (value: unknown): Json[] =>
  Array.isArray(value) ? value.map((one: unknown) => (isObject(one) ? one : { role: 'user', content: [one] })) : [];
const string = (value: unknown): string | null => (typeof value === 'string' ? value : null);

function item(kind: Kind, name: string, text: string, id: string | null = null, content = hashOf(text)): Item {
  const compared = kind === 'call' ? [id ?? '', name] : kind === 'result' ? [id ?? ''] : kind === 'user' ? [name] : [];
  return { kind, name, id, content, length: text.length, text, hash: hashOf(kind, ...compared, content) };
}

/**
 * Of JSON values: the same for the same value, whatever the order of members.
 * @param without members of the value itself, or of the parts in a list, that are not compared. @throws {RangeError} too deep
 */
function canonical(value: unknown, without?: ReadonlySet<string>): string {
  if (isKeptNumber(value)) {
    const text = keptText(value);
    const number = Number(text);
    return /^-?\d{16,}$/.test(text) || !Number.isFinite(number) ? text : String(number);
  }
  if (Array.isArray(value)) return `[${value.map((one) => canonical(one, without)).join()}]`;
  if (!isObject(value)) return JSON.stringify(value) ?? 'null';
  const members = Object.keys(value)
    .sort()
    .filter((name) => without?.has(name) !== true);
  return `{${members.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join()}}`;
}

/** What clients change in the parts that they send, and what they leave out of what the model said. */
const UNCOMPARED_SENT = new Set(['cache_control']);
const UNCOMPARED = new Set([
  'cache_control',
  'annotations',
  'logprobs',
  'status',
  'internal_chat_message_metadata_passthrough',
]);
const TEXT_PART = /^(input_|output_|summary_|reasoning_)?text$/;

const textIn = (part: Json): string | null => {
  if (TEXT_PART.test(String(part.type))) return string(part.text);
  return part.type === 'refusal' ? string(part.refusal) : null;
};

/** A text, whether it was written as a string or in parts; of anything else a NUL and its JSON. A text that begins with a NUL gets two more. */
function textOf(content: unknown, without: ReadonlySet<string> = UNCOMPARED_SENT): string {
  const text = plainText(content);
  if (text === null) return `\0${canonical(content, without)}`;
  return text.startsWith('\0') ? `\0\0${text}` : text;
}

function plainText(content: unknown): string | null {
  if (typeof content === 'string') return content;
  if (content === null || content === undefined) return '';
  if (isObject(content)) return textIn(content);
  const texts = objects(content).map(textIn);
  const whole = Array.isArray(content) && texts.length === content.length && !texts.includes(null);
  return whole ? texts.join('') : null;
}

/** @param args the text that the model wrote, or a JSON value */
function call(id: unknown, name: unknown, args: unknown): Item {
  const text = string(args) ?? canonical(args ?? null);
  return item(
    'call',
    string(name) ?? '',
    text,
    string(id) ?? '',
    hashOf(string(args) === null ? text : argumentsOf(text)),
  );
}

/** Clients write the arguments anew. Of a member that stands twice some tools take the first, so that only the same text is the same. */
function argumentsOf(text: string): string {
  try {
    const value = parseKeepingNumbers(text);
    return duplicateMember(text) === null ? canonical(value) : text;
  } catch (error) {
    if (error instanceof SyntaxError) return text;
    throw error;
  }
}

const answer = (text: string): Item[] => (text === '' ? [] : [item('answer', 'assistant', text)]);
const wordsOf = (content: unknown): string => textOf(content, UNCOMPARED);
const aside = (name: string, text: string): Item[] => (text === '' ? [] : [item('aside', name, text)]);
const result = (id: unknown, content: unknown, failed = false): Item =>
  item('result', failed ? 'failed' : '', failed ? `\0failed ${textOf(content)}` : textOf(content), string(id) ?? '');
const message = (role: unknown, content: unknown): Item => item('user', string(role) ?? 'user', textOf(content));

// /v1/chat/completions

function ofChat({ role, content, tool_calls, tool_call_id, name, refusal, function_call, ...more }: Json): Item[] {
  if (role === 'tool' || role === 'function') return [result(tool_call_id ?? name, content)];
  if (role !== 'assistant') return [message(role, content)];
  const calls = objects(tool_calls).map(({ id, function: it, custom }) => {
    const {
      name: tool,
      arguments: args,
      input,
    } = { ...(isObject(it) ? it : {}), ...(isObject(custom) ? custom : {}) } as Json;
    return call(id, tool, args ?? input);
  });
  if (isObject(function_call)) calls.push(call(function_call.name, function_call.name, function_call.arguments));
  const words = [...answer(wordsOf(content)), ...answer(string(refusal) ?? '')];
  return [...aside('reasoning', textOf(more.reasoning_content ?? more.reasoning)), ...words, ...calls];
}

// /v1/responses

function ofResponses(given: Json): Item[] {
  const { type = 'message', role, content, call_id, name, arguments: args, input, action, output, id } = given;
  if (type === 'message') return role === 'assistant' ? answer(wordsOf(content)) : [message(role, content)];
  if (type === 'item_reference') return [item('reference', 'reference', '', string(id))];
  if (type === 'reasoning') return aside('reasoning', textOf(given.summary) + textOf(content));
  if (String(type).endsWith('_call_output')) return [result(call_id, output)];
  if (String(type).endsWith('_call') && typeof call_id === 'string')
    return [call(call_id, name ?? type, args ?? input ?? action)];
  // An approval is the client's own.
  if (String(type).endsWith('_response')) return [message(type, canonical(given, UNCOMPARED))];
  return aside(String(type), canonical({ ...given, id: null }, UNCOMPARED));
}

// /v1/messages

function ofMessages({ role, content }: Json): Item[] {
  const blocks = typeof content === 'string' ? [{ type: 'text', text: content }] : elements(content);
  const items: Item[] = [];
  let others: Json[] = [];
  const flush = () => {
    if (others.length > 0) items.push(...(role === 'assistant' ? answer(wordsOf(others)) : [message(role, others)]));
    others = [];
  };
  for (const block of blocks) {
    const made = ofBlock(block, role === 'assistant');
    if (made === null) others.push(block);
    else {
      flush();
      items.push(...made);
    }
  }
  flush();
  return items;
}

/** null: a part of what was said. */
function ofBlock(block: Json, answers: boolean): Item[] | null {
  const { type, id, name, input, tool_use_id, content, is_error, thinking } = block;
  if (type === 'tool_use') return [call(id, name, input)];
  if (type === 'tool_result') return [result(tool_use_id, content, is_error === true)];
  if (!answers || type === 'text') return null;
  return aside(String(type), string(thinking) ?? canonical({ ...block, signature: null }, UNCOMPARED));
}

const parsed = (text: string): Json => {
  const value = parseKeepingNumbers(text);
  return isObject(value) ? value : {};
};

/** System messages before the first other one: agents that hand over to each other change them. */
function split(instructions: readonly Item[], all: readonly Item[]): Pick<Conversation, 'instructions' | 'items'> {
  const at = all.findIndex(({ kind, name }) => kind !== 'user' || !/^(system|developer)$/.test(name));
  const from = at < 0 ? all.length : at;
  return { instructions: [...instructions, ...all.slice(0, from)], items: all.slice(from) };
}

/**
 * null: the endpoint holds no conversation.
 * @param request @param response JSON. @throws {RangeError} nested too deeply
 */
export function conversationOf(endpoint: string, request: string, response: string): Conversation | null {
  if (!/^\/v1\/(chat\/completions|responses|messages)$/.test(endpoint)) return null;
  const asked = parsed(request);
  const said = parsed(response);
  const shared = {
    model: string(said.model),
    responseId: string(said.id),
    previous: null,
    conversationId: null,
    byId: [],
  };
  if (endpoint === '/v1/messages') {
    const system = asked.system === undefined ? [] : [item('instructions', 'system', textOf(asked.system))];
    return { ...shared, ...split(system, elements(asked.messages).flatMap(ofMessages)), responses: [ofMessages(said)] };
  }
  if (endpoint === '/v1/responses') {
    const { instructions, input, previous_response_id, conversation } = asked;
    const given = typeof input === 'string' ? [message('user', input)] : elements(input).flatMap(ofResponses);
    const system = typeof instructions === 'string' ? [item('instructions', 'system', instructions)] : [];
    const output = objects(said.output);
    const conversationId = string(isObject(conversation) ? conversation.id : conversation);
    const previous = string(previous_response_id) ?? conversationId;
    const byId = output.flatMap((one) => ofResponses(one).map((made) => [string(one.id) ?? '', made] as const));
    return {
      ...shared,
      ...split(system, given),
      responses: [output.flatMap(ofResponses)],
      previous,
      conversationId,
      byId,
    };
  }
  const choices = objects(said.choices).map((choice) => (isObject(choice.message) ? ofChat(choice.message) : []));
  const responses = choices.length === 0 ? [[]] : choices;
  return { ...shared, ...split([], elements(asked.messages).flatMap(ofChat)), responses };
}
