// The rules for streams of named events: what the gateway records is what the verifier accepts, and nothing else is.
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { NamedRecorder } from '../../gateway/exchange/named-recorder.ts';
import { type EventRecord, recordEvents, type StreamForm, streamFormOf } from '../../proto/events.ts';
import { FoldError } from '../../proto/fold.ts';
import { buildRaw, nonceOf, type RawParts } from '../../proto/raw.ts';
import { NamedEventReader, readEvents, SseError, writeNamedEvent } from '../../proto/sse.ts';
import { CheckFailure } from '../../verify/checks.ts';
import { compareTranscript } from '../../verify/exchange.ts';
import {
  functionCallEvents,
  messageBody,
  messageEvents,
  named,
  responseBody,
  responseEvents,
} from '../named-streams.ts';

type Form = Exclude<StreamForm, 'completion'>;
type Event = Readonly<Record<string, unknown>> & { readonly type: string };
const MAX = 1 << 20;
/** How the work grows with the length of a stream, test/linear counts. */
const MANY = 20_000;

const bytes = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);
const add = (record: EventRecord, events: readonly Event[]): void => {
  for (const one of events) record.add(one.type, JSON.stringify(one));
};
const textOf = (form: Form, events: readonly Event[]): string => {
  const record = recordEvents(form);
  add(record, events);
  return record.text();
};

describe('streamFormOf', () => {
  it('knows four endpoints, and no member that every object has', () => {
    expect(
      ['chat/completions', 'completions', 'responses', 'messages'].map((path) => streamFormOf(`/v1/${path}`)),
    ).toEqual(['completion', 'completion', 'response', 'message']);
    for (const path of ['/v1/embeddings', '/v1/responses/', '/v1/Messages', 'toString', '__proto__'])
      expect(streamFormOf(path)).toBeNull();
  });
});

