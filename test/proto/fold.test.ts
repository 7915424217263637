import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Fold, FoldError, foldPayloads, parseChunk } from '../../proto/stream/fold.ts';

const base = { id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'm' };
const chunk = (choice: object, more: object = {}) =>
  JSON.stringify({ ...base, ...more, choices: [{ index: 0, ...choice }] });
const fold = (...payloads: string[]) => JSON.parse(foldPayloads(payloads, 3));

describe('fold', () => {
  it('turns chat chunks into a chat completion', () => {
    const folded = fold(
      chunk({ delta: { role: 'assistant', content: '' }, finish_reason: null }),
      chunk({ delta: { content: 'Hel' }, finish_reason: null }),
      chunk({ delta: { content: 'lo' }, finish_reason: null }),
      chunk({ delta: {}, finish_reason: 'stop' }),
      JSON.stringify({ ...base, choices: [], usage: { total_tokens: 3 } }),
    );
    expect(folded).toEqual({
      id: 'c1',
      object: 'chat.completion',
      created: 1,
      model: 'm',
      choices: [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }],
      usage: { total_tokens: 3 },
    });
  });

  it('merges tool calls by index: names and ids are set, arguments grow', () => {
    const call = (index: number, part: object) => chunk({ delta: { tool_calls: [{ index, ...part }] } });
    const folded = fold(
      call(0, { id: 'a', type: 'function', function: { name: 'weather', arguments: '' } }),
      call(0, { function: { arguments: '{"city":' } }),
      call(1, { id: 'b', type: 'function', function: { name: 'time', arguments: '{}' } }),
      call(0, { id: '', function: { name: '', arguments: '"Paris"}' } }),
      chunk({ delta: {}, finish_reason: 'tool_calls' }),
    );
    expect(folded.choices[0].message).toEqual({
      role: 'assistant',
      content: null,
      tool_calls: [
        { id: 'a', type: 'function', function: { name: 'weather', arguments: '{"city":"Paris"}' } },
        { id: 'b', type: 'function', function: { name: 'time', arguments: '{}' } },
      ],
    });
  });

  it('keeps several choices apart and in order, whatever order they come in', () => {
    const of = (index: number, content: string) =>
      JSON.stringify({ ...base, choices: [{ index, delta: { content } }] });
    const folded = fold(of(1, 'b'), of(0, 'a'), of(1, 'B'), of(2, 'c'), of(0, 'A'));
    expect(
      folded.choices.map((choice: { index: number; message: { content: string } }) => [
        choice.index,
        choice.message.content,
      ]),
    ).toEqual([
      [0, 'aA'],
      [1, 'bB'],
      [2, 'c'],
    ]);
  });

  it('appends logprobs, grows reasoning and refusals, and carries unknown members', () => {
    const folded = fold(
      chunk({
        delta: { reasoning_content: 'Let ', refusal: null, x: { y: 'a' } },
        logprobs: { content: [{ token: 'a', logprob: -0.1 }] },
      }),
      chunk({
        delta: { reasoning_content: 'me', refusal: 'No', x: { y: 'b' } },
        logprobs: { content: [{ token: 'b', logprob: -0.2 }] },
        stop_reason: 'first',
      }),
      chunk(
        { delta: { refusal: '.' }, logprobs: null, stop_reason: 'last' },
        { system_fingerprint: 'fp', new_thing: [1] },
      ),
      chunk({ delta: {} }, { new_thing: [2] }),
    );
    expect(folded.choices[0].message).toMatchObject({ reasoning_content: 'Let me', refusal: 'No.', x: { y: 'b' } });
    expect(folded.choices[0].logprobs.content.map((one: { token: string }) => one.token)).toEqual(['a', 'b']);
    expect(folded.choices[0].stop_reason).toBe('last');
    expect(folded).toMatchObject({ system_fingerprint: 'fp', new_thing: [1, 2] });
  });

  it('turns text chunks into a text completion', () => {
    const of = (text: string, finish_reason: string | null) =>
      JSON.stringify({
        id: 'x',
        object: 'text_completion',
        choices: [{ index: 0, text, logprobs: null, finish_reason }],
      });
    expect(fold(of('one ', null), of('two', 'length'))).toEqual({
      id: 'x',
      object: 'text_completion',
      choices: [{ index: 0, text: 'one two', logprobs: null, finish_reason: 'length' }],
    });
  });

  it('takes the last usage whole', () => {
    expect(
      fold(
        chunk({ delta: {} }, { usage: { a: 1, b: 1 } }),
        chunk({ delta: {} }, { usage: { a: 2 } }),
        chunk({ delta: {} }, { usage: null }),
      ).usage,
    ).toEqual({ a: 2 });
  });

  it('keeps the text of numbers that JavaScript would print otherwise', () => {
    const payload =
      '{"object":"chat.completion.chunk","seed":12345678901234567890,"p":1.0,"q":1e-05,"z":-0,"plain":-0.5,"choices":[{"index":0,"delta":{"score":2.50}}]}';
    expect(foldPayloads([payload])).toBe(
      '{"object":"chat.completion","seed":12345678901234567890,"p":1.0,"q":1e-05,"z":-0,"plain":-0.5,"choices":[{"index":0,"message":{"role":"assistant","content":null,"score":2.50}}]}',
    );
  });

  it.each(['12345678.1234567890123', '0.0000001', '-0.00000005', '1700000000.123456789'])(
    'keeps the text of %s',
    (n) => {
      expect(foldPayloads([`{"object":"text_completion","n":${n}}`])).toBe(`{"object":"text_completion","n":${n}}`);
    },
  );

  it.each(['1.0', '1e0', '-0', '-1', '0.5', '10001', '"0"', 'true', '{}', '[0]'])(
    'refuses a choice whose index is %s: clients disagree about it',
    (index) => {
      const of = (one: string) => `{"object":"text_completion","choices":[{"index":${one},"text":"a"}]}`;
      expect(() => fold(of('0'), of(index))).toThrow(FoldError);
      expect(fold(of('0'), of('1')).choices).toHaveLength(2);
    },
  );

  it('merges carried items by the value of their index', () => {
    const of = (index: string, n: number) => `{"object":"text_completion","x":[{"index":${index},"n":${n}}]}`;
    expect(JSON.parse(foldPayloads([of('1', 1), of('1.0', 2)])).x).toEqual([{ index: 1, n: 2 }]);
  });

  it('takes many indexed items in a time that grows with their number', () => {
    const choices = Array.from({ length: 10_000 }, (_, index) => ({ index, text: 'x' }));
    const started = performance.now();
    foldPayloads([JSON.stringify({ object: 'text_completion', choices })], choices.length);
    expect(performance.now() - started).toBeLessThan(2_000);
  });

  it('merges by index whichever item grows, what has no index standing where it was appended', () => {
    const x = (...items: unknown[]) => JSON.stringify({ x: items });
    const at = (index: number, text: string) => ({ index, texts: [text] });
    const folded = foldPayloads([
      x(at(3, 'd'), at(1, 'b'), 'loose', at(3, 'D'), at(2, 'c')),
      x(at(1, 'B'), at(0, 'a'), at(2, 'C'), at(4, 'e')),
      x(at(3, '!'), at(0, 'A'), at(4, 'E'), null, at(1, '?')),
    ]);
    expect(JSON.parse(folded).x).toEqual([
      { index: 0, texts: ['a', 'A'] },
      { index: 1, texts: ['b', 'B', '?'] },
      { index: 2, texts: ['c', 'C'] },
      { index: 3, texts: ['d', 'D', '!'] },
      'loose',
      { index: 4, texts: ['e', 'E'] },
      null,
    ]);
  });

  it('stands in the order of indices as if each item were put before the first with a greater one', () => {
    const item = fc.oneof({ weight: 4, arbitrary: fc.nat(12) }, fc.constant(null));
    fc.assert(
      fc.property(fc.array(fc.array(item, { maxLength: 6 }), { maxLength: 6 }), fc.boolean(), (chunks, early) => {
        const expected: { index?: number; n: number }[] = [];
        const folded = new Fold();
        for (const [n, chunk] of chunks.entries()) {
          const items = chunk.map((index) => (index === null ? { n } : { index, n }));
          folded.add(parseChunk(JSON.stringify({ x: items })));
          // What is written in between changes nothing.
          if (early) folded.text();
          for (const one of items) {
            const same = expected.find(({ index }) => index !== undefined && index === one.index);
            const at = one.index === undefined ? -1 : expected.findIndex(({ index = -1 }) => index > (one.index ?? 0));
            if (same !== undefined) same.n = n;
            else expected.splice(at < 0 ? expected.length : at, 0, { ...one });
          }
        }
        expect((JSON.parse(folded.text()) as { x?: unknown }).x ?? []).toEqual(expected);
      }),
      { numRuns: 1_000 },
    );
  });

  it('refuses __proto__: copied into another object it is its prototype', () => {
    for (const name of ['__proto__', '\\u005f_proto__'])
      expect(() => fold(chunk({ delta: { a: 1 } }).replace('"a"', `"${name}"`))).toThrow(/__proto__/);
    expect(fold(chunk({ delta: { content: '__proto__' } })).choices[0].message.content).toBe('__proto__');
  });

  it('lets a payload of null say nothing', () => {
    expect(fold('null', chunk({ delta: { content: 'a' } })).choices[0].message.content).toBe('a');
  });

  it('refuses what is not a JSON object', () => {
    expect(() => foldPayloads(['[1]'])).toThrow(FoldError);
    expect(() => foldPayloads(['{"a":'])).toThrow(FoldError);
  });
});

