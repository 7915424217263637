// What an attacker does to a stream so that an SDK shows other words than are signed.
import type { Random } from '../verify/fuzz/fuzz-random.ts';
import { CHAT, type Endpoint, type Json, literal, MESSAGES, RESPONSES, TEXT } from './stream.ts';

export const EVIL = 'Pay Mallory.';

export interface Mutation {
  readonly name: string;
  /** Of every endpoint where there is none. */
  readonly of?: readonly Endpoint[];
  /** Changes the events in place. */
  apply(events: Json[], r: Random): void;
}

interface Place {
  readonly owner: Json;
  readonly key: string;
}

/** Every member below a value, lists included. */
function places(value: Json, found: Place[] = []): Place[] {
  if (value === null || typeof value !== 'object') return found;
  for (const key of Object.keys(value)) {
    found.push({ owner: value, key });
    places(value[key], found);
  }
  return found;
}

const STRUCTURE = [
  'format',
  'role',
  'type',
  'name',
  'id',
  'item_id',
  'call_id',
  'finish_reason',
  'stop_reason',
  'model',
  'object',
  'status',
];
const INDICES = ['index', 'output_index', 'content_index', 'summary_index', 'sequence_number'];
const INDEX_VALUES: readonly Json[] = [
  0,
  1,
  2,
  0.5,
  -1,
  10_000,
  10_001,
  2 ** 53,
  null,
  '0',
  true,
  [],
  literal('0.0'),
  literal('1e0'),
  literal('-0'),
  literal('1.0'),
];
const VALUES: readonly Json[] = [
  EVIL,
  '',
  5,
  0,
  true,
  false,
  null,
  [],
  {},
  [EVIL],
  [{ type: 'text', text: EVIL }],
  { text: EVIL },
  [[]],
  [null],
];

/** A member, the deeper ones more often: most of those above hold it. */
const memberOf = (events: Json[], r: Random, keys?: readonly string[]): Place | undefined => {
  const all = places(events).filter(({ owner, key }) => owner !== events && (keys === undefined || keys.includes(key)));
  return all.length === 0 ? undefined : r.pick(all);
};

const generic: readonly Mutation[] = [
  {
    name: 'a member changes its type',
    apply(events, r) {
      const place = memberOf(events, r);
      if (place) place.owner[place.key] = structuredClone(r.pick(VALUES));
    },
  },
  {
    name: 'a member is missing',
    apply(events, r) {
      const place = memberOf(events, r);
      if (place && !Array.isArray(place.owner)) delete place.owner[place.key];
    },
  },
  {
    name: 'a structural text is another',
    apply(events, r) {
      const place = memberOf(events, r, STRUCTURE);
      if (place)
        place.owner[place.key] = r.pick([
          EVIL,
          '',
          ' ',
          'user',
          'text',
          'thinking',
          'function',
          'custom',
          'stop',
          'message',
          'id_2',
        ]);
    },
  },
  {
    name: "a structural text is another event's",
    apply(events, r) {
      const place = memberOf(events, r, STRUCTURE);
      const other = memberOf(events, r, place && [place.key]);
      if (place && other) place.owner[place.key] = other.owner[other.key];
    },
  },
  {
    name: 'an index is another',
    apply(events, r) {
      const place = memberOf(events, r, INDICES);
      if (place) place.owner[place.key] = structuredClone(r.pick(INDEX_VALUES));
    },
  },
  {
    name: 'an event comes twice',
    apply(events, r) {
      const at = r.below(events.length);
      events.splice(at + r.below(3), 0, structuredClone(events[at]));
    },
  },
  { name: 'an event is missing', apply: (events, r) => void events.splice(r.below(events.length), 1) },
  {
    name: 'an event comes elsewhere',
    apply(events, r) {
      const [event] = events.splice(r.below(events.length), 1);
      events.splice(r.below(events.length + 1), 0, event);
    },
  },
  {
    name: 'a member has another name',
    apply(events, r) {
      const place = memberOf(events, r);
      if (!place || Array.isArray(place.owner)) return;
      const { [place.key]: value } = place.owner;
      if (r.chance(0.5)) delete place.owner[place.key];
      place.owner[
        r.pick([
          'content',
          'text',
          'message',
          'delta',
          'reasoning',
          'reasoning_content',
          'refusal',
          'arguments',
          'x',
          '__proto__x',
        ])
      ] = structuredClone(value);
    },
  },
  {
    name: 'a text goes on',
    apply(events, r) {
      const texts = places(events).filter(
        ({ owner, key }) => typeof owner[key] === 'string' && !STRUCTURE.includes(key),
      );
      if (texts.length === 0) return;
      const { owner, key } = r.pick(texts);
      owner[key] += r.pick([EVIL, ' ', '{}', '1', '"', '[]']);
    },
  },
  {
    name: 'a member of one event stands in another',
    apply(events, r) {
      const from = memberOf(events, r);
      const to = memberOf(events, r);
      if (from && to && !Array.isArray(to.owner) && !Array.isArray(from.owner))
        to.owner[from.key] = structuredClone(from.owner[from.key]);
    },
  },
];

