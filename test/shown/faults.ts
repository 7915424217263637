// What the SDKs are known to show of an honest stream other than it says: each with its reason, and what is not compared then.
import { isDeepStrictEqual } from 'node:util';
import type { Client, Shown } from './clients.ts';
import { type Json, type Stream, signedOf } from './stream.ts';

export interface Fault {
  readonly client: string;
  readonly reason: string;
  /** Of what is shown, by name. */
  readonly hides: RegExp;
  when(stream: Stream, response: Json): boolean;
}

const choicesOf = ({ events }: Stream): Json[] => events.flatMap((event) => event?.choices ?? []);
const has = (stream: Stream, ...names: readonly string[]): boolean =>
  choicesOf(stream).some((choice) => names.some((name) => (choice?.delta?.[name] ?? '') !== ''));
const hasList = (stream: Stream): boolean => choicesOf(stream).some((choice) => Array.isArray(choice?.delta?.content));
const calls = (stream: Stream): Json[] => choicesOf(stream).flatMap((choice) => choice?.delta?.tool_calls ?? []);
const several = ({ choices }: Stream): boolean => choices > 1;
const count = (response: Json, type: string): number =>
  response.output.filter((item: Json) => item?.type === type).length;

export const FAULTS: readonly Fault[] = [
  {
    client: 'openai, chat.completions.stream()',
    reason: 'It keeps the last delta of a member that it does not know; the chunks have them all.',
    hides: /\.reasoning$/,
    when: (stream) => has(stream, 'reasoning', 'reasoning_content'),
  },
  {
    client: 'openai, chat.completions.stream()',
    reason: 'It adds a list of parts to a text as "[object Object]"; the chunks have the parts.',
    hides: /\.(text|thinking)$/,
    when: hasList,
  },
  ...[
    '@ai-sdk/openai-compatible, chat',
    '@ai-sdk/openai-compatible, text',
    '@ai-sdk/openai, chat',
    '@langchain/openai, chat',
  ].map((client) => ({
    client,
    reason: 'It reads the first choice of each chunk, whatever its index, and asks for one.',
    hides: /./,
    when: several,
  })),
  ...['@ai-sdk/openai-compatible, chat', '@ai-sdk/openai, chat'].map((client) => ({
    client,
    reason: 'It mixes a refusal into the text as both come.',
    hides: /^text$/,
    when: (stream: Stream) => has(stream, 'content') && has(stream, 'refusal'),
  })),
  {
    client: '@ai-sdk/openai, chat',
    reason: "It knows OpenAI's own members only: no reasoning.",
    hides: /^reasoning$/,
    when: (stream) => has(stream, 'reasoning', 'reasoning_content'),
  },
  { client: '@ai-sdk/openai, chat', reason: 'It refuses content that is a list.', hides: /./, when: hasList },
  {
    client: '@langchain/openai, chat',
    reason: 'It leaves out a chunk whose content is a list, with a warning.',
    hides: /./,
    when: hasList,
  },
  {
    client: '@langchain/openai, chat',
    reason: 'It reads reasoning by one name of several.',
    hides: /\.reasoning$|^reasoning$/,
    when: (stream) => has(stream, 'reasoning') && !has(stream, 'reasoning_content'),
  },
  {
    client: '@langchain/openai, chat',
    reason: 'It knows no refusal.',
    hides: /refusal$/,
    when: (stream) => has(stream, 'refusal'),
  },
  {
    client: '@langchain/openai, chat',
    reason: 'It knows no custom calls.',
    hides: /^calls$/,
    when: (stream) => calls(stream).some((call) => call?.custom !== undefined),
  },
  {
    client: '@langchain/openai, chat',
    reason: 'It joins the reasons of several chunks that finish, and their models.',
    hides: /^(model|finish)$/,
    when: (stream) => choicesOf(stream).filter((choice) => (choice?.finish_reason ?? null) !== null).length > 1,
  },
  {
    client: '@langchain/openai, chat',
    reason: 'It reads the text only of a chunk that follows no role.',
    hides: /^(calls|ids|reasoning|function|audio|finish|model)$/,
    when: (stream) => choicesOf(stream)[0]?.delta?.role !== 'assistant',
  },
  {
    client: '@ai-sdk/openai-compatible, chat',
    reason: "It knows no parts of content but texts and Mistral's thoughts.",
    hides: /^reasoning$/,
    when: (stream) =>
      choicesOf(stream).some(
        ({ delta }) => Array.isArray(delta?.content) && delta.content.some((part: Json) => part?.type === 'reasoning'),
      ),
  },
  {
    client: 'openai, chat.completions.stream()',
    reason: 'It leaves out calls beside a function call.',
    hides: /\.(calls|ids)$/,
    when: (stream) => has(stream, 'function_call') && has(stream, 'tool_calls'),
  },
  {
    client: '@langchain/openai, responses',
    reason: "It merges the parts of all messages by content_index; the chunks' texts are in order.",
    hides: /^text in all$/,
    when: (_, response) => count(response, 'message') > 1,
  },
  {
    client: '@langchain/openai, responses',
    reason: 'It merges the summaries of all reasoning items by summary_index.',
    hides: /^summary$/,
    when: (_, response) => count(response, 'reasoning') > 1,
  },
  {
    client: '@langchain/openai, responses',
    reason: 'It reads the input of a call in deltas only, not in .done.',
    hides: /^calls$/,
    when: ({ events }, response) =>
      response.output.some(
        ({ id, call_id }: Json) =>
          call_id !== undefined && !events.some(({ type, item_id }) => type.endsWith('.delta') && item_id === id),
      ),
  },
];

