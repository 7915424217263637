// Streams: server-sent events, the chunks of a completion, named events, and streams that were attested.
import { foldPayloads } from '../../proto/stream/fold.ts';
import { nonceHex, transcript, WHOLE } from '../../scripts/vectors/exchange.ts';
import { forge } from '../../scripts/vectors/forge.ts';
import type { World } from '../../scripts/vectors/world.ts';
import {
  backwards,
  each,
  FEW,
  type Format,
  type Production,
  pairs,
  repeat,
  shaped,
  VALUES,
  within,
  words,
} from './grammar.ts';

const lines: Format = {
  name: 'event lines',
  most: 8_192,
  encoding: 'utf8',
  productions: {
    ...words(
      [
        ...[
          'data: x\n',
          'data: x\n\n',
          'data: x\r\n\r\n',
          'data\n',
          'data:',
          'data: {}\n\n',
          'data: [DONE]\n\n',
          'data: }\n',
          'dat',
        ],
        ...[
          'a\r',
          'a\n',
          'a\r\n',
          '\r',
          '\n',
          '\r\n',
          '\n\r',
          ':\n',
          ': c\n\n',
          'event: x\n',
          'event: x\n\n',
          'event:\n',
          'id: 1\n',
          'retry: 1\n',
        ],
        ...['x', ' ', '\uFEFF', '\uFEFFdata: x\n\n', '\u2028', '\u0085', '\0', '}', '\\', '"', 'data: "\\u0061"\n\n'],
      ],
      [
        ['', ''],
        ['data: x\n', '\n\n'],
      ],
    ),
    ...words(
      ['x', '\\"', '}', '\r', '\0', '\u2028', 'data: '],
      [['data: {"choices":[{"index":0,"delta":{"content":"', '"}}]}\n\n']],
    ),
    ...pairs(['data: x\n', 'a\r', '\n', ': c\n', 'x']),
  },
};

const chunk = (choices: string, more = '') =>
  `{"id":"c","object":"chat.completion.chunk","created":1,"model":"m"${more},"choices":[${choices}]}`;
const delta = (members: string, index: number | string = 0, finish = 'null') =>
  chunk(`{"index":${index},"delta":{${members}},"finish_reason":${finish}}`);
const event = (payload: string) => `data: ${payload}\n\n`;
const MANY_CHOICES = 10_000;
const FIRST = delta('"role":"assistant","content":""');
const LAST = delta('', 0, '"stop"');

/** Payloads that differ by their place, between a first and a last chunk. */
const stream = (payload: (i: number) => string, last = LAST): Production =>
  within(
    event(FIRST),
    each((i) => event(payload(i))),
    event(last) + event('[DONE]'),
  );
/** What the payloads fold into; `other` where they do not: a transcript that is refused is read, too. */
function foldedOr(other: string, payloads: readonly string[]): string {
  try {
    return foldPayloads(payloads, MANY_CHOICES);
  } catch {
    return other;
  }
}

/** One chunk that is large. */
const single =
  (inner: Production, put: (text: string) => string): Production =>
  (n) =>
    stream(() => put(inner(n)))(1);
const choice = (i: number) => `{"index":${i},"delta":{"content":"x"},"finish_reason":null},`;
const ended = '{"index":0,"delta":{},"finish_reason":null}';