describe('the events of a response', () => {
  const EVENTS: readonly Event[] = responseEvents(['Hel', 'lo']);
  const body = (output: readonly unknown[], more: object = {}) => responseBody('', { output, ...more });
  const begun = { type: 'response.created', response: body([]) };
  const completed = (output: readonly unknown[]) => ({ type: 'response.completed', response: body(output) });

  it('end in a response whose text is kept as it is written', () => {
    const record = recordEvents('response');
    add(record, [begun]);
    const response = '{ "id":"resp_1", "n":1.0,"big":12345678901234567890, "s":"\\u0061\\ud800" }';
    record.add('response.completed', `{"response":${response} ,"type":"response.completed"}`);
    expect([record.text(), record.id]).toEqual([response, 'resp_1']);
  });

  it('are known by the item and the part that they name', () => {
    const delta = (more: object, kind = 'output_text') => ({ type: `response.${kind}.delta`, ...more });
    const parts = [{ text: 'a' }, { text: 'b' }];
    const items = [
      { id: 'one', content: parts },
      { id: 'two', content: [{ refusal: 'no' }], summary: [{ text: 's' }], arguments: '{}', input: 'i', code: 'c' },
    ];
    const right = [
      delta({ item_id: 'one', output_index: 0, content_index: 1, delta: 'b' }),
      delta({ item_id: 'one', output_index: 7, content_index: 0, delta: 'a' }),
      delta({ output_index: 0, delta: 'a' }),
      delta({ item_id: 'another id than at the end', output_index: 1.0, content_index: 0, delta: 'n' }, 'refusal'),
      delta({ item_id: 'another id than at the end', output_index: 1, content_index: 0, delta: 'o' }, 'refusal'),
      delta({ item_id: 'two', summary_index: 0, delta: 's' }, 'reasoning_summary_text'),
      delta({ item_id: 'two', delta: '{}' }, 'function_call_arguments'),
      delta({ item_id: 'two', delta: '{}' }, 'mcp_call_arguments'),
      delta({ item_id: 'two', delta: 'i' }, 'custom_tool_call_input'),
      delta({ item_id: 'two', delta: 'c' }, 'code_interpreter_call_code'),
      delta({ item_id: 'two', delta: 'anything' }, 'of_another_kind'),
    ];
    expect(textOf('response', [begun, ...right, completed(items)])).toBe(JSON.stringify(body(items)));
    for (const [i, one] of right.slice(0, -1).entries()) {
      const wrong = right.with(i, { ...one, delta: 'x' } as (typeof right)[number]);
      expect(() => textOf('response', [begun, ...wrong, completed(items)])).toThrow(/differs from what was streamed/);
    }
  });

  it.each([
    ['an index that is huge', { output_index: 1e15 }],
    ['an index that is negative', { output_index: -1 }],
    ['an index that is no integer', { output_index: 0.5 }],
    ['a part that is not there', { output_index: 0, content_index: 9 }],
    ['an item whose name every object has', { item_id: '__proto__', output_index: 1 }],
  ])('name nothing with %s', (_name, at) => {
    const events = [begun, { type: 'response.output_text.delta', ...at, delta: '' }, completed([{ content: [] }])];
    expect(() => textOf('response', events)).toThrow(/differs from what was streamed/);
  });

  it.each([
    ['no text', 'response.output_text.delta', '{"type":"response.output_text.delta"}', /no text/],
    ['text that is a number', 'response.refusal.done', '{"type":"response.refusal.done","refusal":1.0}', /no text/],
    ['a member twice', 'response.x', '{"type":"response.x","a":{"b":1,"\\u0062":2}}', /twice/],
    ['another type than name', 'response.x', '{"type":"response.y"}', /another name/],
    ['no type', 'response.x', '{}', /another name/],
    ['null', 'response.x', 'null', /another name/],
    ['a list', 'response.x', '[]', /not a JSON object/],
    ['a byte order mark', 'response.x', '\ufeff{"type":"response.x"}', /not JSON/],
    ['an attestation', 'response.x', '{"type":"response.x","\\u0061ttestation":null}', /attestation/],
    ['a number for a response', 'response.completed', '{"type":"response.completed","response":1.0}', /no response/],
    ['a response without a member', 'response.completed', '{"type":"response.completed","response":{}}', /no response/],
    ['no response', 'response.completed', '{"type":"response.completed"}', /no response/],
    ['an error', 'response.completed', '{"type":"response.completed","response":{"error":0.0}}', /has an error/],
  ])('are refused with %s', (_name, name, payload, message) => {
    const record = recordEvents('response');
    add(record, [begun]);
    expect(() => record.add(name, payload)).toThrow(message);
    expect(() => record.text()).toThrow(FoldError);
  });

  it('are refused without a name', () => {
    const record = recordEvents('response');
    expect(() => record.add(null, '{"type":"response.created"}')).toThrow(/no name/);
  });

  it('say what each of them is to whoever forwards them', () => {
    const record = recordEvents('response');
    const kinds = EVENTS.map((one) => record.add(one.type, JSON.stringify(one)));
    expect(kinds).toEqual([...EVENTS.slice(1).map(() => 'delta'), 'final']);
    expect(record.add('error', '{"type":"error"}')).toBe('error');
    expect(() => record.add('response.x', '{"type":"response.x"}')).toThrow(/after the final/);
  });

  it('are known by their place where no item of the final response has their name, of however many', () => {
    const record = recordEvents('response');
    const at = (i: number) => ({
      type: 'response.output_text.delta',
      item_id: `none-${i}`,
      output_index: i,
      delta: 'a',
    });
    const output = Array.from({ length: MANY }, (_, i) => ({ id: `id-${i}`, content: [{ text: 'a' }] }));
    add(record, [{ type: 'response.created', response: {} }]);
    for (let i = 0; i < MANY; i++) record.add('response.output_text.delta', JSON.stringify(at(i)));
    add(record, [{ type: 'response.completed', response: { output } }]);
    expect(JSON.parse(record.text()).output).toHaveLength(MANY);
  });
});

