// The rules for streams of named events: what the events of a response and of a message fold into, and what is refused.
import { describe, expect, it } from 'vitest';
import { type EventRecord, recordEvents, type StreamForm, streamFormOf } from '../../proto/stream/events.ts';
import { FoldError } from '../../proto/stream/fold.ts';
import { responseBody, responseEvents } from '../support/named-streams.ts';

type Form = Exclude<StreamForm, 'completion'>;
type Event = Readonly<Record<string, unknown>> & { readonly type: string };
/** How the work grows with the length of a stream, test/linear counts. */
const MANY = 20_000;

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