const chunks: Format = {
  name: 'chunks',
  most: 32_768,
  encoding: 'utf8',
  productions: {
    'the same chunk': stream(() => delta('"content":"x"')),
    'chunks of many letters': stream(() => delta(`"content":"${'x'.repeat(200)}"`)),
    'contents that are escaped': stream(() => delta('"content":"\\n"')),
    'two choices in turn': stream((i) => delta('"content":"x"', i % 2)),
    'ever another choice': stream((i) => delta('"content":"x"', i + 1)),
    'ever an earlier choice': (n) => stream((i) => delta('"content":"x"', Math.ceil(n / 100) - i))(n),
    'choices to and fro': (n) => stream((i) => delta('"content":"x"', i % 2 === 0 ? 0 : Math.ceil(n / 100) - i))(n),
    'an index beyond all': stream((i) => delta('"content":"x"', 10_000 + i)),
    'an index that is kept as text': stream((i) => delta('"content":"x"', `${i}.0`)),
    'many choices in one chunk': single(each(choice), (text) => chunk(text + ended)),
    'many choices, the last first': single(
      backwards((n) => Math.ceil(n / 60), choice),
      (text) => chunk(text + ended),
    ),
    'many choices twice': stream((i) =>
      chunk(`${Array.from({ length: 4 }, (_, k) => choice(k + i)).join('')}${ended}`),
    ),
    'many choices without an index': single(repeat('{"delta":{"content":"x"}},'), (text) => chunk(text + ended)),
    'tool calls': stream((i) =>
      delta(`"tool_calls":[{"index":${i},"id":"c","function":{"name":"f","arguments":"{}"}}]`),
    ),
    'tool calls, the last first': (n) =>
      stream((i) => delta(`"tool_calls":[{"index":${Math.ceil(n / 100) - i},"function":{"arguments":"x"}}]`))(n),
    'a tool call that grows': stream(() => delta('"tool_calls":[{"index":0,"function":{"arguments":"x"}}]')),
    'lists that are appended': stream(() =>
      chunk(
        `{"index":0,"delta":{"content":"x"},"logprobs":{"content":[{"token":"x","logprob":-1.0}]},"finish_reason":null}`,
      ),
    ),
    'ever a new member': stream((i) => chunk(ended, `,"m${i}":1`)),
    'ever a new member of the delta': stream((i) => delta(`"m${i}":"x"`)),
    'usage in each': stream(() => chunk('', ',"usage":{"prompt_tokens":1,"completion_tokens":2}')),
    'null in each': stream(() => 'null'),
    'empty objects': stream(() => '{}'),
    'finished again and again': stream(() => LAST),
    'chunks after the last': within(
      event(FIRST) + event(LAST),
      each(() => event(delta('"content":"x"'))),
      event('[DONE]'),
    ),
    'choices that finish one by one': stream((i) => delta('', i, '"stop"')),
    'choices that are an object': stream(() => '{"choices":{"0":{"delta":{"content":"x"},"finish_reason":null}}}'),
    'error null in each': stream(() => chunk(ended, ',"error":null')),
    attestations: stream(() => chunk(ended, ',"attestation":{"raw":"x"}')),
    'an attestation by an escaped name': stream(() => chunk(ended, ',"\\u0061ttestation":1')),
    'payloads of many lines': stream(() => `{\ndata: "choices":\ndata: [${ended}]}`),
    'comments between': stream(() => `${delta('"content":"x"')}\n\n: c`),
    'ends of CR LF': (n) => stream(() => delta('"content":"x"'))(n).replaceAll('\n', '\r\n'),
    ...shaped({ 'in a delta': (text) => stream(() => delta(`"content":${text}`))(1) }, FEW),
    ...shaped({ 'beside the choices': (text) => stream(() => chunk(ended, `,"x":${text}`))(1) }, VALUES),
  },
};

const named = (type: string, members: string) => `event: ${type}\ndata: {"type":"${type}"${members}}\n\n`;
const MESSAGE_START = named('message_start', ',"message":{"usage":{"a":1}}');
const MESSAGE_END = named('message_delta', ',"delta":{"stop_reason":"x"}') + named('message_stop', '');
const begun = (type = '"text"') =>
  MESSAGE_START + named('content_block_start', `,"index":0,"content_block":{"type":${type},"text":""}`);
const STOP = named('content_block_stop', ',"index":0');
const grown = (i: number, one: string) => named('content_block_delta', `,"index":${i},"delta":${one}`);
const RESPONSE_START = named('response.created', ',"response":{"id":"r"}');
const textDelta = (at: string, kind = 'output_text') => named(`response.${kind}.delta`, `,${at},"delta":"x"`);
/** Half of the text is what was streamed, and half the final response, whose output has as many items. */
const responded =
  (streamed: (i: number) => string, item: (i: number) => string): Production =>
  (n) => {
    const count = Math.ceil(n / 200);
    const all = (one: (i: number) => string) => Array.from({ length: count }, (_, i) => one(i));
    return `${RESPONSE_START}${all(streamed).join('')}${named('response.completed', `,"response":{"id":"r","output":[${all(item)}]}`)}`;
  };

