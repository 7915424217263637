// Attacks on what a stream's attestation is carried by, and on the stream itself.
import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { withLastMember } from '../../../proto/json.ts';
import { foldPayloads } from '../../../proto/stream/fold.ts';
import { PAYLOADS, STREAMED, transcript } from '../../../scripts/vectors/exchange.ts';
import { forge } from '../../../scripts/vectors/forge.ts';
import { codeOf as codeOfAnswer, good, options, within, world } from './attacks.ts';

const codeOf = (input: unknown) => codeOfAnswer(input, { expected: { event: true } });

describe('a finish chunk that carries the attestation of its stream', async () => {
  const streamed = await forge(world, { parts: STREAMED });
  const finish = JSON.parse(PAYLOADS.at(-1) as string) as Record<string, unknown>;
  const of = (choice: object) =>
    JSON.stringify({ ...finish, choices: [{ index: 0, finish_reason: 'stop', ...choice }], attestation: streamed });

  test('passes as it was sent, where the caller says that it is an event', async () => {
    expect(await codeOf(of({ delta: {} }))).toBe('valid');
    expect(await codeOfAnswer(of({ delta: {} }))).toBe('event_not_expected');
  });
  // A client reads more of a chunk than one text.
  test('that says otherwise, wherever a client may read it, is refused', async () => {
    const evil = { role: 'assistant', content: 'Goodbye.' };
    const call = [{ index: 0, id: 'x', type: 'function', function: { name: 'evil', arguments: '{}' } }];
    for (const choice of [
      { delta: { content: 'Goodbye.' } },
      { text: '', message: evil },
      { delta: { content: '' }, message: evil },
      { delta: { content: '', tool_calls: call } },
      { message: { content: null, tool_calls: call } },
      { delta: {}, finish_reason: 'tool_calls' },
    ])
      expect([JSON.stringify(choice), await codeOf(of(choice))]).toEqual([JSON.stringify(choice), 'response_mismatch']);
  });
  test('passes where chunks after it set anew its time and its usage, and where others gave the role', async () => {
    const [start, ...rest] = PAYLOADS.slice(0, -1) as [string, ...string[]];
    const payloads = [
      start.replace('"assistant"', '"model"'),
      ...rest,
      JSON.stringify({ ...finish, created: 1, usage: { total_tokens: 3 } }),
      JSON.stringify({ ...finish, created: 2, choices: [], usage: { total_tokens: 4 } }),
    ];
    const proof = await forge(world, { parts: { ...STREAMED, response: foldPayloads(payloads) } });
    const code = (change: object) =>
      codeOf(JSON.stringify({ ...JSON.parse(payloads.at(-2) as string), ...change, attestation: proof }));
    expect(await code({})).toBe('valid');
    const [choice] = finish.choices as [object];
    for (const change of [
      { model: 'another' },
      { id: 'another' },
      { cost: 1 },
      { choices: [{ ...choice, delta: { role: 'assistant' } }] },
      { choices: [{ ...choice, delta: { content: 'Goodbye.' } }] },
      { choices: [{ ...choice, finish_reason: 'length' }] },
      { choices: [{ ...choice, index: 1 }] },
      { choices: [choice, null] },
    ])
      expect([change, await code(change)]).toEqual([change, 'response_mismatch']);
  });
  test('is a part of the whole with its lists in their order, and no item stands for two', async () => {
    const parts = { ...STREAMED, response: withLastMember(STREAMED.response, 'ids', '[1,2,2,{"a":3,"b":4},5]') };
    const proof = await forge(world, { parts });
    const code = (ids: unknown) => codeOf(JSON.stringify({ ...finish, ids, attestation: proof }));
    for (const ids of [[], [1], [2, 2, { a: 3 }], [{ b: 4 }, 5]])
      expect([ids, await code(ids)]).toEqual([ids, 'valid']);
    for (const ids of [[2, 1], [1, 1], [5, 5], [{ a: 4 }], [{ a: 3, c: 1 }]])
      expect([ids, await code(ids)]).toEqual([ids, 'response_mismatch']);
  });
  test.each([
    ['numbers', `[${'0,'.repeat(40_000)}1]`, `[${'1,'.repeat(40_000)}1]`],
    ['members', `[${'{},'.repeat(20_000)}1]`, `[{${Array.from({ length: 20_000 }, (_, i) => `"${i}a":0`).join()}}]`],
    ['digits', `[${'1.0,'.repeat(80_000)}1]`, `[${'1'.repeat(320_000)}]`],
  ])('of many %s is compared in time', async (_name, whole, part) => {
    const parts = { ...STREAMED, response: withLastMember(STREAMED.response, 'x', whole) };
    const proof = JSON.stringify(await forge(world, { parts }));
    const evil = withLastMember(withLastMember(PAYLOADS.at(-1) as string, 'x', part), 'attestation', proof);
    await within(1000, 200, async () => expect(await codeOf(evil)).toBe('response_mismatch'));
  });
  // Of a text completion nothing tells a chunk from the whole.
  test('of a text completion is refused where its time or its usage is another', async () => {
    const whole = {
      object: 'text_completion',
      created: 1,
      choices: [{ index: 0, text: 'Hello.', finish_reason: 'stop' }],
      usage: { total_tokens: 3 },
    };
    const parts = { ...STREAMED, endpoint: '/v1/completions', response: JSON.stringify(whole) };
    const proof = await forge(world, { parts });
    const code = (change: object) => codeOf(JSON.stringify({ ...whole, ...change, attestation: proof }));
    expect(await code({})).toBe('valid');
    for (const change of [
      { created: 2 },
      { usage: { total_tokens: 4 } },
      { created: 2, object: 'chat.completion.chunk' },
    ])
      expect([change, await code(change)]).toEqual([change, 'response_mismatch']);
  });
  test('that writes a number otherwise, or gives a member twice, is refused', async () => {
    const choice = '{"index":0,"finish_reason":"stop","delta":{}}';
    const response = STREAMED.response.replace('{', '{"seed":12345678901234567890,"cost":1.0,');
    const proof = await forge(world, { parts: { ...STREAMED, response } });
    const code = (text: string) => codeOf(withLastMember(text, 'attestation', JSON.stringify(proof)));
    const chunk = (seed: string, cost: string, one: string) => `{"seed":${seed},"cost":${cost},"choices":[${one}]}`;
    expect(await code(chunk('12345678901234567890', '1.0', choice))).toBe('valid');
    expect(await codeOf({ ...JSON.parse(chunk('12345678901234567890', '1.0', choice)), attestation: proof })).toBe(
      'valid',
    );
    const saved = JSON.stringify(JSON.parse(chunk('12345678901234567890', '1.0', choice)));
    expect([saved, await code(saved)]).toEqual([chunk('12345678901234567000', '1', choice), 'valid']);
    for (const text of [
      chunk('12345678901234567001', '1.0', choice),
      chunk('12345678901234567890', '1.00', choice),
      chunk('12345678901234567890', '1.0', choice.replace('"delta":', '"delta":{"content":"Goodbye."},$&')),
      chunk('12345678901234567890', '1.0', choice.replace('"index":', '"index":1,$&')),
    ])
      expect([text, await code(text)]).toEqual([text, 'response_mismatch']);
  });
});

