import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Fold, FoldError, foldPayloads, joined, parseChunk } from '../../proto/stream/fold.ts';

const base = { id: 'c1', object: 'chat.completion.chunk', created: 1, model: 'm' };
const chunk = (choice: object, more: object = {}) =>
  JSON.stringify({ ...base, ...more, choices: [{ index: 0, ...choice }] });
const quoted = (text: string) => JSON.stringify(text);
const fold = (...payloads: string[]) => JSON.parse(foldPayloads(payloads));

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

  it('appends logprobs, grows reasoning and refusals, and treats unknown members by the same rules', () => {
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
    expect(folded.choices[0].message).toMatchObject({ reasoning_content: 'Let me', refusal: 'No.', x: { y: 'ab' } });
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

  it('merges by an index that is written as 1.0', () => {
    const of = (index: string, text: string) =>
      `{"object":"text_completion","choices":[{"index":${index},"text":"${text}"}]}`;
    expect(fold(of('1', 'a'), of('1.0', 'b')).choices).toHaveLength(1);
  });

  it('takes many indexed items in a time that grows with their number', () => {
    const choices = Array.from({ length: 10_000 }, (_, index) => ({ index, text: 'x' }));
    const started = performance.now();
    fold(JSON.stringify({ object: 'text_completion', choices }));
    expect(performance.now() - started).toBeLessThan(2_000);
  });

  it('is written in pieces as it is at once', () => {
    const scalar = fc.oneof(fc.constantFrom('1.0', '-0', '1e-05', 'null', 'true', '{}', '[]'), fc.string().map(quoted));
    const long = fc.constantFrom('é', '"', '😀', '\ud83d', 'x\n').map((one) => quoted(one.repeat(70_000)));
    const item = fc.oneof({ weight: 9, arbitrary: scalar }, long);
    const items = fc
      .tuple(item, fc.constantFrom(0, 1, 2, 127, 128, 129, 300))
      .map(([one, n]) =>
        one.length > 1_000 ? `[${one},[${one}]]` : `[${Array(n).fill(`{"index":0.5,"a":[${one}]}`)}]`,
      );
    const bag = fc
      .uniqueArray(fc.tuple(fc.string(), fc.oneof(item, items)), { selector: ([name]) => name })
      .map((members) => `{${members.map(([name, value]) => `${quoted(name)}:${value}`)}}`);
    fc.assert(
      fc.property(bag, fc.oneof(item, items), (one, other) => {
        const folded = new Fold();
        for (const x of [one, other])
          folded.add(parseChunk(`{"object":"text_completion","x":${x},"choices":[{"index":0,"text":"a","y":${x}}]}`));
        const pieces = [...folded.parts()];
        expect(joined(pieces) === folded.text()).toBe(true);
      }),
      { numRuns: 60 },
    );
  });

  it('merges by index whichever item grows, what has no index standing where it was appended', () => {
    const x = (...items: unknown[]) => JSON.stringify({ x: items });
    const at = (index: number, text: string) => ({ index, delta: { text } });
    const folded = foldPayloads([
      x(at(3, 'd'), at(1, 'b'), 'loose', at(3, 'D'), at(2, 'c')),
      x(at(1, 'B'), at(0, 'a'), at(2, 'C'), at(4, 'e')),
      x(at(3, '!'), at(0, 'A'), at(4, 'E'), null, at(1, '?')),
    ]);
    expect(JSON.parse(folded).x).toEqual([
      at(0, 'aA'),
      at(1, 'bB?'),
      at(2, 'cC'),
      at(3, 'dD!'),
      'loose',
      at(4, 'eE'),
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

  it('treats __proto__ as a member like any other', () => {
    const text = foldPayloads([
      '{"object":"text_completion","__proto__":{"polluted":true},"choices":[{"index":0,"text":"a","__proto__":{"x":1}}]}',
    ]);
    expect(text).toContain('"__proto__":{"polluted":true}');
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });

  it('lets a payload of null say nothing', () => {
    expect(fold('null', chunk({ delta: { content: 'a' } })).choices[0].message.content).toBe('a');
  });

  it('refuses what is not a JSON object', () => {
    expect(() => foldPayloads(['[1]'])).toThrow(FoldError);
    expect(() => foldPayloads(['{"a":'])).toThrow(FoldError);
  });
});