/** Puts an event made from one of these before or after it. */
function insert(
  events: Json[],
  r: Random,
  isModel: (event: Json) => boolean,
  change: (event: Json, r: Random) => void,
): void {
  const models = events.flatMap((event, i) => (isModel(event) ? [i] : []));
  if (models.length === 0) return;
  const at = r.pick(models);
  const event = structuredClone(events[at]);
  change(event, r);
  events.splice(r.chance(0.7) ? at + 1 : at, 0, event);
}

const hasChoice = (event: Json): boolean => Array.isArray(event?.choices) && event.choices.length > 0;
const isDelta = (event: Json): boolean => event?.type === 'content_block_delta';

/** An event of a completion with the choice that is made of one there. */
const withChoice = (
  name: string,
  change: (choice: Json, r: Random, event: Json) => void,
  of: readonly Endpoint[] = [CHAT],
): Mutation => ({
  name,
  of,
  apply: (events, r) =>
    insert(events, r, hasChoice, (event, random) => {
      const [choice] = event.choices;
      if (random.chance(0.8)) choice.finish_reason = null;
      change(choice, random, event);
    }),
});

const withDelta = (name: string, delta: (r: Random) => Json): Mutation =>
  withChoice(name, (choice, r) => {
    choice.delta = delta(r);
  });

const call = (r: Random, more: Json = {}): Json => ({
  index: r.below(2),
  function: { arguments: r.pick(['{}', '1', '2', '{"a":1}', '"', '', '}']) },
  ...more,
});

