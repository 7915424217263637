// Random streams as engines write them, by a seed: every one of them must be provable.
import type { Random } from '../verify/fuzz/fuzz-random.ts';
import { CHAT, type Endpoint, type Json, MESSAGES, RESPONSES, type Stream } from './stream.ts';

const WORDS = ['The', ' sum', ' of', ' 2', '\n', '🜂', ' "x"', ' é', '  ', '{}', ' [1]', 'pay', ' 100', ' €', '1', '.'];
const ARGUMENTS = [
  '{}',
  '{"city":"Paris"}',
  '{"a":{"b":[1,2,{"c":"}"}]},"d":"\\"{"}',
  '[1,2]',
  '17',
  '"x"',
  ' {"a":1} ',
  '',
];
const times = <T>(count: number, make: (i: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i));

const words = (r: Random, most = 5): string[] => times(r.below(most + 1), () => r.pick(WORDS));

function cut(r: Random, text: string): string[] {
  const at = r.below(text.length + 1);
  // No engine cuts a number in two, and none of its readers could join it.
  return r.chance(0.4) || text === '17' ? [text] : [text.slice(0, at), text.slice(at)];
}

const optional = (r: Random, probability: number, members: Json): Json => (r.chance(probability) ? members : {});

function callDeltas(r: Random, index: number): Json[] {
  const type = { type: 'function' };
  const [first, ...rest] = cut(r, r.pick(ARGUMENTS));
  const id = `call_${index}`;
  const name = r.pick(['get_weather', 'find']);
  const repeated = r.chance(0.1) ? { id, ...type } : {};
  const begin = { index, id, ...type, function: { name, arguments: r.chance(0.5) ? first : '' } };
  const pieces = begin.function.arguments === first ? rest : [first, ...rest];
  return [begin, ...pieces.map((piece) => ({ index, ...repeated, function: { arguments: piece } }))];
}

function reasoningDeltas(r: Random): Json[] {
  const names = r.pick([['reasoning_content'], ['reasoning'], ['reasoning', 'reasoning_content']]);
  const details = names[0] === 'reasoning' && names.length === 1 && r.chance(0.5);
  return words(r).map((text) => ({
    ...Object.fromEntries(names.map((name) => [name, text])),
    ...(details ? { reasoning_details: [{ type: 'reasoning.text', text, format: 'f-1', index: 0 }] } : {}),
  }));
}

function contentDeltas(r: Random): Json[] {
  const texts = words(r, 8).map((content) => ({ content }));
  if (r.chance(0.9)) return texts;
  const thinking = words(r).map((text) => ({ content: [{ type: 'thinking', thinking: [{ type: 'text', text }] }] }));
  const parts = texts.map(({ content: text }) => ({ content: [{ type: 'text', text }] }));
  return [...thinking, ...r.pick([texts, parts])];
}

/** The choices of one answer, in the order of their chunks. */
function choiceChunks(r: Random, index: number): Json[] {
  const finish = r.pick(['stop', 'stop', 'length', 'tool_calls']);
  const role = { role: 'assistant' };
  const body = r.chance(0.1)
    ? words(r).map((refusal) => ({ refusal }))
    : [...(r.chance(0.3) ? reasoningDeltas(r) : []), ...contentDeltas(r), ...callsDeltas(r)];
  const everywhere = r.chance(0.2) ? role : {};
  const deltas = [
    { ...role, ...optional(r, 0.7, { content: r.pick(['', null]) }) },
    ...body.map((delta) => ({ ...everywhere, ...delta })),
  ];
  const more = optional(r, 0.2, { logprobs: null });
  const choices = deltas.map((delta) => ({ index, delta, ...more, finish_reason: null as string | null }));
  const last = choices.at(-1) as Json;
  if (r.chance(0.3)) last.finish_reason = finish;
  else choices.push({ index, delta: r.pick([{}, { content: '' }, { ...everywhere }]), ...more, finish_reason: finish });
  return choices;
}

function callsDeltas(r: Random): Json[] {
  if (r.chance(0.6)) return [];
  if (r.chance(0.15))
    return [
      { function_call: { name: 'find', arguments: '' } },
      ...cut(r, '{"q":1}').map((text) => ({ function_call: { arguments: text } })),
    ];
  const calls = times(1 + r.below(3), (index) => callDeltas(r, index));
  if (r.chance(0.2))
    return [
      { tool_calls: calls.map(([first]) => first) },
      ...calls.flatMap(([, ...rest]) => rest.map((call) => ({ tool_calls: [call] }))),
    ];
  return calls.flat().map((call) => ({ tool_calls: [call] }));
}