describe('the events of a message', () => {
  const start = (message: object): Event => ({ type: 'message_start', message });
  const block = (index: number, content_block: unknown, ...deltas: unknown[]): Event[] => [
    { type: 'content_block_start', index, content_block },
    ...deltas.map((delta) => ({ type: 'content_block_delta', index, delta })),
    { type: 'content_block_stop', index },
  ];
  const END: readonly Event[] = [
    { type: 'message_delta', delta: { stop_reason: 'end_turn' } },
    { type: 'message_stop' },
  ];
  const content = (...events: Event[]) =>
    JSON.parse(textOf('message', [start({ type: 'message' }), ...events, ...END])).content as unknown;

  it('fold into a message whose members stand where they were first', () => {
    const first = { type: 'message', id: 'msg_1', content: [], stop_reason: null, usage: { input_tokens: 1 } };
    const events = [
      start(first),
      { type: 'message_delta', delta: { stop_reason: null }, usage: { cache: 1 }, context: { a: 1 } },
      { type: 'message_delta', delta: { stop_reason: 'end_turn', container: 'c' }, usage: { input_tokens: 2 } },
      { type: 'message_delta', delta: {}, usage: { output_tokens: 3 } },
      { type: 'message_stop' },
    ];
    expect(textOf('message', events)).toBe(
      '{"type":"message","id":"msg_1","content":[],"stop_reason":"end_turn","usage":{"input_tokens":2,"cache":1,"output_tokens":3},"context":{"a":1},"container":"c"}',
    );
  });

  it('fold into blocks, by the kinds of their deltas', () => {
    const tool = { type: 'tool_use', id: 't', input: { old: 1 } };
    const json = (partial_json: string) => ({ type: 'input_json_delta', partial_json });
    expect(
      content(
        ...block(
          0,
          { type: 'text', text: 'a' },
          { type: 'text_delta', text: '\ud83d' },
          { type: 'text_delta', text: '\ude00' },
        ),
        ...block(
          1,
          { type: 'text', text: '', citations: null },
          { type: 'citations_delta', citation: { a: 1 } },
          { type: 'citations_delta', citation: 2 },
        ),
        ...block(
          2,
          { type: 'thinking', thinking: '' },
          { type: 'thinking_delta', thinking: 'hm' },
          { type: 'signature_delta', signature: 'x' },
          { type: 'signature_delta', signature: 'y' },
        ),
        ...block(3, tool, json('{"a":'), json('[1]}')),
        ...block(4, tool),
        ...block(5, tool, json('')),
        ...block(6, { n: 1 }, { type: 'new_delta', n: 2, list: [1] }),
      ),
    ).toEqual([
      { type: 'text', text: 'a😀' },
      { type: 'text', text: '', citations: [{ a: 1 }, 2] },
      { type: 'thinking', thinking: 'hm', signature: 'y' },
      { ...tool, input: { a: [1] } },
      tool,
      tool,
      { n: 2, list: [1] },
    ]);
  });

  it('keep numbers as they are written, names that JavaScript knows, and half of a character as an escape', () => {
    const record = recordEvents('message');
    for (const [name, payload] of [
      ['message_start', '{"type":"message_start","message":{"__proto__":{"a":1.0},"toJSON":"x","usage":{"n":1e2}}}'],
      ['content_block_start', '{"type":"content_block_start","index":0,"content_block":{"__proto__":"a"}}'],
      [
        'content_block_delta',
        '{"type":"content_block_delta","index":0.0,"delta":{"__proto__":"b","constructor":"\\uD800"}}',
      ],
      [
        'content_block_delta',
        '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\\"t\\":1.0,\\"__proto__\\":2}"}}',
      ],
      ['content_block_stop', '{"type":"content_block_stop","index":0}'],
      [
        'message_delta',
        '{"type":"message_delta","delta":{"stop_reason":"x","__proto__":12345678901234567890},"usage":{"__proto__":1.50}}',
      ],
      ['message_stop', '{"type":"message_stop"}'],
    ] as const)
      record.add(name, payload);
    expect(record.text()).toBe(
      '{"__proto__":12345678901234567890,"toJSON":"x","usage":{"n":1e2,"__proto__":1.50},"stop_reason":"x","content":[{"__proto__":"ab","constructor":"\\ud800","input":{"t":1.0,"__proto__":2}}]}',
    );
  });

  it('fold into as many citations as came, and into the latest of as many usages', () => {
    const record = recordEvents('message');
    const usage = Object.fromEntries(Array.from({ length: MANY }, (_, i) => [`u${i}`, i]));
    add(record, [{ type: 'message_start', message: { usage } }]);
    add(record, [{ type: 'content_block_start', index: 0, content_block: {} }]);
    const citation = '{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":1}}';
    const counted = '{"type":"message_delta","usage":{"u1":7}}';
    for (let i = 0; i < MANY; i++) {
      record.add('content_block_delta', citation);
      record.add('message_delta', counted);
    }
    add(record, [
      { type: 'content_block_stop', index: 0 },
      { type: 'message_delta', delta: { stop_reason: 'x' } },
      { type: 'message_stop' },
    ]);
    const folded = JSON.parse(record.text());
    expect([folded.content[0].citations.length, folded.usage.u1]).toEqual([MANY, 7]);
  });

  const open = start({ content: null });
  it.each<[string, Event[], RegExp]>([
    ['a message that is a text', [{ type: 'message_start', message: 'x' }], /begin empty/],
    ['content that is a text', [start({ content: 'x' })], /begin empty/],
    ['content that is there', [start({ content: [1] })], /begin empty/],
    [
      'a second message_delta that sets something',
      [open, END[0] as Event, { type: 'message_delta', delta: { stop_reason: null } }],
      /stops twice/,
    ],
    [
      'a second message_delta that sets it beside its delta',
      [open, END[0] as Event, { type: 'message_delta', role: 'user' }],
      /stops twice/,
    ],
    ['a message_delta with content', [open, { type: 'message_delta', delta: { content: [] } }], /not its own/],
    ['a message_delta with content beside its delta', [open, { type: 'message_delta', content: [] }], /not its own/],
    [
      'a message_delta with an attestation in its delta',
      [open, { type: 'message_delta', delta: { attestation: {} } }],
      /not its own/,
    ],
    ['a message_delta with usage in its delta', [open, { type: 'message_delta', delta: { usage: {} } }], /not its own/],
    ['a block at a huge index', [open, { type: 'content_block_start', index: 1e9, content_block: {} }], /out of order/],
    ['a block that is a number', [open, { type: 'content_block_start', index: 0, content_block: 1 }], /out of order/],
    ['a delta that is a text', [open, ...block(0, {}, 'x')], /no text/],
    ['an input that is a number', [open, ...block(0, {}, { type: 'input_json_delta', partial_json: 1 })], /no text/],
    ['a signature that is none', [open, ...block(0, {}, { type: 'signature_delta' })], /no text/],
    [
      'an input that names a member twice',
      [open, ...block(0, {}, { type: 'input_json_delta', partial_json: '{"a":1,"a":2}' })],
      /twice/,
    ],
    ['a stop before its reason', [open, { type: 'message_stop' }], /without a reason/],
  ])('are refused with %s', (_name, events, message) => {
    expect(() => textOf('message', events)).toThrow(message);
  });
});

