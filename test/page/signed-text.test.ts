import { expect, it } from 'vitest';
import { answerOf, changedAt, conversationIn, questionOf } from '../../page/proof/signed-text.ts';
import { buildRaw } from '../../proto/attestation/raw.ts';
import { arrayElements } from '../../proto/json.ts';

const raw = (request: string, response: string, endpoint?: string) =>
  buildRaw({ ...(endpoint === undefined ? {} : { endpoint }), request, response, timestamp: 1 });
const textAt = (text: string, at: number) => JSON.parse(/"(?:[^"\\]|\\.)*"/y.exec(text.slice(at))?.[0] ?? 'null');

it.each([
  [
    'chat',
    undefined,
    '{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"A \\"b\\"?"}]}',
    '{"choices":[{"message":{"role":"assistant","reasoning_content":"Hm","content":"C\\u0064"}}]}',
    'A "b"?',
    'Cd',
  ],
  [
    'parts',
    undefined,
    '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}},{"type":"text","text":"What?"}]}]}',
    '{"choices":[{"message":{"content":null,"refusal":"No."}}]}',
    'What?',
    'No.',
  ],
  ['completions', '/v1/completions', '{"prompt":"Once"}', '{"choices":[{"text":" upon"}]}', 'Once', ' upon'],
  [
    'responses',
    '/v1/responses',
    '{"instructions":"x","input":[{"role":"user","content":"Hi"}]}',
    '{"output":[{"type":"message","content":[{"type":"output_text","text":"Yo"}]}]}',
    'Hi',
    'Yo',
  ],
  [
    'messages',
    '/v1/messages',
    '{"system":"x","messages":[{"role":"user","content":"Hi"}]}',
    '{"content":[{"type":"text","text":"Ho"}]}',
    'Hi',
    'Ho',
  ],
])(
  'finds question and answer of %s where they stand in raw',
  (_name, endpoint, request, response, question, answer) => {
    const text = raw(request, response, endpoint);
    const found = conversationIn(text);
    if (found === null) throw new TypeError('no conversation');
    const [asked, answered] = [questionOf(found), answerOf(found)];
    expect([asked?.text, answered?.text]).toEqual([question, answer]);
    expect([textAt(text, asked?.at ?? -1), textAt(text, answered?.at ?? -1)]).toEqual([question, answer]);
  },
);

it.each([
  ['{"data":[{"embedding":[1]}]}', '[numbers: an embedding]'],
  [
    '{"choices":[{"message":{"content":null,"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}}]}',
    '[calls f({})]',
  ],
])('describes what is no text: %s', (response, text) => {
  expect(conversationIn(raw('{"input":"x"}', response))?.response).toMatchObject([{ text, at: null }]);
});

it('finds nothing in what is no raw', () => {
  for (const text of ['', '{}', '{"request":1,"response":2,"timestamp":3}', 'null'])
    expect(conversationIn(text)).toBeNull();
});

it.each([
  ['"abc"', 1, 'b', 'c', '"acc"'],
  ['"az"', 1, 'z', 'a', '"aa"'],
  ['"a9"', 1, '9', '0', '"a0"'],
  ['"a b"', 1, ' ', 'x', '"axb"'],
  ['"a\\nb"', 1, '\n', 'x', '"axb"'],
  ['"a\\u00e9b"', 1, 'é', 'x', '"axb"'],
  ['"a\\"b"', 2, 'b', 'c', '"a\\"c"'],
  ['"a😀b"', 1, '😀', 'x', '"axb"'],
  ['"\\ud83d\\ude00b"', 0, '😀', 'x', '"xb"'],
  ['"\\ud83d"', 0, '\ud83d', 'x', '"x"'],
])('puts another character into %s at %d', (json, index, was, is, changed) => {
  expect(changedAt(json, 0, index)).toEqual({ raw: changed, was, is });
});

it('finds the elements of an array', () => {
  const text = ' [ 1 , "a]," ,[2,{"b":"]"}], {} ] ';
  expect(arrayElements(text).map(({ valueStart, valueEnd }) => text.slice(valueStart, valueEnd))).toEqual([
    '1',
    '"a],"',
    '[2,{"b":"]"}]',
    '{}',
  ]);
  expect(arrayElements('[]')).toEqual([]);
  for (const wrong of ['{}', '[1', '[1 2]', '[,]', '']) expect(() => arrayElements(wrong)).toThrow();
});