const events: Format = {
  name: 'named events',
  most: 32_768,
  encoding: 'utf8',
  productions: {
    'deltas of one text': within(
      begun(),
      each(() => grown(0, '{"text":"x"}')),
      STOP + MESSAGE_END,
    ),
    'ever another member': within(
      begun(),
      each((i) => grown(0, `{"m${i}":"x"}`)),
      STOP + MESSAGE_END,
    ),
    citations: within(
      begun(),
      each(() => grown(0, '{"type":"citations_delta","citation":{}}')),
      STOP + MESSAGE_END,
    ),
    'citations to a text': within(
      begun(),
      each(() => grown(0, '{"type":"citations_delta"}')),
      STOP + MESSAGE_END,
    ),
    'an input in pieces': within(
      begun() + grown(0, '{"type":"input_json_delta","partial_json":"[1"}'),
      each(() => grown(0, '{"type":"input_json_delta","partial_json":",1.0"}')),
      grown(0, '{"type":"input_json_delta","partial_json":"]"}') + STOP + MESSAGE_END,
    ),
    'many blocks': within(
      MESSAGE_START,
      each(
        (i) =>
          named('content_block_start', `,"index":${i},"content_block":{}`) +
          named('content_block_stop', `,"index":${i}`),
      ),
      MESSAGE_END,
    ),
    'many blocks that stay open': within(
      MESSAGE_START,
      each((i) => named('content_block_start', `,"index":${i},"content_block":{}`)),
      MESSAGE_END,
    ),
    'many usages': within(
      MESSAGE_START,
      each((i) => named('message_delta', `,"usage":{"u${i}":1}`)),
      MESSAGE_END,
    ),
    'many usages over many': (n) =>
      within(
        named('message_start', `,"message":{"usage":{${each((i) => `"u${i}":1,`)(n / 2)}"z":1}}`),
        each(() => named('message_delta', ',"usage":{"a":1}')),
        MESSAGE_END,
      )(n / 2),
    'many members of a message': within(
      MESSAGE_START,
      each((i) => named('message_delta', `,"m${i}":1`)),
      MESSAGE_END,
    ),
    pings: within(MESSAGE_START, repeat(named('ping', '')), MESSAGE_END),
    'deltas of one response': responded(
      () => textDelta('"item_id":"i","output_index":0,"content_index":0'),
      (i) => `{"id":"i","content":[{"text":"${'x'.repeat(i === 0 ? 1 : 40)}"}]}`,
    ),
    'items by their names': responded(
      (i) => textDelta(`"item_id":"i${i}","output_index":0,"content_index":0`),
      (i) => `{"id":"i${i}","content":[{"text":"x"}]}`,
    ),
    'items by names that are none': responded(
      (i) => textDelta(`"item_id":"no${i}","output_index":${i},"content_index":0`),
      (i) => `{"id":"i${i}","content":[{"text":"x"}]}`,
    ),
    'items of one name': responded(
      (i) => textDelta(`"item_id":"i","content_index":${i}`),
      () => `{"id":"i","content":[{"text":"x"}]}`,
    ),
    'arguments of many calls': responded(
      (i) => textDelta(`"item_id":"i${i}"`, 'function_call_arguments'),
      (i) => `{"id":"i${i}","arguments":"x"}`,
    ),
    'other events of a response': within(
      RESPONSE_START,
      each((i) => named('response.x', `,"sequence_number":${i}`)),
      named('response.completed', ',"response":{"id":"r"}'),
    ),
    'long names': within('event: ', repeat('x'), '\ndata: {}\n\n'),
    'many names': repeat('event: x\n'),
    'names of 128 characters': repeat(`event: ${'x'.repeat(128)}\ndata: {}\n\n`),
    'names behind data': repeat('data: {}\nevent: x\n\n'),
    'names and comments': repeat('event: x\n: c\ndata: {}\r\n\r\n'),
    ...shaped(
      { 'in a final response': (text) => RESPONSE_START + named('response.completed', `,"response":{"x":${text}}`) },
      VALUES,
    ),
    ...shaped({ 'in a block': (text) => begun(text) + STOP + MESSAGE_END }, VALUES),
  },
};

/** What grows by a little with each event shows in many of them only. */
const longEvents: Format = {
  name: 'long streams of named events',
  most: 131_072,
  encoding: 'utf8',
  productions: Object.fromEntries(
    Object.entries(events.productions).filter(([name]) =>
      ['citations', 'many usages over many', 'items by names that are none'].includes(name),
    ),
  ),
};

/** Streams that were attested, as a client saved them: they are read to their end. */
function transcripts(world: World): Format {
  const productions: Record<string, Format['productions'][string]> = {};
  for (const [name, payload] of Object.entries<(i: number, n: number) => string>({
    'the same chunk': () => delta('"content":"x"'),
    'contents that are escaped': () => delta('"content":"\\n"'),
    'two choices in turn': (i) => delta('"content":"x"', i % 2),
    'ever an earlier choice': (i, n) => delta('"content":"x"', Math.ceil(n / 100) - i),
    'ever a new member': (i) => chunk(ended, `,"m${i}":1`),
    'one chunk that is large': (_i, n) => delta(`"content":"${'x'.repeat(n)}"`),
    'numbers that keep their text': () => chunk(ended, ',"x":[1.0]'),
    'words about attestation': () => delta('"content":"attestation"'),
  }))
    productions[name] = async (n) => {
      const payloads = [FIRST];
      for (let i = 0, length = 0; length < n; i++)
        length += (payloads[payloads.push(payload(i, n)) - 1] as string).length;
      payloads.push(LAST);
      const parts = {
        ...WHOLE,
        request: `{"messages":[{"role":"user"}],"stream":true,"n":${MANY_CHOICES},"tee":true}`,
        response: foldedOr(WHOLE.response, payloads),
        stream: { events: payloads.length, sha256: nonceHex(payloads.map((one) => `${one}\n`).join('')) },
      };
      return transcript(payloads, await forge(world, { parts }));
    };
  return { name: 'transcripts', most: 16_384, encoding: 'utf8', productions };
}

export const streamFormats = (world: World): Format[] => [lines, chunks, events, longEvents, transcripts(world)];