describe("a whole response that carries a stream's attestation", async () => {
  const streamed = await forge(world, { parts: STREAMED });
  const whole = JSON.parse(STREAMED.response) as { choices: [{ message: object }] };
  const [choice] = whole.choices;
  const of = (change: object) => codeOfAnswer(JSON.stringify({ ...whole, ...change, attestation: streamed }));

  test('passes where it is what the chunks fold into', async () => {
    expect(await of({})).toBe('valid');
  });
  describe('and numbers', async () => {
    const numbers = '"seed":12345678901234567890,"cost":1.0,"tiny":1e-05';
    const response = STREAMED.response.replace('{', `{${numbers},`);
    const proof = JSON.stringify(await forge(world, { parts: { ...STREAMED, response } }));
    const code = (text: string) => codeOfAnswer(withLastMember(text, 'attestation', proof));

    test('passes in another order, and is refused where a number is written otherwise', async () => {
      expect(await code(response)).toBe('valid');
      expect(await code(`{"cost": 1.0, "tiny":1e-05,"seed":12345678901234567890,${STREAMED.response.slice(1)}`)).toBe(
        'valid',
      );
      for (const [from, to] of [
        ['12345678901234567890', '12345678901234567891'],
        ['12345678901234567890', '{"rawJSON":"12345678901234567890"}'],
        ['1.0', '1.00'],
        ['1e-05', '1e-5'],
        ['1e-05', '0.00002'],
      ] as const)
        expect([to, await code(response.replace(from, to))]).toEqual([to, 'response_mismatch']);
    });
    test('passes as a client in JavaScript saves what it parsed', async () => {
      const saved = JSON.stringify(JSON.parse(response));
      expect(saved).toContain('"seed":12345678901234567000,"cost":1,"tiny":0.00001');
      expect(await code(saved)).toBe('valid');
    });
    test('is refused where a member is given twice, at any depth', async () => {
      for (const [before, member] of [
        ['"content":', '"content":"Goodbye."'],
        ['"content":', '"c\\u006fntent":"Goodbye."'],
        ['"index":', '"finish_reason":"length"'],
      ] as const)
        expect(await code(response.replace(before, `${member},${before}`))).toBe('response_mismatch');
    });
    test('of great depth is refused with a code', async () => {
      const deep = `{"a":${'['.repeat(50_000)}1.0${']'.repeat(50_000)}}`;
      expect(await code(deep)).toBe('response_mismatch');
    });
  });
  test('is refused where a part of the answer is left out', async () => {
    for (const choices of [
      [{ ...choice, message: { ...choice.message, content: 'lo.' } }],
      [{ ...choice, message: { ...choice.message, content: '' } }],
      [{ ...choice, finish_reason: null }],
      [],
    ])
      expect([JSON.stringify(choices), await of({ choices })]).toEqual([JSON.stringify(choices), 'response_mismatch']);
  });
});

