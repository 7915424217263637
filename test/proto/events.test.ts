// The rules for streams of named events: what the events of a response and of a message fold into, and what is refused.
import { describe, expect, it } from 'vitest';
import type { EventRecord } from '../../proto/stream/events.ts';
import { FoldError } from '../../proto/stream/fold.ts';
import { type StreamForm, streamFormOf } from '../../proto/stream/forms.ts';
import { recordEvents } from '../../proto/stream/record-events.ts';
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
    const response = '{ "id":"resp_1", "model":"scripted", "n":1.0,"big":12345678901234567890, "s":"\\u0061\\ud800" }';
    record.add('response.completed', `{"response":${response} ,"type":"response.completed"}`);
    expect([record.text(), record.id]).toEqual([response, 'resp_1']);
  });

  it('are known by the item and the part that they name', () => {
    const delta = (more: object, kind = 'output_text') => ({ type: `response.${kind}.delta`, ...more });
    const content = (type: string, text: string) => [{ type, [type === 'refusal' ? type : 'text']: text }];
    const items = [
      { id: 'one', type: 'message', content: [...content('output_text', 'a'), ...content('output_text', 'b')] },
      { id: 'two', type: 'message', content: content('refusal', 'no') },
      {
        id: 'three',
        type: 'reasoning',
        content: content('reasoning_text', 't'),
        summary: content('summary_text', 's'),
      },
      { id: 'four', type: 'function_call', arguments: '{}' },
      { call_id: 'five', type: 'mcp_call', arguments: '{}' },
      { id: 'six', type: 'custom_tool_call', input: 'i' },
      { id: 'seven', type: 'code_interpreter_call', code: 'c' },
    ];
    /** Calls come one after another, each between its beginning and its end. */
    const announced = (deltas: readonly Event[]): Event[] => [
      ...deltas.filter(({ output_index }) => ![3, 4, 5, 6].includes(output_index as number)),
      ...items.slice(3).flatMap((item, i): Event[] => [
        {
          type: 'response.output_item.added',
          output_index: 3 + i,
          item: { ...item, arguments: '', input: '', code: '' },
        },
        ...deltas.filter(({ output_index }) => output_index === 3 + i),
        { type: 'response.output_item.done', output_index: 3 + i, item },
      ]),
    ];
    const right = [
      delta({ item_id: 'one', output_index: 7, content_index: 5, delta: 'a' }),
      delta({ output_index: 0, content_index: 1, delta: 'b' }),
      delta({ item_id: 'another id than at the end', output_index: 1.0, content_index: 0, delta: 'n' }, 'refusal'),
      delta({ item_id: 'another id than at the end', output_index: 1, content_index: 0, delta: 'o' }, 'refusal'),
      delta({ item_id: 'three', summary_index: 0, delta: 's' }, 'reasoning_summary_text'),
      delta({ item_id: 'four', output_index: 3, delta: '{' }, 'function_call_arguments'),
      delta({ item_id: 'four', output_index: 3, delta: '}' }, 'function_call_arguments'),
      delta({ item_id: 'five', output_index: 4, delta: '{}' }, 'mcp_call_arguments'),
      delta({ item_id: 'three', delta: 't' }, 'reasoning_text'),
      delta({ item_id: 'six', output_index: 5, delta: 'i' }, 'custom_tool_call_input'),
      delta({ item_id: 'seven', output_index: 6, delta: 'c' }, 'code_interpreter_call_code'),
    ];
    expect(textOf('response', [begun, ...announced(right), completed(items)])).toBe(JSON.stringify(body(items)));
    for (const [i, one] of right.entries()) {
      const wrong = right.with(i, { ...one, delta: 'x' } as (typeof right)[number]);
      expect(() => textOf('response', [begun, ...announced(wrong), completed(items)])).toThrow(
        /differs from what was streamed/,
      );
    }
  });

  it.each([
    ['an index that is huge', { output_index: 1e15 }],
    ['an index that is negative', { output_index: -1 }],
    ['an index that is no integer', { output_index: 0.5 }],
    ['an item whose name every object has', { item_id: '__proto__', output_index: 1 }],
    ['an index behind the last', { output_index: 1 }],
  ])('name nothing with %s', (_name, at) => {
    const events = [begun, { type: 'response.output_text.delta', ...at, delta: '' }, completed([{ content: [] }])];
    expect(() => textOf('response', events)).toThrow(/differs from what was streamed/);
  });

  it.each([
    ['no text', 'response.output_text.delta', '{"type":"response.output_text.delta"}', /no text/],
    ['text that is a number', 'response.refusal.done', '{"type":"response.refusal.done","refusal":1.0}', /no text/],
    ['__proto__', 'response.created', '{"type":"response.created","a":[{"\\u005f_proto__":1}]}', /__proto__/],
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

  it('say what each of them is to anybody who forwards them', () => {
    const record = recordEvents('response');
    const kinds = EVENTS.map((one) => record.add(one.type, JSON.stringify(one)));
    expect(kinds).toEqual([...EVENTS.slice(1).map(() => 'delta'), 'final']);
    expect(record.add('error', '{"type":"error"}')).toBe('error');
    expect(() => record.add('response.x', '{"type":"response.x"}')).toThrow(/after the final/);
  });

  const [MESSAGE] = responseBody('Pay A').output as unknown as [Readonly<Record<string, unknown>>];
  const text = (delta: string, more: object = {}) => ({
    type: 'response.output_text.delta',
    item_id: 'item_1',
    output_index: 0,
    content_index: 0,
    delta,
    ...more,
  });
  const CALL = { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: 'pay', arguments: '{"to":"A"}' };
  const OTHER = { ...CALL, id: 'fc_2', call_id: 'call_2' };
  const added = (item: object, output_index = 0) => ({ type: 'response.output_item.added', output_index, item });
  const done = (item: object, output_index = 0) => ({ type: 'response.output_item.done', output_index, item });
  const args = (delta: string, item_id = 'fc_1') => ({
    type: 'response.function_call_arguments.delta',
    item_id,
    output_index: 0,
    delta,
  });

  it.each<[string, readonly Event[], readonly unknown[]]>([
    ['a final text that was not streamed', [], [MESSAGE]],
    ['a final item that was not streamed', [text('Pay A')], [MESSAGE, { ...MESSAGE, id: 'item_2' }]],
    ['a final text that says more', [text('Pay ')], [MESSAGE]],
    ['the whole text under two ids', [text('Pay A'), text('Pay A', { item_id: 'ghost' })], [MESSAGE]],
    ['a text as reasoning', [text('Pay A')], [{ ...MESSAGE, type: 'reasoning' }]],
    ['reasoning as a text', [text('Pay A', { type: 'response.reasoning_text.delta' })], [MESSAGE]],
    ['a text that only its end had', [{ ...text(''), type: 'response.output_text.done', text: 'Pay A' }], [MESSAGE]],
    [
      'another text at its end',
      [text('Pay A'), { ...text(''), type: 'response.output_text.done', text: 'B' }],
      [MESSAGE],
    ],
    ['an item that begins with text', [added(MESSAGE), text('Pay A')], [MESSAGE]],
    [
      'a part that begins with text',
      [{ ...text(''), type: 'response.content_part.added', part: { type: 'output_text', text: 'x' } }, text('Pay A')],
      [MESSAGE],
    ],
    [
      'a part that ends with another text',
      [text('Pay A'), { ...text(''), type: 'response.content_part.done', part: { type: 'output_text', text: 'x' } }],
      [MESSAGE],
    ],
    ['an item that ends as another', [text('Pay A'), done({ ...MESSAGE, content: [{ text: 'Pay B' }] })], [MESSAGE]],
    ['a message that ends twice', [text('Pay A'), done(MESSAGE), done(MESSAGE)], [MESSAGE]],
    ['an item that ends twice', [text('Pay A'), done(MESSAGE), done(MESSAGE)], [MESSAGE]],
    ['an item that the final response lacks', [text('Pay A'), added({ type: 'web_search_call' }, 1)], [MESSAGE]],
    [
      'texts that are streamed interleaved',
      [text('Pay '), text('No', { item_id: 'item_2' }), text('A')],
      [MESSAGE, { ...MESSAGE, id: 'item_2', content: [{ type: 'output_text', text: 'No' }] }],
    ],
    ['an event of a new kind', [{ type: 'response.song.done', text: 'x' }, text('Pay A')], [MESSAGE]],
    [
      'a citation that the final response lacks',
      [text('Pay A'), { ...text(''), type: 'response.output_text.annotation.added', annotation: { url: 'x' } }],
      [MESSAGE],
    ],
    [
      'a search that begins as another',
      [
        added({ type: 'web_search_call', id: 'ws', action: { q: 2 } }),
        done({ type: 'web_search_call', id: 'ws', action: { q: 1 } }),
      ],
      [{ type: 'web_search_call', id: 'ws', action: { q: 1 } }],
    ],
    ['a delta of a new kind', [text('x', { type: 'response.song.delta' }), text('Pay A')], [MESSAGE]],
    ['a call that was not announced', [args(CALL.arguments)], [CALL]],
    ['a call without its arguments', [added({ ...CALL, arguments: '' })], [CALL]],
    ['a call whose arguments only its item has', [added({ ...CALL, arguments: '' }), done(CALL)], [CALL]],
    ['parts that are streamed in turn', [text('Pay'), text(' ', { content_index: 1 }), text('A')], [MESSAGE]],
    ['a part without an index among others', [text('Pay'), text(' ', { content_index: null }), text('A')], [MESSAGE]],
    ['a message that begins twice', [added({ type: 'message' }), added({ type: 'message' }), text('Pay A')], [MESSAGE]],
    ['a delta before its call', [args(''), added(CALL), done(CALL)], [CALL]],
    ['a delta after its end', [{ ...text(''), type: 'response.output_text.done', text: '' }, text('Pay A')], [MESSAGE]],
    ['a reasoning part in a message', [], [{ ...MESSAGE, content: [{ type: 'reasoning_text', text: '' }] }]],
    ['a call that has no beginning', [done(CALL)], [CALL]],
    ['a call that has no end', [added({ ...CALL, arguments: '' }), args(CALL.arguments)], [CALL]],
    ['a call that begins without its name', [added({ ...CALL, name: '', arguments: '' }), done(CALL)], [CALL]],
    ['a call at another place', [added(CALL, 1), done(CALL)], [CALL]],
    ['calls in another order', [added(CALL, 1), done(CALL, 1), added(OTHER, 0), done(OTHER)], [OTHER, CALL]],
    ['calls that overlap', [added(CALL, 0), added(OTHER, 1), done(CALL, 0), done(OTHER, 1)], [CALL, OTHER]],
    ['two items with one id', [text('Pay A'), text('Pay A', { output_index: 1 })], [MESSAGE, MESSAGE]],
    ['a text that is a number', [], [{ ...MESSAGE, content: [{ type: 'output_text', text: 1 }] }]],
    ['content that is a text', [], [{ ...MESSAGE, content: 'Pay A' }]],
    ['a summary among its content', [], [{ type: 'reasoning', content: [{ type: 'summary_text', text: 'a' }] }]],
    ['arguments of a message', [args(''), text('Pay A')], [MESSAGE]],
    ['parts of a new type', [text('Pay A')], [{ ...MESSAGE, content: [{ type: 'song', text: 'Pay A' }] }]],
    [
      'a model that is no text',
      [{ type: 'response.in_progress', response: { model: ['x'] } }, text('Pay A')],
      [MESSAGE],
    ],
    ['a call with its arguments twice', [added(CALL), args(CALL.arguments)], [CALL]],
    [
      'a call that is announced under another name',
      [added({ ...CALL, name: 'x', arguments: '' }), args(CALL.arguments)],
      [CALL],
    ],
    ['a call that is announced with another id', [added({ ...CALL, call_id: 'x', arguments: '' }), done(CALL)], [CALL]],
    ['a call that ends with other arguments', [done({ ...CALL, arguments: '{"to":"B"}' })], [CALL]],
    [
      'other arguments under another id',
      [
        added({ ...CALL, arguments: '' }),
        args('{"to":"B"}'),
        { ...args(''), item_id: 'x', type: 'response.function_call_arguments.done', arguments: CALL.arguments },
      ],
      [CALL],
    ],
    ...[1, 0.5, 10_001].map<[string, readonly Event[], readonly unknown[]]>((output_index) => [
      `the end of an empty call at place ${output_index}`,
      [
        added({ ...CALL, arguments: '' }),
        { ...args(''), output_index, type: 'response.function_call_arguments.done', arguments: '' },
        done({ ...CALL, arguments: '' }),
      ],
      [{ ...CALL, arguments: '' }],
    ]),
    ['a call to search that was not announced', [text('Pay A')], [MESSAGE, { type: 'web_search_call', id: 'ws' }]],
    ['output before its end', [{ type: 'response.in_progress', response: body([MESSAGE]) }, text('Pay A')], [MESSAGE]],
    [
      'a text that ends twice',
      [text('Pay A'), ...[1, 2].map(() => ({ ...text(''), type: 'response.output_text.done', text: 'Pay A' }))],
      [MESSAGE],
    ],
    ['another model', [{ type: 'response.in_progress', response: { model: 'x' } }, text('Pay A')], [MESSAGE]],
  ])('are refused with %s', (_name, events, output) => {
    expect(() => textOf('response', [begun, ...events, completed(output)])).toThrow(FoldError);
  });

  it.each<[string, readonly Event[], readonly unknown[]]>([
    ['indices that name no part', [text('Pay '), text('A', { content_index: 1 })], [MESSAGE]],
    ['a call in one piece', [added(CALL), done(CALL)], [CALL]],
    [
      'a part that has no text',
      [text('Pay A'), { ...text(''), content_index: 1, type: 'response.output_text.done', text: '' }],
      [MESSAGE],
    ],
    ['a message that begins under another id', [added({ type: 'message', id: 'x' }, 4), text('Pay A')], [MESSAGE]],
    [
      'other ids and empty members in the final response',
      [
        added({ ...CALL, arguments: '', status: 'in_progress' }),
        args('{"to":'),
        args('"A"}'),
        { ...args(''), type: 'response.function_call_arguments.done', arguments: CALL.arguments },
        done({ ...CALL, id: null, status: 'completed', namespace: null, item_id: 'fc_1', sequence_number: -1 }),
      ],
      [{ ...CALL, id: 'fc_2', logprobs: [], more: {} }],
    ],
    [
      'a search before the text',
      [
        added({ type: 'web_search_call', id: 'ws' }),
        done({ type: 'web_search_call', id: 'ws', action: { q: 1 } }),
        text('Pay A', { output_index: 1 }),
      ],
      [{ type: 'web_search_call', id: 'ws', action: { q: 1 } }, MESSAGE],
    ],
    [
      'items that are all at index 0',
      [text('Pay A'), text('B', { item_id: 'b' })],
      [MESSAGE, { ...MESSAGE, id: 'b', content: [{ type: 'output_text', text: 'B' }] }],
    ],
  ])('are taken with %s', (_name, events, output) => {
    expect(JSON.parse(textOf('response', [begun, ...events, completed(output)])).output).toEqual(output);
  });

  it('are known by their place where no item of the final response has their name, of however many', () => {
    const record = recordEvents('response');
    const at = (i: number) => ({
      type: 'response.output_text.delta',
      item_id: `none-${i}`,
      output_index: i,
      delta: 'a',
    });
    const content = [{ type: 'output_text', text: 'a' }];
    const output = Array.from({ length: MANY }, (_, i) => ({ id: `id-${i}`, type: 'message', content }));
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
      { type: 'message_delta', delta: { stop_reason: null }, usage: { cache: 1 }, context_management: { a: 1 } },
      {
        type: 'message_delta',
        delta: { stop_reason: 'end_turn', container: 'c', id: 'x', role: 'user', model: 'x', content: [1], usage: {} },
        usage: { input_tokens: 2, cache: null },
        model: 'x',
        context: 'x',
      },
      { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 3 } },
      { type: 'message_stop' },
    ];
    expect(textOf('message', events)).toBe(
      '{"type":"message","id":"msg_1","content":[],"stop_reason":"end_turn","usage":{"input_tokens":2,"cache":1,"output_tokens":3},"context_management":{"a":1},"container":"c"}',
    );
  });

  it('fold into blocks, by the kinds of their deltas', () => {
    const tool = { type: 'tool_use', id: 't', input: {} };
    const whole = { ...tool, input: { old: 1 } };
    const json = (partial_json: string) => ({ type: 'input_json_delta', partial_json });
    expect(
      content(
        ...block(
          0,
          { type: 'text', text: '' },
          { type: 'text_delta', text: 'a' },
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
        ...block(4, whole),
        ...block(5, tool, json('')),
        ...block(6, { type: 'text', text: '' }, { type: 'thinking_delta', thinking: 'hm' }),
        ...block(7, { type: 'compaction' }, { type: 'compaction_delta', content: 'c' }, { type: 'compaction_delta' }),
      ),
    ).toEqual([
      { type: 'text', text: 'a😀' },
      { type: 'text', text: '', citations: [{ a: 1 }, 2] },
      { type: 'thinking', thinking: 'hm', signature: 'y' },
      { ...tool, input: { a: [1] } },
      whole,
      tool,
      { type: 'text', text: '', thinking: 'hm' },
      { type: 'compaction', content: 'c' },
    ]);
  });

  it('keep numbers as they are written, names that JavaScript knows, and half of a character as an escape', () => {
    const record = recordEvents('message');
    for (const [name, payload] of [
      ['message_start', '{"type":"message_start","message":{"constructor":{"a":1.0},"toJSON":"x","usage":{"n":1e2}}}'],
      ['content_block_start', '{"type":"content_block_start","index":0,"content_block":{"type":"text","valueOf":"a"}}'],
      [
        'content_block_delta',
        '{"type":"content_block_delta","index":0.0,"delta":{"type":"text_delta","text":"\\uD800"}}',
      ],
      ['content_block_start', '{"type":"content_block_start","index":1,"content_block":{"type":"tool_use"}}'],
      [
        'content_block_delta',
        '{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\\"t\\":1.0,\\"constructor\\":2}"}}',
      ],
      ['content_block_stop', '{"type":"content_block_stop","index":0}'],
      [
        'message_delta',
        '{"type":"message_delta","delta":{"stop_reason":"x","toString":12345678901234567890},"usage":{"constructor":1.50}}',
      ],
      ['message_stop', '{"type":"message_stop"}'],
    ] as const)
      record.add(name, payload);
    expect(record.text()).toBe(
      '{"constructor":{"a":1.0},"toJSON":"x","usage":{"n":1e2,"constructor":1.50},"stop_reason":"x","content":[{"type":"text","valueOf":"a","text":"\\ud800"},{"type":"tool_use","input":{"t":1.0,"constructor":2}}]}',
    );
  });

  it('fold into as many citations as came, and into the latest of as many usages', () => {
    const record = recordEvents('message');
    const usage = Object.fromEntries(Array.from({ length: MANY }, (_, i) => [`u${i}`, i]));
    add(record, [{ type: 'message_start', message: { usage } }]);
    add(record, [{ type: 'content_block_start', index: 0, content_block: { type: 'text' } }]);
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

  it('fold where blocks stop late, or not at all', () => {
    const [begin, hi, stop] = block(0, { type: 'text', text: '' }, { type: 'text_delta', text: 'Hi' }) as [
      Event,
      Event,
      Event,
    ];
    const tool = block(1, { type: 'tool_use' }, { type: 'input_json_delta', partial_json: '{"a":1}' });
    const whole = [
      { type: 'text', text: 'Hi' },
      { type: 'tool_use', input: { a: 1 } },
    ];
    expect(content(begin, hi, ...tool, stop)).toEqual(whole);
    expect(content(begin, hi, ...tool.slice(0, -1))).toEqual(whole);
  });

  const TOOL = { type: 'tool_use' };
  const open = start({ content: null });
  it.each<[string, Event[], RegExp]>([
    ['a message that is a text', [{ type: 'message_start', message: 'x' }], /begin empty/],
    ['content that is a text', [start({ content: 'x' })], /begin empty/],
    ['content that is there', [start({ content: [1] })], /begin empty/],
    [
      'a second message_delta that sets something',
      [open, END[0] as Event, { type: 'message_delta', delta: { stop_reason: 'x' } }],
      /stops twice/,
    ],
    [
      'a second message_delta that sets it beside its delta',
      [open, END[0] as Event, { type: 'message_delta', context_management: {} }],
      /stops twice/,
    ],
    ['a block after the end', [open, END[0] as Event, ...block(0, {})], /after its end/],
    ['text at the start of a block', [open, ...block(0, { type: 'text', text: 'a' })], /begins with text/],
    ['thoughts at the start', [open, ...block(0, { type: 'thinking', thinking: 'a' })], /begins with text/],
    ['thoughts without a text', [open, ...block(0, { type: 'thinking' })], /no text/],
    [
      'a delta that does not fit',
      [open, ...block(0, { type: 'tool_use' }, { type: 'text_delta', text: 'a' })],
      /not fit/,
    ],
    [
      'an input that comes twice',
      [open, ...block(0, { type: 'tool_use', input: { a: 1 } }, { type: 'input_json_delta', partial_json: '' })],
      /comes twice/,
    ],
    ['a delta of a new type', [open, ...block(0, {}, { type: 'song_delta', text: 'a' })], /has no rule/],
    ['a delta without a type', [open, ...block(0, {}, { text: 'a' })], /has no rule/],
    [
      'a delta to an earlier block',
      [
        open,
        { type: 'content_block_start', index: 0, content_block: {} },
        { type: 'content_block_start', index: 1, content_block: {} },
        { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'a' } },
      ],
      /no block that is open/,
    ],
    [
      'a delta to a block that is closed',
      [open, ...block(0, {}), { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'a' } }],
      /no block that is open/,
    ],
    ['text that is a number', [open, ...block(0, { type: 'text', text: 1 })], /begins with text/],
    ['a block at a huge index', [open, { type: 'content_block_start', index: 1e9, content_block: {} }], /out of order/],
    ['a block that is a number', [open, { type: 'content_block_start', index: 0, content_block: 1 }], /out of order/],
    ['a delta that is a text', [open, ...block(0, {}, 'x')], /has no rule/],
    ['an input that is a number', [open, ...block(0, TOOL, { type: 'input_json_delta', partial_json: 1 })], /no text/],
    [
      'a signature that is none',
      [open, ...block(0, { type: 'thinking', thinking: '' }, { type: 'signature_delta' })],
      /no text/,
    ],
    [
      'an input that names a member twice',
      [open, ...block(0, TOOL, { type: 'input_json_delta', partial_json: '{"a":1,"a":2}' })],
      /twice/,
    ],
    ['a stop before its reason', [open, { type: 'message_stop' }], /without a reason/],
  ])('are refused with %s', (_name, events, message) => {
    expect(() => textOf('message', events)).toThrow(message);
  });
});
