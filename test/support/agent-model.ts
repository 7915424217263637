// A scripted model that works through a plan of tool calls, on each of the three endpoints that agents use.
import { answer, DONE, event, type Script, stream } from './backend.ts';

export interface Step {
  readonly text?: string;
  readonly calls?: readonly (readonly [name: string, args: string])[];
}

/** Ten calls in eight turns, two of them in pairs, and a last answer. */
export const TEN_CALLS: readonly Step[] = [
  {
    text: 'I look at both cities.',
    calls: [
      ['get_weather', '{"city": "Paris"}'],
      ['get_weather', '{"city":"Rome"}'],
    ],
  },
  { calls: [['get_time', '{"city":"Paris"}']] },
  { calls: [['get_weather', '{"city":"Oslo","days":[1, 2.50]}']] },
  {
    text: 'Now both times.',
    calls: [
      ['get_time', '{"city":"Rome"}'],
      ['get_time', '{"city":"Oslo"}'],
    ],
  },
  { calls: [['get_weather', '{"city":"Bern"}']] },
  { calls: [['get_time', '{"city":"Bern"}']] },
  { calls: [['get_weather', '{"city":"Wien"}']] },
  { calls: [['get_time', '{"city":"Wien"}']] },
  { text: 'Paris is the warmest.' },
];

/** What the tools return. */
export const toolResult = (name: string, { city }: { readonly city: string }): string =>
  name === 'get_time' ? `It is noon in ${city}.` : `18 degrees in ${city}`;

export const TOOLS = ['get_weather', 'get_time'] as const;
export const PARAMETERS = {
  type: 'object',
  properties: { city: { type: 'string' }, days: { type: 'array', items: { type: 'number' } } },
  required: ['city'],
} as const;

/** One step for each request; the last one again and again. @param name is in every id */
export function planned(steps: readonly Step[], name = 'a'): Script {
  let asked = 0;
  let calls = 0;
  return (request, response) => {
    const step = steps[Math.min(asked++, steps.length - 1)] ?? {};
    const ids = (step.calls ?? []).map(() => `call_${name}${++calls}`);
    const { stream: streamed } = JSON.parse(request.body) as { stream?: boolean };
    const path = request.url.split('?', 1)[0] ?? '';
    const id = `${name}${asked}`;
    if (path.endsWith('/responses')) return answer(JSON.stringify(responseOf(step, id, ids)))(request, response);
    if (path.endsWith('/messages')) return answer(JSON.stringify(messageOf(step, id, ids)))(request, response);
    return (streamed === true ? stream(chunksOf(step, id, ids)) : answer(JSON.stringify(completionOf(step, id, ids))))(
      request,
      response,
    );
  };
}

function completionOf({ text, calls = [] }: Step, id: string, ids: readonly string[]) {
  const tool_calls = calls.map(([name, args], i) => ({
    id: ids[i],
    type: 'function',
    function: { name, arguments: args },
  }));
  const message = { role: 'assistant', content: text ?? null, ...(calls.length === 0 ? {} : { tool_calls }) };
  return {
    id: `chatcmpl-${id}`,
    object: 'chat.completion',
    created: 1_700_000_000,
    model: 'scripted',
    choices: [{ index: 0, message, logprobs: null, finish_reason: calls.length === 0 ? 'stop' : 'tool_calls' }],
    usage: { prompt_tokens: 3, completion_tokens: 5, total_tokens: 8 },
  };
}

function chunksOf({ text, calls = [] }: Step, id: string, ids: readonly string[]): string[] {
  const chunk = (delta: object, finish_reason: string | null = null) =>
    event({
      id: `chatcmpl-${id}`,
      object: 'chat.completion.chunk',
      created: 1_700_000_000,
      model: 'scripted',
      choices: [{ index: 0, delta, logprobs: null, finish_reason }],
    });
  const pieces = calls.flatMap(([name, args], index) => [
    chunk({ tool_calls: [{ index, id: ids[index], type: 'function', function: { name, arguments: '' } }] }),
    ...args.split(/(?<=:)/).map((part) => chunk({ tool_calls: [{ index, function: { arguments: part } }] })),
  ]);
  const words = (text ?? '').split(/(?<= )/).map((content) => chunk({ content }));
  return [
    chunk({ role: 'assistant', content: '' }),
    ...words,
    ...pieces,
    chunk({}, calls.length === 0 ? 'stop' : 'tool_calls'),
    DONE,
  ];
}

function responseOf({ text, calls = [] }: Step, id: string, ids: readonly string[]) {
  const content = [{ type: 'output_text', text, annotations: [], logprobs: [] }];
  const output = [
    ...(text === undefined
      ? []
      : [{ type: 'message', id: `msg_${id}`, role: 'assistant', status: 'completed', content }]),
    ...calls.map(([name, args], i) => ({
      type: 'function_call',
      id: `fc_${ids[i]}`,
      call_id: ids[i],
      name,
      arguments: args,
      status: 'completed',
    })),
  ];
  return {
    id: `resp_${id}`,
    object: 'response',
    created_at: 1_700_000_000,
    status: 'completed',
    model: 'scripted',
    output,
    error: null,
    incomplete_details: null,
    instructions: null,
    metadata: {},
    parallel_tool_calls: true,
    temperature: 1,
    top_p: 1,
    tool_choice: 'auto',
    tools: [],
    usage: {
      input_tokens: 3,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: 5,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: 8,
    },
  };
}

function messageOf({ text, calls = [] }: Step, id: string, ids: readonly string[]) {
  const content = [
    ...(text === undefined ? [] : [{ type: 'text', text }]),
    ...calls.map(([name, args], i) => ({ type: 'tool_use', id: ids[i], name, input: JSON.parse(args) })),
  ];
  return {
    id: `msg_${id}`,
    type: 'message',
    role: 'assistant',
    model: 'scripted',
    content,
    stop_reason: calls.length === 0 ? 'end_turn' : 'tool_use',
    stop_sequence: null,
    usage: { input_tokens: 3, output_tokens: 5 },
  };
}