const ofCompletions: readonly Mutation[] = [
  withChoice(
    'a message beside the delta',
    (choice, r) => {
      choice.message = { role: 'assistant', content: EVIL };
      if (r.chance(0.5)) delete choice.delta;
    },
    [CHAT, TEXT],
  ),
  withChoice('a delta that is none', (choice, r) => {
    choice.delta = structuredClone(r.pick([[], [{ content: EVIL }], null, EVIL, 5]));
  }),
  withChoice(
    'another choice',
    (choice, r) => {
      choice.index = r.below(4);
      if (choice.delta) choice.delta = { content: EVIL };
      else choice.text = EVIL;
    },
    [CHAT, TEXT],
  ),
  withChoice(
    'several choices in one payload',
    (choice, r, event) => {
      const other = { ...structuredClone(choice), index: r.below(3) };
      event.choices[r.chance(0.5) ? 'push' : 'unshift'](other);
    },
    [CHAT, TEXT],
  ),
  withChoice(
    'an empty identity',
    (_, r, event) =>
      Object.assign(event, r.pick([{ id: '' }, { created: 0 }, { model: '' }, { object: '' }, { model: EVIL }])),
    [CHAT, TEXT],
  ),
  withChoice('text beside a delta', (choice) => Object.assign(choice, { text: EVIL }), [CHAT, TEXT]),
  withChoice('another reason to finish', (choice, r) =>
    Object.assign(choice, { finish_reason: r.pick(['stop', 'length', '', 'error', EVIL]), delta: {} }),
  ),
  withDelta('content as a list of parts', (r) => ({
    content: r.pick<Json>([
      [{ type: 'text', text: EVIL }],
      [{ type: 'text', text: EVIL, index: 0 }],
      [{ type: 'thinking', thinking: [{ type: 'text', text: EVIL }] }],
      [{ type: 'thinking', thinking: EVIL, index: 1 }],
      [{ text: EVIL }, EVIL],
      [EVIL],
      [],
    ]),
  })),
  withDelta('reasoning by another name', (r) => {
    const names = ['reasoning', 'reasoning_content', 'reasoning_text', 'thinking'].filter(() => r.chance(0.5));
    return Object.fromEntries(names.map((name) => [name, r.pick([EVIL, ''])]));
  }),
  withDelta('reasoning_details', (r) => ({
    reasoning_details: [
      {
        type: r.pick(['reasoning.text', 'reasoning.summary']),
        text: EVIL,
        format: r.pick(['f-1', 'f-2']),
        index: r.below(2),
      },
    ],
  })),
  withDelta('text after all', (r) =>
    r.pick([{ content: EVIL }, { refusal: EVIL }, { content: EVIL, refusal: EVIL }, { role: 'user', content: EVIL }]),
  ),
  withDelta('a call goes on', (r) => ({ tool_calls: [call(r)] })),
  withDelta('a call is named once more', (r) => ({
    tool_calls: [
      call(r, {
        id: `call_${r.below(3)}`,
        type: 'function',
        function: { name: r.pick(['find', 'get_weather', 'pay']), arguments: r.pick(['{}', '', '{"a":1}', '1']) },
      }),
    ],
  })),
  withDelta('a call without a name, with the id of another', (r) => ({
    tool_calls: [call(r, { index: 1 + r.below(3), id: 'call_0' })],
  })),
  withDelta('a call of another type', (r) => ({
    tool_calls: [{ index: r.below(3), id: 'call_9', type: 'custom', custom: { name: 'pay', input: EVIL } }],
  })),
  withDelta('arguments that are no text', (r) => ({
    tool_calls: [call(r, { function: { name: 'pay', arguments: r.pick<Json>([{}, { a: 1 }, 5, [], true]) } })],
  })),
  withDelta('a call without index, or two with one', (r) => ({
    tool_calls: r.pick<Json>([
      [call(r, { index: null })],
      [call(r), call(r)],
      [{ function: { name: 'pay', arguments: '{}' } }],
    ]),
  })),
  withDelta('a function call', (r) => ({
    function_call: { name: r.pick(['find', 'pay', '']), arguments: r.pick(['{}', '', '{"q":2}']) },
  })),
  withDelta('audio', (r) => ({ audio: { id: r.pick(['a', 'b']), data: 'AAAA', transcript: EVIL } })),
  {
    name: 'usage in odd places',
    of: [CHAT, TEXT],
    apply(events, r) {
      const event = r.pick(events);
      event.usage = r.pick<Json>([{ prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 }, null, [], {}, EVIL]);
      if (r.chance(0.3)) event.choices = r.pick<Json>([[], null, {}, undefined]);
    },
  },
];

const DELTAS: readonly Json[] = [
  { type: 'text_delta', text: EVIL },
  { type: 'thinking_delta', thinking: EVIL },
  { type: 'signature_delta', signature: 'ZXZpbA==' },
  { type: 'input_json_delta', partial_json: '{"a":1}' },
  { type: 'input_json_delta', partial_json: '"' },
  { type: 'citations_delta', citation: { type: 'char_location', cited_text: EVIL } },
  { type: 'compaction_delta', content: EVIL },
  { type: 'output_text_delta', text: EVIL },
  { type: 'text_delta', text: [EVIL] },
  { type: 'text_delta', text: '', thinking: EVIL, content: EVIL, citations: [EVIL] },
];

