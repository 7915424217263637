// The signed texts as people know them: who said what, and where each character of it stands in raw.

import { CHAT_ENDPOINT, splitRaw } from '../../proto/attestation/raw.ts';
import { arrayElements, topLevelMembers } from '../../proto/json.ts';
import { parseBounded } from '../../verify/common/limited.ts';

export interface Said {
  /** `system`, `user`, `assistant`, `tool` … as the request has it; `assistant` for the answer. */
  readonly role: string;
  readonly text: string;
  /** Where the text's JSON string begins in raw, at its quotation mark; null where the text is a description of what is no text. */
  readonly at: number | null;
}

interface Conversation {
  readonly endpoint: string;
  readonly request: readonly Said[];
  readonly response: readonly Said[];
}

/** What was asked last, and what was answered: the texts from which a character can be chosen. */
export const questionOf = ({ request }: Conversation): Said | undefined =>
  request.findLast(({ role, at }) => at !== null && role !== 'system' && role !== 'developer');
export const answerOf = ({ response }: Conversation): Said | undefined =>
  response.find(({ role, at }) => at !== null && role === 'assistant');

/** A JSON value and its place in raw. */
interface Place {
  readonly value: unknown;
  readonly text: string;
  readonly at: number;
}

/** null where raw is not what a gateway makes. */
export function conversationIn(raw: string): Conversation | null {
  try {
    const { endpoint = CHAT_ENDPOINT } = splitRaw(raw);
    const whole: Place = { value: parseBounded(raw), text: raw, at: 0 };
    const [request, response] = [member(whole, 'request'), member(whole, 'response')];
    if (request === null || response === null) return null;
    return { endpoint, request: saidInRequest(request), response: saidInResponse(response) };
  } catch {
    return null;
  }
}

function saidInRequest(request: Place): Said[] {
  return [
    ...contentOf(member(request, 'instructions') ?? member(request, 'system'), 'system'),
    ...elements(member(request, 'messages')).flatMap(message),
    ...contentOf(member(request, 'prompt'), 'user'),
    ...inputOf(member(request, 'input')),
  ];
}

/** Of /v1/responses: a text, or a list of texts (embeddings) or messages. */
function inputOf(input: Place | null): Said[] {
  if (input === null) return [];
  if (!Array.isArray(input.value)) return contentOf(input, 'user');
  return elements(input).flatMap((one) => (typeof one.value === 'string' ? contentOf(one, 'user') : message(one)));
}

function message(place: Place): Said[] {
  const { role, type } = record(place.value);
  const said = contentOf(member(place, 'content'), typeof role === 'string' ? role : 'user');
  return said.length === 0 && typeof type === 'string' ? [note('tool', type)] : [...said, ...calls(place)];
}

function saidInResponse(response: Place): Said[] {
  return [
    ...elements(member(response, 'choices')).flatMap((choice) => {
      const its = member(choice, 'message');
      if (its === null) return contentOf(member(choice, 'text'), 'assistant');
      const texts = ['reasoning_content', 'reasoning', 'content', 'refusal'].flatMap((name) =>
        contentOf(member(its, name), name.startsWith('reasoning') ? 'reasoning' : 'assistant'),
      );
      return [...texts, ...calls(its)];
    }),
    ...elements(member(response, 'output')).flatMap((item) => contentOf(member(item, 'content'), 'assistant')),
    ...contentOf(member(response, 'content'), 'assistant'),
    ...contentOf(member(response, 'text'), 'assistant'),
    ...(elements(member(response, 'data')).length > 0 ? [note('assistant', 'numbers: an embedding')] : []),
  ];
}

/** A text, or a list of parts of which some are texts. */
function contentOf(content: Place | null, role: string): Said[] {
  if (content === null) return [];
  if (typeof content.value === 'string')
    return content.value === '' ? [] : [{ role, text: content.value, at: content.at }];
  return elements(content).flatMap((part) => {
    if (typeof part.value === 'string') return contentOf(part, role);
    const text = member(part, 'text') ?? member(part, 'refusal');
    if (text !== null) return contentOf(text, role);
    return [note(role, String(record(part.value).type ?? 'part'))];
  });
}

const calls = (place: Place): Said[] =>
  elements(member(place, 'tool_calls')).map((call) => {
    const { name, arguments: given } = record(record(call.value).function);
    return note('tool', `calls ${String(name ?? 'a tool')}(${String(given ?? '')})`);
  });

const note = (role: string, what: string): Said => ({ role, text: `[${what}]`, at: null });

function record(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function member({ value, text, at }: Place, key: string): Place | null {
  if (typeof value !== 'object' || value === null || Array.isArray(value) || !Object.hasOwn(value, key)) return null;
  // Of a name that stands twice, the last one is in `value`.
  const found = topLevelMembers(text).findLast((one) => one.key === key);
  if (found === undefined) return null;
  const { valueStart, valueEnd } = found;
  return { value: record(value)[key], text: text.slice(valueStart, valueEnd), at: at + valueStart };
}

function elements(place: Place | null): Place[] {
  if (place === null || !Array.isArray(place.value)) return [];
  const values: readonly unknown[] = place.value;
  return arrayElements(place.text).map(({ valueStart, valueEnd }, i) => ({
    value: values[i],
    text: place.text.slice(valueStart, valueEnd),
    at: place.at + valueStart,
  }));
}

/**
 * Puts another character in the place of one of a text in raw. A letter is followed by the next, a digit too; `x` stands for anything else.
 * @param at where the text's JSON string begins. @param index of the character, in UTF-16 units of the decoded text.
 */
export function changedAt(
  raw: string,
  at: number,
  index: number,
): { readonly raw: string; readonly was: string; readonly is: string } {
  let from = at + 1;
  for (let i = 0; i < index; i++) from += unitLength(raw, from);
  let to = from + unitLength(raw, from);
  // A character outside of the basic plane takes two units.
  if (/^[\ud800-\udbff]$/.test(decoded(raw, from, to)) && raw[to] !== '"') to += unitLength(raw, to);
  const was = decoded(raw, from, to);
  const is = follower(was);
  return { raw: raw.slice(0, from) + is + raw.slice(to), was, is };
}

/** How many characters of JSON one UTF-16 unit takes: `a`, `\n`, `\u00e9`. */
function unitLength(raw: string, at: number): number {
  if (raw[at] !== '\\') return 1;
  return raw[at + 1] === 'u' ? 6 : 2;
}

const decoded = (raw: string, from: number, to: number) => JSON.parse(`"${raw.slice(from, to)}"`) as string;

function follower(character: string): string {
  if (/^[a-yA-Y0-8]$/.test(character)) return String.fromCharCode(character.charCodeAt(0) + 1);
  const last: Readonly<Record<string, string>> = { z: 'a', Z: 'A', 9: '0', x: 'y' };
  return last[character] ?? 'x';
}
