// Texts: server-sent events, the chunks of a stream, JSON in the shapes that are read, tokens.
import { foldPayloads } from '../../proto/fold.ts';
import { nonceHex, rawOf, transcript, WHOLE } from '../../scripts/vectors/exchange.ts';
import { forge } from '../../scripts/vectors/forge.ts';
import type { World } from '../../scripts/vectors/world.ts';
import {
  backwards,
  each,
  type Format,
  nested,
  type Production,
  type Productions,
  pairs,
  repeat,
  shaped,
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
const FIRST = delta('"role":"assistant","content":""');
const LAST = delta('', 0, '"stop"');

/** Payloads that differ by their place, between a first and a last chunk. */
const stream = (payload: (i: number) => string, last = LAST): Production =>
  within(
    event(FIRST),
    each((i) => event(payload(i))),
    event(last) + event('[DONE]'),
  );
/** One chunk that is large. */
const single =
  (inner: Production, put: (text: string) => string): Production =>
  (n) =>
    stream(() => put(inner(n)))(1);
const choice = (i: number) => `{"index":${i},"delta":{"content":"x"},"finish_reason":null},`;
const ended = '{"index":0,"delta":{},"finish_reason":null}';

/** Valid JSON values that are large. */
const VALUES: Productions = {
  'a long string': within('"', repeat('x'), '"'),
  'a string of escapes': within('"', repeat('\\\\'), '"'),
  'a string of escaped quotes': within('"', repeat('\\"'), '"'),
  'a string of escaped letters': within('"', repeat('\\u0061'), '"'),
  'a string beyond ASCII': within('"', repeat('é\u2028😀'), '"'),
  'a string of braces': within('"', repeat('}'), '"'),
  'a long number': within('1', repeat('0'), ''),
  'a long fraction': within('0.', repeat('0'), '1'),
  numbers: within('[', repeat('1,'), '1]'),
  'numbers that keep their text': within('[', repeat('1.0,'), '1e5]'),
  strings: within('[', repeat('"x",'), '"x"]'),
  'empty lists': within('[', repeat('[],'), '[]]'),
  'empty objects': within('[', repeat('{},'), '{}]'),
  'lists in lists': (n) => nested('[', '1', ']')(Math.min(n, 1_000)),
  'objects in objects': (n) => nested('{"a":', '1', '}')(Math.min(n, 3_000)),
  'many members': within(
    '{',
    each((i) => `"m${i}":1,`),
    '"z":1}',
  ),
  'many names that are escaped': within(
    '{',
    each((i) => `"\\u006d${i}":1,`),
    '"z":1}',
  ),
  'many names with a backslash': within(
    '{',
    each((i) => `"\\\\m${i}":1,`),
    '"z":1}',
  ),
  'many numbers as names': within(
    '{',
    each((i) => `"${100_000 - i}":1,`),
    '"z":1}',
  ),
  'one name, again and again': within('{', repeat('"a":1,'), '"a":1}'),
  'a long name': within('{"', repeat('x'), '":1}'),
  'names of different case': within(
    '{',
    each((i) => `"${i.toString(2).padStart(14, '0').replace(/0/g, 'a').replace(/1/g, 'A')}":1,`),
    '"z":1}',
  ),
  'space between': within('[1', repeat(' \n\t\r'), ',1]'),
  'space before each colon': within(
    '{',
    each((i) => `"m${i}"${' '.repeat(20)}:1,`),
    '"z":1}',
  ),
  'objects of one shape': within('[', repeat('{"index":0,"a":"b"},'), '{}]'),
  'objects by index': within(
    '[',
    each((i) => `{"index":${i},"a":"b"},`),
    '{}]',
  ),
};

const some = (...names: readonly string[]): Productions =>
  Object.fromEntries(Object.entries(VALUES).filter(([name]) => names.includes(name)));
const FEW = some(
  'a string of escapes',
  'a string beyond ASCII',
  'numbers',
  'many members',
  'empty objects',
  'lists in lists',
);

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

const responses: Format = {
  name: 'nested responses',
  most: 32_768,
  encoding: 'utf8',
  productions: {
    'a response in a response': nested('{"type":"response.completed","response":', '{"attestation":{}}', '}'),
    'an event in an attestation': nested('{"attestation":{"type":"response.completed","response":', '{}', '}}'),
    'many responses': within('{', repeat('"response":{},'), '"type":"response.completed"}'),
    'attestations beside': within(
      '{',
      each((i) => `"r${i}":{"attestation":{}},`),
      '"attestation":{}}',
    ),
    ...shaped({ 'beside an attestation': (text) => `{"x":${text},"attestation":{}}` }, VALUES),
  },
};

const json: Format = {
  name: 'JSON',
  most: 16_384,
  encoding: 'utf8',
  productions: {
    ...shaped(
      {
        alone: (text) => text,
        'in a member': (text) => `{"a":${text}}`,
      },
      VALUES,
    ),
    ...shaped({ 'in a list': (text) => `[${text}]`, 'in a text': (text) => JSON.stringify(text) }, FEW),
    ...words(
      [
        '[',
        '{"a":',
        '"',
        '\\',
        '\\"',
        '}',
        ']',
        ',',
        ':',
        ' ',
        '1',
        '{',
        '{}',
        '"a":1,',
        '"":',
        '-0,',
        '1e5,',
        '.0',
        'null,',
        '\uFEFF',
        '0.00000',
      ],
      [
        ['', ''],
        ['{"a":', '}'],
        ['{', '}'],
      ],
    ),
    ...pairs(['"', '\\', ' ', '[', '}', '"a":1,'], ['{"a":', '}']),
    'space before': within('', repeat(' '), '{}'),
    'space behind': within('{}', repeat(' '), ''),
    'braces behind': within('{"a":1}', repeat('}'), ''),
  },
};

const MESSAGE = '{"role":"user","content":"x"}';
const requests: Format = {
  name: 'requests',
  // Below 10,000 messages, and below as long a text in their place.
  most: 8_192,
  encoding: 'utf8',
  productions: {
    ...shaped(
      {
        'a message': (text) => `{"model":"m","messages":[{"role":"user","content":${text}}],"tee":true}`,
        'before tee': (text) => `{"model":"m","messages":[${MESSAGE}],"x":${text},"tee":true}`,
      },
      VALUES,
    ),
    ...shaped(
      {
        'behind tee': (text) => `{"tee":true,"model":"m","messages":[${MESSAGE}],"x":${text}}`,
        prompt: (text) => `{"model":"m","prompt":${text},"stream":true,"tee":false}`,
        messages: (text) => `{"model":"m","messages":${text}}`,
      },
      FEW,
    ),
    'many messages': within('{"model":"m","messages":[', repeat(`${MESSAGE},`), `${MESSAGE}],"tee":true}`),
    'many messages without a role': within('{"model":"m","messages":[', repeat('{},'), '{}]}'),
    'many prompts of tokens': within('{"prompt":[', repeat('[1,2],'), '[1]],"tee":true}'),
    'many prompts of which none is right': within('{"prompt":[', repeat('[1,"x"],'), '[1]]}'),
    'tee, again and again': within('{"messages":[{"role":"u"}],', repeat('"tee":true,'), '"tee":true}'),
    'model, again and again': within('{"messages":[{"role":"u"}],', repeat('"model":"m",'), '"tee":true}'),
    'many models': within(
      '{"data":[',
      each((i) => `{"id":"m${i}"},`),
      '{"id":"m"}]}',
    ),
    'many models that are none': within('{"data":[', repeat('{},'), '{"id":"m"}]}'),
    'an error of many details': within('{"detail":[', repeat('{"loc":["body","x"],"msg":"x"},'), '{}]}'),
    'an error of a deep place': within('{"detail":[{"loc":[', repeat('"x",'), '"x"]}]}'),
  },
};

const base64Url = (text: string) => Buffer.from(text).toString('base64url');
const jwt = (payload: string, header = '{"alg":"none"}') => `${base64Url(header)}.${base64Url(payload)}.`;
const NONCE = '0'.repeat(64);
const claimed = (text: string) => `{"eat_nonce":"${NONCE}","x":${text}}`;

const tokens: Format = {
  name: 'tokens',
  most: 16_384,
  encoding: 'utf8',
  productions: {
    ...shaped(
      {
        claims: (text) => jwt(claimed(text)),
      },
      VALUES,
    ),
    ...shaped(
      {
        header: (text) => jwt(claimed('1'), `{"alg":"none","x":${text}}`),
        submodule: (text) => `[["JWT","${jwt(claimed('1'))}"],{"GPU-0":"${jwt(claimed(text), '{"alg":"HS256"}')}"}]`,
        'beside the claims': (text) =>
          `{"detached_eat":[["JWT","${jwt(claimed('1'))}"],{"GPU-0":"${jwt(claimed('1'))}"}],"x":${text}}`,
        'printed claims': (text) =>
          `{"detached_eat":[["JWT","${jwt(claimed('1'))}"],{"GPU-0":"${jwt(claimed(text))}"}],"claims":[${claimed(text)}]}`,
        outer: (text) => text,
      },
      FEW,
    ),
    ...words(
      ['.', 'A', 'e30.', '-', '_', '=', ' ', '[', '["JWT",', '"'],
      [
        ['', ''],
        ['[["JWT","', '"],{}]'],
      ],
    ),
    'submodules that are named': (n) =>
      `[["JWT","${jwt(
        `{"eat_nonce":"${NONCE}","submods":${within(
          '{',
          each((i) => `"GPU-${i}":["DIGEST",["SHA256","${NONCE}"]],`),
          '"Z":1}',
        )(n)}}`,
      )}"],{"GPU-0":"${jwt(claimed('1'))}"}]`,
    'many submodules': within(
      `[["JWT","${jwt(claimed('1'))}"],{`,
      each((i) => `"GPU-${i}":"${jwt(claimed('1'))}",`),
      '"Z":"x.y.z"}]',
    ),
  },
};

/** Attestations that are right, of large requests and answers; and some that are not. */
function attestations(world: World): Format {
  const of = (request: string, response: string) => forge(world, { parts: { ...WHOLE, request, response } });
  const productions: Record<string, Format['productions'][string]> = {};
  for (const [name, value] of Object.entries(VALUES)) {
    productions[`request: ${name}`] = async (n) => JSON.stringify(await of(`{"a":${value(n)}}`, WHOLE.response));
    productions[`response: ${name}`] = async (n) => {
      const response = `{"a":${value(n)}}`;
      return response.replace(/\}$/, `,"attestation":${JSON.stringify(await of(WHOLE.request, response))}}`);
    };
  }
  for (const [name, value] of Object.entries(FEW)) {
    productions[`raw: ${name}`] = (n) => JSON.stringify({ raw: value(n), nonce: nonceHex(value(n)), token: 't' });
    productions[`evidence: ${name}`] = (n) =>
      `{"raw":${JSON.stringify(rawOf(WHOLE))},"nonce":"${nonceHex(rawOf(WHOLE))}","token":"t","evidence":${value(n)}}`;
    productions[`members: ${name}`] = (n) =>
      `{"token":${value(n)},"evidence":[{"arch":"HOPPER","report":"AAAA","certificate_chain":"AAAA"}]}`;
  }
  const LONG = 'A'.repeat(52);
  const device = (report: string, chain: string) =>
    `{"arch":"HOPPER","report":"${report}","certificate_chain":"${chain}"}`;
  return {
    name: 'attestations',
    most: 8_192,
    encoding: 'utf8',
    productions: {
      ...productions,
      ...shaped(
        {
          report: (text) => `[${device(text, 'AAAA')}]`,
          chain: (text) => `[${device('AAAA', text)}]`,
          members: (text) => `{"token":"tt","evidence":[${device(text, text)}]}`,
        },
        { letters: repeat('A'), 'line ends': repeat('AAAA\\n'), padding: repeat('='), escapes: repeat('\\\\') },
      ),
      'many devices': within('[', repeat(`${device(LONG, LONG)},`), `${device(LONG, LONG)}]`),
      'devices as members': within(
        '{"token":"tt","evidence":[',
        repeat(`${device(LONG, LONG)},`),
        `${device(LONG, LONG)}]}`,
      ),
      'attestation, again and again': within('{', repeat('"attestation":{},'), '"attestation":{}}'),
    },
  };
}

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
        request: '{"messages":[{"role":"user"}],"stream":true,"tee":true}',
        response: foldPayloads(payloads),
        stream: { events: payloads.length, sha256: nonceHex(payloads.map((one) => `${one}\n`).join('')) },
      };
      return transcript(payloads, await forge(world, { parts }));
    };
  return { name: 'transcripts', most: 16_384, encoding: 'utf8', productions };
}

export const textFormats = (world: World): Format[] => [
  lines,
  chunks,
  events,
  responses,
  json,
  requests,
  tokens,
  attestations(world),
  transcripts(world),
];