const usageOf = (r: Random): Json => ({ prompt_tokens: 3, completion_tokens: r.below(9), total_tokens: 12 });

/** In turns, as an engine answers several choices: each in its order. */
function interleaved(r: Random, queues: Json[][]): Json[] {
  const all: Json[] = [];
  for (
    let left = queues.filter(({ length }) => length > 0);
    left.length > 0;
    left = left.filter(({ length }) => length > 0)
  )
    all.push(r.pick(left).shift());
  return all;
}

function completion(r: Random, endpoint: Endpoint): Stream {
  const choices = r.pick([1, 1, 1, 1, 2, 3]);
  const object = endpoint === CHAT ? 'chat.completion.chunk' : 'text_completion';
  const perChunk = r.chance(0.15);
  let chunks = 0;
  const head = () => {
    if (perChunk) chunks += 1;
    return { id: `cmpl-${chunks}`, object, created: 1_700_000_000 + chunks, model: 'sim-7b' };
  };
  const queues = times(choices, (index) => (endpoint === CHAT ? choiceChunks(r, index) : textChunks(r, index)));
  const continuous = r.chance(0.1);
  const events = interleaved(r, queues).map((choice) => ({
    ...head(),
    choices: [choice],
    ...(continuous ? { usage: usageOf(r) } : {}),
  }));
  if (r.chance(0.5)) events.push({ ...head(), choices: [], usage: usageOf(r) });
  if (r.chance(0.1))
    events.unshift({ id: '', object: '', created: 0, model: '', choices: [], prompt_filter_results: [] } as Json);
  return { endpoint, events, choices };
}

function textChunks(r: Random, index: number): Json[] {
  const choices: Json[] = words(r, 8).map((text) => ({ index, text, logprobs: null, finish_reason: null }));
  return [...choices, { index, text: r.pick(['', '.']), logprobs: null, finish_reason: 'stop' }];
}

// /v1/responses

interface Item {
  /** As it stands in the final response. */
  readonly final: Json;
  readonly events: readonly Json[];
}

const PARTS = {
  message: {
    list: 'content',
    part: 'output_text',
    kind: 'output_text',
    index: 'content_index',
    added: 'content_part',
    more: { annotations: [] },
  },
  reasoning: {
    list: 'summary',
    part: 'summary_text',
    kind: 'reasoning_summary_text',
    index: 'summary_index',
    added: 'reasoning_summary_part',
    more: {},
  },
} as const;

function partsItem(r: Random, type: keyof typeof PARTS, output_index: number): Item {
  const { list, part, kind, index, added, more } = PARTS[type];
  const id = `${type}_${output_index}`;
  const texts = times(1 + r.below(2), () => words(r, 4));
  const final = {
    id,
    type,
    ...(type === 'message' ? { status: 'completed', role: 'assistant' } : {}),
    [list]: texts.map((text) => ({ type: part, text: text.join(''), ...more })),
  };
  const events = texts.flatMap((pieces, i) => {
    const place = { item_id: id, output_index, [index]: i };
    const text = pieces.join('');
    return [
      { type: `response.${added}.added`, ...place, part: { type: part, text: '', ...more } },
      ...pieces.map((delta) => ({ type: `response.${kind}.delta`, ...place, delta })),
      { type: `response.${kind}.done`, ...place, text },
      { type: `response.${added}.done`, ...place, part: { type: part, text, ...more } },
    ];
  });
  return { final, events: framed(final, { ...final, status: 'in_progress', [list]: [] }, output_index, events) };
}

const framed = (final: Json, added: Json, output_index: number, events: readonly Json[]): Json[] => [
  { type: 'response.output_item.added', output_index, item: added },
  ...events,
  { type: 'response.output_item.done', output_index, item: final },
];

const CALLS = {
  function_call: { member: 'arguments', kind: 'function_call_arguments' },
  custom_tool_call: { member: 'input', kind: 'custom_tool_call_input' },
} as const;