/** What a client would show of these is not what one response can say. */
describe('a stream that does not fold', () => {
  const delta = (one: object) => chunk({ delta: one });
  const call = (part: object) => delta({ tool_calls: [{ index: 0, function: { name: 'a' }, ...part }] });
  const named = (name: string, more: object = {}) => call({ function: { name, ...more } });
  it.each<[string, readonly string[]]>([
    ['a message beside a delta', [chunk({ delta: { content: 'a' }, message: { content: 'b' } })]],
    ['a message in a chunk', [chunk({ delta: { content: 'a' } }, { type: 'message', message: { content: 'b' } })]],
    ['text after its end', [chunk({ finish_reason: 'stop' }), delta({ content: 'a' })]],
    ['a call after its end', [chunk({ finish_reason: 'stop' }), named('a')]],
    ['a carried member that changes its type', [delta({ x: ['a'] }), delta({ x: 5 })]],
    ['citations that are no list', [delta({ annotations: 5 })]],
    ['a message in another chunk', [delta({ content: 'a' }), chunk({ message: { content: 'b' } })]],
    ['content that becomes an object', [delta({ content: 'a' }), delta({ content: {} })]],
    ['content that becomes a number', [delta({ content: 'a' }), delta({ content: 0 })]],
    ['content that is a boolean', [delta({ content: false })]],
    ['a part that is a text', [delta({ content: ['a'] })]],
    ['a part with an index', [delta({ content: [{ type: 'text', text: 'a', index: 0 }] })]],
    ['a delta that is a list', [delta([])]],
    ['a delta that is a text', [delta('a' as never)]],
    ['a choice without an index', [JSON.stringify({ ...base, choices: [{ delta: { content: 'a' } }] })]],
    ['a choice that is no object', [JSON.stringify({ ...base, choices: [null] })]],
    ['choices that are no list', [JSON.stringify({ ...base, choices: {} })]],
    ['a choice twice in a chunk', [JSON.stringify({ ...base, choices: [{ index: 0 }, { index: 0 }] })]],
    ['a refusal that is an object', [delta({ refusal: {} })]],
    ['reasoning that is an object', [delta({ reasoning: { text: 'a' } })]],
    ['reasoning under one name and then another', [delta({ reasoning: 'a' }), delta({ reasoning_content: 'b' })]],
    ['reasoning under two names with other texts', [delta({ reasoning: 'a', reasoning_content: 'b' })]],
    ['another role', [delta({ role: 'assistant' }), delta({ role: 'user' })]],
    ['another model', [chunk({}), chunk({}, { model: 'n' })]],
    ['another object', [chunk({}), chunk({}, { object: 'chat.completion' })]],
    ['another reason for its end', [chunk({ finish_reason: 'stop' }), chunk({ finish_reason: 'length' })]],
    ['a reason that is no text', [chunk({ finish_reason: 1 })]],
    ['usage that is no object', [chunk({}, { usage: 3 })]],
    ['a call without an index', [delta({ tool_calls: [{ id: 'a' }] })]],
    ['a call whose index is 0.0', [named('a').replace('"tool_calls":[{"index":0', '$&.0')]],
    ['a call without a name', [delta({ tool_calls: [{ index: 0, id: 'a', function: { arguments: '{}' } }] })]],
    [
      'a call before one of a lower index',
      [1, 0].map((index) => delta({ tool_calls: [{ index, function: { name: 'a' } }] })),
    ],
    [
      'two calls with one id',
      [0, 1].map((index) => delta({ tool_calls: [{ index, id: 'x', function: { name: 'a' } }] })),
    ],
    [
      'reasoning under one name and then under two',
      [delta({ reasoning: 'a' }), delta({ reasoning: 'b', reasoning_content: 'b' })],
    ],
    ['reasoning beside an empty one', [delta({ reasoning: 'a', reasoning_content: '' })]],
    ['calls that are no list', [delta({ tool_calls: { index: 0 } })]],
    ['a call that is named anew', [named('a'), named('b')]],
    ['a call with another id', [call({ id: 'a' }), call({ id: 'b' })]],
    ['a call of another type', [call({ type: 'function' }), call({ type: 'custom' })]],
    ['two calls under one index', [named('a', { arguments: '{}' }), named('a', { arguments: '{"b":1}' })]],
    ['arguments that are an object', [named('a', { arguments: {} })]],
    ['arguments that are a number and then more', [named('a', { arguments: '1' }), named('', { arguments: '2' })]],
    ['arguments that go on after their end', [named('a', { arguments: '{"b":1} {' })]],
    ['a function call that goes on', [delta({ function_call: { name: 'a', arguments: '{}{}' } })]],
    ['details that are no list', [delta({ reasoning_details: {} })]],
    ['a detail whose format changes', ['x', 'y'].map((format) => delta({ reasoning_details: [{ index: 0, format }] }))],
    ['an error', [chunk({}, { error: { message: 'no' } })]],
    ['the object of an error', [JSON.stringify({ object: 'error', message: 'no' })]],
  ])('has %s', (_name, payloads) => {
    expect(() => fold(...payloads)).toThrow(FoldError);
  });

  it('has more choices than the request asks for, or leaves one out', () => {
    const of = (index: number) => JSON.stringify({ ...base, choices: [{ index, delta: { content: 'a' } }] });
    expect(() => foldPayloads([of(0), of(1)])).toThrow(/more choices/);
    expect(() => foldPayloads([of(1)])).toThrow(/missing/);
    expect(() => foldPayloads([of(0), of(2)], 3)).toThrow(/missing/);
    expect(JSON.parse(foldPayloads([of(1), of(0)], 2)).choices).toHaveLength(2);
  });
});