describe('the reader of named events', () => {
  const read = (text: string) =>
    readEvents(bytes(text), MAX).map(({ name, payload }) => [name, new TextDecoder().decode(payload)]);

  it.each([
    ['LF', 'event: a.b_c-1\ndata: {}\n\n', [['a.b_c-1', '{}']]],
    ['CR LF', 'event:a\r\ndata:{}\r\n\r\n', [['a', '{}']]],
    ['a name after its data', 'data: {}\nevent: a\n\n', [['a', '{}']]],
    [
      'several lines and a comment',
      ': x\nevent: a\n: y\ndata: {\ndata: }\n\ndata: 1\n\n',
      [
        ['a', '{\n}'],
        [null, '1'],
      ],
    ],
    ['no empty line at the end', 'event: a\ndata: {}', [['a', '{}']]],
  ])('reads %s', (_name, text, events) => {
    expect(read(text)).toEqual(events);
  });

  it.each([
    ['two names', 'event: a\nevent: a\ndata: {}\n\n'],
    ['a name without data', 'event: a\n\n'],
    ['a name at the end', 'event: a'],
    ['an empty name', 'event:\ndata: {}\n\n'],
    ['two spaces', 'event:  a\ndata: {}\n\n'],
    ['a space at the end', 'event: a \ndata: {}\n\n'],
    ['a CR in the name', 'event: a\r\r\ndata: {}\n\n'],
    ['a name that is not ASCII', 'event: ä\ndata: {}\n\n'],
    ['a line separator', 'event: a\u2028\ndata: {}\n\n'],
    ['no colon', 'event\ndata: {}\n\n'],
    ['129 characters', `event: ${'a'.repeat(129)}\ndata: {}\n\n`],
    ['another field', 'event: a\nid: 1\ndata: {}\n\n'],
  ])('refuses %s', (_name, text) => {
    expect(() => read(text)).toThrow(SseError);
  });

  it('has names of 128 characters', () => {
    expect(read(`event: ${'a'.repeat(128)}\ndata: {}\n\n`)).toEqual([['a'.repeat(128), '{}']]);
  });
});

/** What the gateway makes of a stream that comes in these pieces: raw's parts, and what it sends. */
function recorded(form: Form, pieces: readonly Uint8Array[]) {
  const recorder = new NamedRecorder(form, MAX);
  const events = pieces.flatMap((piece) => recorder.reader.push(Uint8Array.from(piece)));
  const last = recorder.reader.end();
  if (last !== null) events.push(last);
  const observed = events.map((one) => recorder.observe(one).kind);
  const { completion, stream } = recorder.finish() as { completion: string; stream: RawParts['stream'] };
  const endpoint = form === 'response' ? '/v1/responses' : '/v1/messages';
  const parts: RawParts = { endpoint, request: '{}', response: completion, stream, timestamp: 1 } as RawParts;
  return { recorder, events, parts, final: observed.indexOf('finish') };
}