function callItem(r: Random, type: keyof typeof CALLS, output_index: number): Item {
  const { member, kind } = CALLS[type];
  const input = type === 'function_call' ? r.pick(ARGUMENTS) : words(r).join('');
  const id = `item_${output_index}`;
  const final = {
    id,
    type,
    status: 'completed',
    call_id: `call_${output_index}`,
    name: r.pick(['get_weather', 'find']),
    [member]: input,
  };
  const place = { item_id: id, output_index };
  const deltas = cut(r, input).map((delta) => ({ type: `response.${kind}.delta`, ...place, delta }));
  const events = [...(r.chance(0.9) ? deltas : []), { type: `response.${kind}.done`, ...place, [member]: input }];
  return { final, events: framed(final, { ...final, status: 'in_progress', [member]: '' }, output_index, events) };
}

function response(r: Random): Stream {
  const kinds = times(1 + r.below(3), () =>
    r.pick(['message', 'message', 'reasoning', 'function_call', 'custom_tool_call'] as const),
  );
  const items = kinds.map((kind, i) =>
    kind === 'message' || kind === 'reasoning' ? partsItem(r, kind, i) : callItem(r, kind, i),
  );
  const base = {
    id: 'resp_1',
    object: 'response',
    created_at: 1_700_000_000,
    status: 'in_progress',
    error: null,
    incomplete_details: null,
    model: 'sim-7b',
    output: [] as Json[],
    usage: null,
  };
  const incomplete = r.chance(0.1);
  const end = {
    ...base,
    status: incomplete ? 'incomplete' : 'completed',
    incomplete_details: incomplete ? { reason: 'max_output_tokens' } : null,
    output: items.map(({ final }) => final),
    usage: { input_tokens: 1, output_tokens: 2, total_tokens: 3 },
  };
  const events: Json[] = [
    { type: 'response.created', response: base },
    ...(r.chance(0.8) ? [{ type: 'response.in_progress', response: base }] : []),
    ...items.flatMap((item) => item.events),
    { type: incomplete ? 'response.incomplete' : 'response.completed', response: end },
  ];
  if (r.chance(0.9)) for (const [i, event] of events.entries()) event.sequence_number = i;
  return { endpoint: RESPONSES, events: structuredClone(events), choices: 1 };
}

// /v1/messages

const BLOCKS: readonly ((r: Random) => { block: Json; deltas: Json[] })[] = [
  (r) => ({ block: { type: 'text', text: '' }, deltas: words(r, 8).map((text) => ({ type: 'text_delta', text })) }),
  (r) => ({
    block: { type: 'thinking', thinking: '', signature: '' },
    deltas: [
      ...words(r).map((thinking) => ({ type: 'thinking_delta', thinking })),
      { type: 'signature_delta', signature: 'c2ln' },
    ],
  }),
  (r) => ({
    block: {
      type: r.pick(['tool_use', 'server_tool_use']),
      id: `toolu_${r.below(9)}`,
      name: r.pick(['get_weather', 'find']),
      input: {},
    },
    deltas: ['', ...cut(r, r.pick(ARGUMENTS.filter((text) => text.startsWith('{'))))].map((partial_json) => ({
      type: 'input_json_delta',
      partial_json,
    })),
  }),
  (r) => ({
    block: { type: 'text', text: '', citations: [] },
    deltas: [
      { type: 'text_delta', text: 'Cited.' },
      ...words(r, 2).map((cited_text) => ({
        type: 'citations_delta',
        citation: { type: 'char_location', cited_text },
      })),
    ],
  }),
  () => ({ block: { type: 'redacted_thinking', data: 'ZGF0YQ==' }, deltas: [] }),
];

function message(r: Random): Stream {
  const start = {
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'sim-7b',
    content: [],
    stop_reason: null,
    stop_sequence: null,
    usage: { input_tokens: 1, output_tokens: 1 },
  };
  const events: Json[] = [{ type: 'message_start', message: start }];
  for (const [index, block] of times(r.below(4), () => r.pick(BLOCKS)(r)).entries()) {
    events.push({ type: 'content_block_start', index, content_block: block.block });
    if (r.chance(0.2)) events.push({ type: 'ping' });
    events.push(...block.deltas.map((delta) => ({ type: 'content_block_delta', index, delta })));
    events.push({ type: 'content_block_stop', index });
  }
  events.push({
    type: 'message_delta',
    delta: { stop_reason: r.pick(['end_turn', 'tool_use', 'max_tokens']), stop_sequence: null },
    usage: { output_tokens: 9 },
  });
  events.push({ type: 'message_stop' });
  return { endpoint: MESSAGES, events, choices: 1 };
}

export function honestStream(r: Random, endpoint: Endpoint): Stream {
  if (endpoint === RESPONSES) return response(r);
  if (endpoint === MESSAGES) return message(r);
  return structuredClone(completion(r, endpoint));
}