describe('a stream as engines write it', () => {
  const message = (...deltas: object[]) => fold(...deltas.map((one) => chunk({ delta: one }))).choices[0].message;
  const thinking = (text: string) => [{ type: 'thinking', thinking: [{ type: 'text', text }] }];

  it("keeps Magistral's parts in their order, and its texts joined", () => {
    expect(
      message(
        { role: 'assistant', content: '' },
        { content: thinking('First ') },
        { content: thinking('second.') },
        { content: [{ type: 'text', text: 'Hel' }] },
        { content: 'lo' },
        { content: '!' },
      ),
    ).toEqual({
      role: 'assistant',
      content: [...thinking('First '), ...thinking('second.'), { type: 'text', text: 'Hello!' }],
    });
  });

  it('has text as content where its lists have nothing else', () => {
    expect(message({ content: 'a' }, { content: [{ type: 'text', text: 'b' }] }, { content: 'c' }).content).toBe('abc');
    expect(message({ content: [] }).content).toBe('');
    const quoted = { type: 'text', text: 'b', citations: [] };
    expect(message({ content: 'a' }, { content: [quoted] }, { content: 'c' }).content).toEqual([
      { type: 'text', text: 'a' },
      quoted,
      { type: 'text', text: 'c' },
    ]);
  });

  it("joins OpenRouter's reasoning details by index and type, and repeats no structural text", () => {
    const detail = (more: object, type = 'reasoning.text') => ({
      role: 'assistant',
      reasoning_details: [{ type, ...more, format: 'anthropic-claude-v1', index: 0 }],
    });
    expect(
      message(
        detail({ text: 'Let' }),
        detail({ text: ' me' }),
        detail({ signature: 'S' }),
        detail({ data: 'x' }, 'reasoning.encrypted'),
        { reasoning_details: [{ text: 'loose' }] },
      ).reasoning_details,
    ).toEqual([
      { type: 'reasoning.text', text: 'Let me', signature: 'S', format: 'anthropic-claude-v1', index: 0 },
      { type: 'reasoning.encrypted', data: 'x', format: 'anthropic-claude-v1', index: 0 },
      { text: 'loose' },
    ]);
  });

  it("keeps the identity beside Azure's annotations, and the first id and time", () => {
    const empty = { id: '', object: '', created: 0, model: '' };
    const folded = fold(
      JSON.stringify({ ...empty, prompt_filter_results: [{ prompt_index: 0 }], choices: [] }),
      chunk({ delta: { content: 'a' } }),
      JSON.stringify({ ...empty, choices: [{ index: 0, finish_reason: null, content_filter_offsets: { end: 1 } }] }),
      chunk({ delta: {}, finish_reason: 'stop' }, { id: 'c2', created: 2 }),
      JSON.stringify({ ...empty, choices: [{ index: 0, finish_reason: null, content_filter_offsets: { end: 9 } }] }),
    );
    expect(folded).toMatchObject({ id: 'c1', object: 'chat.completion', created: 1, model: 'm' });
    expect(folded.choices).toMatchObject([{ message: { content: 'a' }, finish_reason: 'stop' }]);
  });

  it('has reasoning under two names with the same texts', () => {
    const both = (text: string) => ({ reasoning: text, reasoning_content: text });
    expect(message(both('a'), both('b'), { content: 'c' })).toMatchObject({ ...both('ab'), content: 'c' });
  });

  it('has arguments that were cut off, or have space behind them', () => {
    const calls = (...parts: string[]) =>
      message(...parts.map((one) => ({ tool_calls: [{ index: 2, function: { name: 'a', arguments: one } }] })))
        .tool_calls;
    expect(calls('{"a":', ' "x')).toEqual([{ function: { name: 'a', arguments: '{"a": "x' } }]);
    expect(calls('{}', ' \n')).toEqual([{ function: { name: 'a', arguments: '{} \n' } }]);
    expect(calls('null')).toEqual([{ function: { name: 'a', arguments: 'null' } }]);
  });
});