const pieceTexts = fc.array(fc.string({ unit: 'binary', maxLength: 6 }), { maxLength: 5 });
const anyEvents: fc.Arbitrary<{ form: Form; events: readonly Event[] }> = fc.oneof(
  pieceTexts.map((pieces) => ({ form: 'response' as const, events: responseEvents(pieces) })),
  pieceTexts.map((pieces) => ({ form: 'response' as const, events: functionCallEvents('f', pieces) })),
  fc.tuple(pieceTexts, fc.option(fc.json({ maxDepth: 2 }), { nil: '' })).map(([pieces, json]) => ({
    form: 'message' as const,
    events: messageEvents(pieces, json === '' ? [] : [json.slice(0, 2), json.slice(2)]),
  })),
);
/** Where a text is cut, as shares of its length. */
const borders = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 8 });

function cut(stream: Uint8Array, at: readonly number[]): Uint8Array[] {
  const offsets = [0, ...at.map((share) => Math.floor(share * stream.length)).sort((a, b) => a - b), stream.length];
  return offsets.slice(1).map((to, i) => stream.subarray(offsets[i], to));
}

describe('gateway and verifier', () => {
  it('agree on any stream, wherever it is cut, and refuse any other than that', async () => {
    await fc.assert(
      fc.asyncProperty(
        anyEvents,
        borders,
        fc.boolean(),
        fc.nat(),
        fc.nat(),
        async ({ form, events }, at, crlf, which, how) => {
          const sent = `${events.map(named).join('')}${how % 2 === 0 ? 'data: [DONE]\n\n' : ''}`;
          const stream = bytes(crlf ? sent.replaceAll('\n', '\r\n') : sent);
          const done = how % 2 === 0 ? 1 : 0;
          const { recorder, events: read, parts, final } = recorded(form, cut(stream, at));
          expect(read.length - done).toBe(events.length);
          const raw = buildRaw(parts);
          const attestation = { raw, nonce: await nonceOf(raw), token: 'x' };
          const json = Buffer.from(JSON.stringify(attestation));
          const out = read
            .slice(0, events.length)
            .map((one, i) =>
              i === final ? new Uint8Array(Buffer.concat(recorder.withAttestation(one, json))) : writeNamedEvent(one),
            );
          await compareTranscript(attestation, parts, new Uint8Array(Buffer.concat(out)));
          await compareTranscript(attestation, parts, new Uint8Array(Buffer.from(events.map(named).join(''))));

          const index = which % events.length;
          const one = out[index] as Uint8Array<ArrayBuffer>;
          const text = new TextDecoder('utf-8', { ignoreBOM: true }).decode(one);
          const ways: readonly (() => Uint8Array<ArrayBuffer>[])[] = [
            () => out.toSpliced(index, 1),
            () => out.toSpliced(index, 0, one),
            () => out.with(index, bytes(text.replace(/^event: /, 'event: x'))),
            () => out.with(index, bytes(text.replace(/^event: .*\n/, ''))),
            () => out.with(index, bytes(text.replace('data: {', 'data: {"more":1,'))),
            () => out.with(index, bytes(text.replace('data: {', 'data: { '))),
            () => out.toSpliced(index, 0, bytes('event: ping\ndata: {"type":"ping"}\n\n')),
            () => [...out.slice(index), ...out.slice(0, index)],
          ];
          const changed = Buffer.concat((ways[how % ways.length] as () => Uint8Array<ArrayBuffer>[])());
          if (!changed.equals(Buffer.concat(out)))
            await expect(compareTranscript(attestation, parts, new Uint8Array(changed))).rejects.toBeInstanceOf(
              CheckFailure,
            );
        },
      ),
      { numRuns: 300 },
    );
  });

  it('agree on a message that has nothing in it, and on numbers as they are written', async () => {
    const start = { ...messageBody([], null), n: 0 };
    const text = [{ type: 'message_start', message: start }, ...messageEvents([]).slice(-2)]
      .map((one) => named(one as Event).replace('"n":0', '"n":0.0'))
      .join('');
    const { parts } = recorded('message', [bytes(text)]);
    expect(parts.response).toContain('"content":[],"stop_reason":"end_turn"');
    expect(parts.response).toContain('"n":0.0}');
    await compareTranscript({ raw: '', nonce: '', token: '' }, parts, bytes(text));
  });

  it('read a stream that comes byte by byte', () => {
    const text = `\ufeff: hello\r\n${messageEvents(['a']).map(named).join('')}`;
    const reader = new NamedEventReader(MAX);
    const events = [...bytes(text)].flatMap((byte) => reader.push(Uint8Array.of(byte)));
    expect(events.map(({ name }) => name)).toEqual(messageEvents(['a']).map(({ type }) => type));
    expect([reader.midEvent, reader.comments, reader.end()]).toEqual([false, 1, null]);
  });
});