describe('a stream', async () => {
  const attestation = await forge(world, { parts: STREAMED });
  const of = (payloads: readonly string[], one: unknown = attestation) => transcript(payloads, one);
  const code = (text: string, one: unknown = attestation) =>
    codeOfAnswer(one, { ...options, expected: { transcript: new TextEncoder().encode(text) } });
  const [first, second, third, last] = PAYLOADS as [string, string, string, string];

  test('passes as it was sent, whatever comments and line ends it came with', async () => {
    const text = of(PAYLOADS);
    expect(await code(text)).toBe('valid');
    expect(await code(text.replaceAll('\n\n', '\r\n\r\n'))).toBe('valid');
    expect(await code(`: attesting\n\n${text}`)).toBe('valid');
  });
  test('with an event changed, dropped, reordered or given twice is refused', async () => {
    for (const payloads of [
      [first, second.replace('Hel', 'Bel'), third, last],
      [first, third, last],
      [first, third, second, last],
      [first, second, second, third, last],
      [first, second, third],
      [first, second.replace('{', '{ '), third, last],
      [first, second, third, last, last],
    ])
      expect(await code(of(payloads))).toBe('stream_mismatch');
  });
  test('with two events made one, or one made two, is refused', async () => {
    expect(await code(of([first, `${second}\n${third}`, last]).replace(`${second}\n`, `${second}\ndata: `))).toBe(
      'stream_mismatch',
    );
    expect(await code(of(PAYLOADS).replace(second, '{}\n\ndata: {}'))).toBe('stream_mismatch');
  });
  test('with an attestation in an event of its own is refused', async () => {
    expect(await code(`${of(PAYLOADS).replace('data: [DONE]', `data: {"attestation":{}}\n\ndata: [DONE]`)}`)).toBe(
      'stream_mismatch',
    );
  });
  test('with a second attestation in it, in whatever event and of whatever kind, is refused', async () => {
    for (const payload of [first, second, third, last])
      for (const value of [JSON.stringify(attestation), JSON.stringify({ ...attestation, note: 'evil' }), '{}', 'null'])
        for (const name of ['attestation', '\\u0061ttestation']) {
          const more = payload.replace(/\}$/, `,"${name}":${value}}`);
          expect(await code(of(PAYLOADS.map((one) => (one === payload ? more : one))))).toBe('stream_mismatch');
        }
  });
  test('is the same without its attestation, and not with another or with one that has a member twice', async () => {
    const spliced = JSON.stringify(attestation);
    const text = of(PAYLOADS);
    expect(await code(text.replace(`,"attestation":${spliced}`, ''))).toBe('valid');
    for (const evil of [
      JSON.stringify(good),
      spliced.replace('{', '{"raw":"evil",'),
      spliced.replace('"arch":', '"arch":"evil","arch":'),
      '{}',
      'null',
      '[]',
      '{"raw":',
    ])
      expect([evil.slice(0, 20), await code(text.replace(spliced, () => evil))]).toEqual([
        evil.slice(0, 20),
        'stream_mismatch',
      ]);
  });
  test("with another stream's attestation is refused", async () => {
    const other = await forge(world, { parts: { ...STREAMED, stream: { events: 4, sha256: '00'.repeat(32) } } });
    expect(await code(of(PAYLOADS, other), other)).toBe('stream_mismatch');
    expect(await code(of(PAYLOADS, good), good)).toBe('stream_mismatch');
  });
  test('that folds into another answer than the one in raw is refused', async () => {
    const other = await forge(world, {
      parts: { ...STREAMED, response: STREAMED.response.replace('Hello.', 'Goodbye.') },
    });
    expect(await code(of(PAYLOADS, other), other)).toBe('stream_mismatch');
  });
  test('with an event that has a name is refused: some clients read it otherwise, others not at all', async () => {
    const named = (line: string) => code(of(PAYLOADS).replace(/data: [^\n]*"Hel"/, `${line}$&`));
    for (const line of ['event: thread.x\n', 'event:x\r\n', 'event: message\nevent: x\r', 'event: message \n'])
      expect([line, await named(line)]).toEqual([line, 'stream_malformed']);
    for (const line of ['event: message\n', 'event:\n', 'event\n', 'id: x\n', 'retry: 1\n', 'error: x\n', 'data\n'])
      expect([line, await named(line)]).toEqual([line, 'stream_malformed']);
    for (const line of [': event: x\n', ':\r\n', '\r\n']) expect([line, await named(line)]).toEqual([line, 'valid']);
  });
  test('with words behind a byte order mark, or behind what ends a line for some readers alone, is refused', async () => {
    const evil = 'data: {"choices":[{"index":0,"delta":{"content":"EVIL"}}]}\n\n';
    for (const before of ['\ufeff', ': \u2028', ': \u2029', ': \u0085', ': \v', ': \f', ': \x1c', ': \0', ': \r', '\r'])
      expect([before, await code(of(PAYLOADS).replace('\n\n', `\n\n${before}${evil}`))]).toEqual([
        before,
        'stream_malformed',
      ]);
  });
  test('that ends before [DONE] is the stream all the same', async () => {
    expect(await code(of(PAYLOADS).replace('data: [DONE]\n\n', ''))).toBe('valid');
  });
  test('with an event of great depth is refused', async () => {
    for (const depth of [2000, 100_000]) {
      const deep = second.replace('"Hel"', `${'['.repeat(depth)}${']'.repeat(depth)}`);
      const payloads = [first, deep, third, last];
      const sha256 = createHash('sha256')
        .update(payloads.map((payload) => `${payload}\n`).join(''))
        .digest('hex');
      const other = await forge(world, { parts: { ...STREAMED, stream: { events: 4, sha256 } } });
      expect(await code(of(payloads, other), other)).toBe('stream_not_foldable');
    }
  });
  test('in which one of many items grows is folded in time', async () => {
    const many = Array.from({ length: 10_000 }, (_, i) => `{"index":${i}}`);
    const payloads = [
      first,
      withLastMember(second, 'x', `[${[...many, ...Array(30_000).fill('{"index":9000}')]}]`),
      last,
    ];
    await within(250, 200, async () => expect(await code(of(payloads))).toBe('stream_mismatch'));
    await within(250, 200, async () => expect(foldPayloads(payloads)).toContain('{"index":9999}]'));
  });
  // Clients stop reading at [DONE], so what stands behind it is never shown.
  test('with [DONE] before its end is refused', async () => {
    expect(await code(of(PAYLOADS).replace('data: ', 'data: [DONE]\n\ndata: '))).toBe('stream_malformed');
    expect(await code(of(PAYLOADS).replace(`data: ${third}`, `data: [DONE]\n\ndata: ${third}`))).toBe(
      'stream_malformed',
    );
  });
  test('has no byte order mark, behind which some clients lose the first event', async () => {
    expect(await code(`\uFEFF${of(PAYLOADS)}`)).toBe('stream_malformed');
    expect(await code(of(PAYLOADS).replace('data: ', 'data: \uFEFF'))).toBe('stream_mismatch');
  });
  test('that is no UTF-8 is refused', async () => {
    const bytes = new TextEncoder().encode(of(PAYLOADS).replace('Hel', 'H~l'));
    bytes[bytes.indexOf(0x7e)] = 0xff;
    expect(await codeOfAnswer(attestation, { expected: { transcript: bytes } })).toBe('stream_malformed');
  });
});