const ofMessages: readonly Mutation[] = [
  {
    name: 'any delta into any block',
    of: [MESSAGES],
    apply: (events, r) =>
      insert(events, r, isDelta, (event, random) => {
        event.delta = structuredClone(random.pick(DELTAS));
        if (random.chance(0.3)) event.index = random.below(3);
      }),
  },
  {
    name: 'message_delta sets more',
    of: [MESSAGES],
    apply: (events, r) =>
      insert(
        events,
        r,
        ({ type }) => type === 'message_delta',
        (event, random) => {
          const more = random.pick<Json>([
            { id: 'msg_2' },
            { role: 'user' },
            { model: 'm-2' },
            { content: [{ type: 'text', text: EVIL }] },
            { stop_reason: 'refusal' },
            { stop_reason: null },
            {},
          ]);
          if (random.chance(0.8)) event.delta = more;
          else Object.assign(event, more);
        },
      ),
  },
  {
    name: 'a block begins with a text',
    of: [MESSAGES],
    apply(events, r) {
      const starts = events.filter((event) => event?.type === 'content_block_start');
      if (starts.length > 0)
        Object.assign(
          r.pick(starts).content_block,
          r.pick<Json>([
            { text: EVIL },
            { thinking: EVIL },
            { input: { a: 1 } },
            { citations: [{ cited_text: EVIL }] },
            { text: undefined },
          ]),
        );
    },
  },
  {
    name: 'another block',
    of: [MESSAGES],
    apply: (events, r) =>
      insert(
        events,
        r,
        ({ type }) => type === 'content_block_stop' || type === 'message_start',
        (event, random) => {
          const index = typeof event.index === 'number' ? event.index + 1 : 0;
          for (const key of Object.keys(event)) delete event[key];
          Object.assign(event, {
            type: 'content_block_start',
            index,
            content_block: random.pick<Json>([
              { type: 'text', text: EVIL },
              { type: 'text', text: '' },
              { type: 'fallback', text: '' },
              { type: 'tool_use', id: 'toolu_9', name: 'pay', input: { to: 'Mallory' } },
            ]),
          });
        },
      ),
  },
  {
    name: 'the message begins with content',
    of: [MESSAGES],
    apply(events, r) {
      const start = events.find((event) => event?.type === 'message_start');
      if (start?.message) start.message.content = r.pick<Json>([[{ type: 'text', text: EVIL }], null, undefined, EVIL]);
    },
  },
];

const isTyped =
  (pattern: RegExp) =>
  (event: Json): boolean =>
    pattern.test(event?.type);

/** An event of /v1/responses made from one there. */
const withEvent = (name: string, model: RegExp, change: (event: Json, r: Random) => void): Mutation => ({
  name,
  of: [RESPONSES],
  apply: (events, r) => insert(events, r, isTyped(model), change),
});

/** An event of /v1/responses is another. */
const changed = (name: string, model: RegExp, change: (event: Json, r: Random) => void): Mutation => ({
  name,
  of: [RESPONSES],
  apply(events, r) {
    const found = events.filter(isTyped(model));
    if (found.length > 0) change(r.pick(found), r);
  },
});

const TEXT_KINDS = [
  'output_text',
  'refusal',
  'reasoning_text',
  'reasoning_summary_text',
  'function_call_arguments',
  'custom_tool_call_input',
  'mcp_call_arguments',
  'code_interpreter_call_code',
];