const nothing = (value: Json): boolean => (value ?? '') === '' || (Array.isArray(value) && value.length === 0);
/** Of these a client that shows nothing misleads nobody. */
const MAY_BE_ABSENT = /(^|\.)(id|model|role|finish)$/;

/** What a client shows that the signed response does not say, or the other way round. */
export function differences(client: Client, stream: Stream, shown: Shown, faults = FAULTS): string[] {
  const signed = signedOf(stream);
  if ('refused' in signed) return [];
  const expected = client.signed(signed.response);
  const found = faults.filter((fault) => fault.client === client.name && fault.when(stream, signed.response));
  const names = [...new Set([...Object.keys(shown), ...Object.keys(expected)])];
  return names
    .filter((name) => !found.some(({ hides }) => hides.test(name)))
    .filter((name) => !agree(name, shown[name], expected[name]))
    .map(
      (name) =>
        `${client.name} shows ${name} ${JSON.stringify(shown[name])}, signed is ${JSON.stringify(expected[name])}`,
    );
}

function agree(name: string, shown: Json, signed: Json): boolean {
  if (nothing(shown)) return nothing(signed) || MAY_BE_ABSENT.test(name);
  if (/(^|\.)ids/.test(name)) return sameIds(shown, signed ?? []);
  return sameJson(shown, signed);
}

const sameJson = (a: Json, b: Json): boolean => isDeepStrictEqual(plain(a), plain(b));
/** Without prototypes and members that are undefined. */
const plain = (value: Json): Json => JSON.parse(JSON.stringify(value ?? null));

/** An SDK makes ids of its own for calls without one, or with that of another call. */
function sameIds(shown: readonly Json[], signed: readonly Json[]): boolean {
  const own = (id: Json) => typeof id !== 'string' || id.trim() === '' || signed.indexOf(id) !== signed.lastIndexOf(id);
  return shown.length === signed.length && signed.every((id, i) => own(id) || id === shown[i]);
}

/** Whether nothing that a client shows of the stream is compared. It may throw then. */
export function isHidden(client: Client, stream: Stream): boolean {
  const signed = signedOf(stream);
  return (
    'response' in signed &&
    FAULTS.some(
      (fault) => fault.client === client.name && fault.hides.source === '.' && fault.when(stream, signed.response),
    )
  );
}