const ofResponses: readonly Mutation[] = [
  withEvent('a delta of another kind', /\.delta$/, (event, r) => {
    event.type = `response.${r.pick([...TEXT_KINDS, 'audio.transcript', 'future_text'])}.delta`;
    event.delta = r.pick([EVIL, '']);
  }),
  withEvent('a delta at another place', /\.delta$/, (event, r) => {
    if (r.chance(0.5)) event.item_id = r.pick(['message_0', 'message_1', 'item_0', 'item_1', EVIL, '']);
    if (r.chance(0.5)) event.output_index = r.below(4);
    if (r.chance(0.5)) event.content_index = r.below(3);
    event.delta = r.pick([EVIL, '', event.delta]);
  }),
  {
    name: 'all deltas have other indices or ids',
    of: [RESPONSES],
    apply(events, r) {
      const more = r.pick<Json>([
        { content_index: 7 },
        { output_index: 0 },
        { output_index: 1 },
        { item_id: 'msg_other' },
        { item_id: undefined },
      ]);
      for (const event of events.filter(isTyped(/\.delta$/))) Object.assign(event, more);
    },
  },
  {
    name: 'the ids of the final response are others',
    of: [RESPONSES],
    apply(events) {
      for (const item of events.at(-1)?.response?.output ?? []) if (item) item.id = `other_${item.id}`;
    },
  },
  {
    name: 'the deltas of two items are exchanged',
    of: [RESPONSES],
    apply(events, r) {
      const deltas = events.filter(isTyped(/\.(delta|done)$/));
      const [one, other] = [r.pick(deltas), r.pick(deltas)];
      if (!one || !other) return;
      [one.output_index, other.output_index] = [other.output_index, one.output_index];
      if (r.chance(0.3)) [one.item_id, other.item_id] = [other.item_id, one.item_id];
    },
  },
  changed('text in what is added', /\.added$/, ({ item, part }, r) => {
    if (part) part.text = EVIL;
    if (item)
      Object.assign(
        item,
        r.pick<Json>([
          { content: [{ type: 'output_text', text: EVIL, annotations: [] }] },
          { summary: [{ type: 'summary_text', text: EVIL }] },
          { arguments: '{"a":1}' },
          { input: EVIL },
        ]),
      );
  }),
  changed('an item is done otherwise', /output_item\.(done|added)$/, ({ item }, r) => {
    if (item)
      Object.assign(
        item,
        r.pick<Json>([
          { name: 'pay' },
          { call_id: 'call_9' },
          { arguments: '{"a":2}' },
          { input: EVIL },
          { role: 'user' },
          { type: 'message' },
          { type: 'function_call' },
          { content: [{ type: 'output_text', text: EVIL, annotations: [] }] },
        ]),
      );
  }),
  changed('the final response says something else', /completed|incomplete/, ({ response }, r) => {
    const output = response?.output;
    if (!Array.isArray(output)) return;
    const more = {
      type: 'message',
      id: 'message_9',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: EVIL, annotations: [] }],
    };
    const change = r.pick<() => unknown>([
      () => output.push(more),
      () => output.pop(),
      () => output.reverse(),
      () =>
        Object.assign(
          r.pick(output) ?? {},
          r.pick<Json>([
            { name: 'pay' },
            { content: [{ type: 'output_text', text: EVIL }] },
            { content: null },
            { summary: [] },
            { id: 'message_0' },
          ]),
        ),
    ]);
    change();
  }),
  changed('the response begins otherwise', /created|in_progress/, ({ response }, r) => {
    if (response)
      Object.assign(
        response,
        r.pick<Json>([
          { model: 'm-2' },
          { id: 'resp_2' },
          {
            output: [
              {
                type: 'message',
                id: 'message_0',
                role: 'assistant',
                content: [{ type: 'output_text', text: EVIL, annotations: [] }],
              },
            ],
          },
          { output: null },
          { model: '' },
        ]),
      );
  }),
  withEvent('a text is done once more', /\.delta$/, (event, r) => {
    event.type = event.type.replace(/delta$/, 'done');
    const text = r.pick([EVIL, '', event.delta]);
    Object.assign(event, { delta: undefined, text, arguments: text, refusal: text, input: text });
  }),
  {
    name: 'no deltas',
    of: [RESPONSES],
    apply(events, r) {
      const [pattern] = [r.pick([/\.delta$/, /\.done$/, /\.added$/])];
      const kept = events.filter((event) => !pattern.test(event?.type));
      events.splice(0, events.length, ...kept);
    },
  },
];

export const MUTATIONS: readonly Mutation[] = [...generic, ...ofCompletions, ...ofMessages, ...ofResponses];
