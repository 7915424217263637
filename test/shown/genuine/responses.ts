// Streams of /v1/responses.
import { type Json, RESPONSES } from '../stream.ts';
import { each, type Genuine, of } from './form.ts';

const RESPONSE = {
  id: 'resp_1',
  object: 'response',
  created_at: 1_700_000_000,
  model: 'sim-7b',
  error: null,
  incomplete_details: null,
};
const DONE = { input_tokens: 5, output_tokens: 7, total_tokens: 12, output_tokens_details: { reasoning_tokens: 2 } };
const numbered = (events: readonly Json[]): Json[] => each(events, (sequence_number) => ({ sequence_number }));
function responses(name: string, events: readonly Json[], output: readonly Json[], more: Json = {}): Genuine {
  const begin = { ...RESPONSE, status: 'in_progress', output: [], usage: null };
  const end = { ...RESPONSE, status: 'completed', output, usage: DONE, ...more };
  const begins = ['created', 'in_progress'].map((event) => ({ type: `response.${event}`, response: begin }));
  return of(RESPONSES, name, numbered([...begins, ...events, { type: `response.${end.status}`, response: end }]));
}
const at = (type: string, item_id: string, output_index: number, more: Json): Json => ({
  type: `response.${type}`,
  item_id,
  output_index,
  ...more,
});
const item = (done: Json, output_index: number, start: Json, events: readonly Json[]): Json[] => [
  { type: 'response.output_item.added', output_index, item: { ...done, status: 'in_progress', ...start } },
  ...events,
  { type: 'response.output_item.done', output_index, item: done },
];
const part = (words: string, more: Json = {}): Json => ({
  type: 'output_text',
  annotations: [],
  logprobs: [],
  text: words,
  ...more,
});
const said = (id: string, words: string, more: Json = {}): Json => ({
  id,
  type: 'message',
  status: 'completed',
  role: 'assistant',
  content: [part(words, more)],
});
const textEvents = (id: string, index: number, words: string): Json[] => [
  at('content_part.added', id, index, { content_index: 0, part: part('') }),
  ...[words.slice(0, 2), words.slice(2)].map((delta) =>
    at('output_text.delta', id, index, { content_index: 0, delta, logprobs: [], obfuscation: 'a8' }),
  ),
  at('output_text.done', id, index, { content_index: 0, text: words, logprobs: [] }),
  at('content_part.done', id, index, { content_index: 0, part: part(words) }),
];
const message = (id: string, index: number, words: string): Json[] =>
  item(said(id, words), index, { content: [] }, textEvents(id, index, words));
const called = (id: string, more: Json = {}): Json => ({
  id,
  type: 'function_call',
  status: 'completed',
  arguments: '{"city":"Paris"}',
  call_id: 'call_1',
  name: 'get_weather',
  ...more,
});
const calling = (id: string, index: number, more: Json = {}): Json[] =>
  item(called(id, more), index, { arguments: '' }, [
    ...['{"city"', ':"Paris"}'].map((delta) => at('function_call_arguments.delta', id, index, { delta })),
    at('function_call_arguments.done', id, index, { arguments: '{"city":"Paris"}' }),
  ]);
const SECOND = { call_id: 'call_2' };
const hosted = (type: string, id: string, index: number, states: readonly string[]): Json[] =>
  states.map((state) => at(`${type}.${state}`, id, index, {}));

const summaryItem = { id: 'rs_1', type: 'reasoning', summary: [{ type: 'summary_text', text: '**Sum**' }] };
const search = {
  id: 'ws_1',
  type: 'web_search_call',
  status: 'completed',
  action: { type: 'search', query: 'q', sources: [] },
};
const code = {
  id: 'ci_1',
  type: 'code_interpreter_call',
  status: 'completed',
  code: '1+1',
  container_id: 'cntr_1',
  outputs: [],
};
const custom = {
  id: 'ctc_1',
  type: 'custom_tool_call',
  status: 'completed',
  call_id: 'call_1',
  name: 'sql',
  input: 'SELECT 1',
};
const refusing = {
  id: 'msg_1',
  type: 'message',
  status: 'completed',
  role: 'assistant',
  content: [{ type: 'refusal', refusal: 'No.' }],
};
const citation = { type: 'url_citation', start_index: 0, end_index: 3, url: 'https://example.org', title: 'x' };
/** vLLM counts content_index on with each delta. */
const vllmText = (id: string, output_index: number, texts: readonly string[], kind = 'output_text'): Json[] => [
  ...texts.map((delta, content_index) => at(`${kind}.delta`, id, output_index, { content_index, delta, logprobs: [] })),
  at(`${kind}.done`, id, output_index, { content_index: texts.length, text: texts.join(''), logprobs: [] }),
];
const vllmDone = said('msg_streamed', 'Hello.', { logprobs: null });
const reasoned = (id: string, words: string): Json => ({
  id,
  type: 'reasoning',
  summary: [],
  content: [{ type: 'reasoning_text', text: words }],
  encrypted_content: null,
  status: null,
});
const llamaSaid = (words: string) => ({ ...said('msg_1', words) });
const llamaReasoned = {
  id: 'rs_1',
  type: 'reasoning',
  summary: [],
  content: [{ type: 'reasoning_text', text: 'Hm' }],
  encrypted_content: '',
};
const llama = (name: string, events: readonly Json[], output: readonly Json[]): Genuine => {
  const begin = { id: 'resp_1', object: 'response', status: 'in_progress' };
  const begins = ['created', 'in_progress'].map((event) => ({ type: `response.${event}`, response: begin }));
  const { id: _, error: __, incomplete_details: ___, ...rest } = RESPONSE;
  const end = {
    type: 'response.completed',
    response: { id: 'resp_1', ...rest, status: 'completed', output, usage: DONE },
  };
  return of(RESPONSES, name, [
    ...begins,
    ...events,
    ...output.map((done) => ({ type: 'response.output_item.done', item: done })),
    end,
  ]);
};
const llamaTexts = [
  { type: 'response.output_item.added', item: { ...llamaReasoned, content: [], status: 'in_progress' } },
  { type: 'response.reasoning_text.delta', delta: 'Hm', item_id: 'rs_1' },
  { type: 'response.output_item.added', item: { ...llamaSaid(''), content: [], status: 'in_progress' } },
  { type: 'response.content_part.added', item_id: 'msg_1', part: { type: 'output_text', text: '' } },
  ...['Hel', 'lo.'].map((delta) => ({ type: 'response.output_text.delta', item_id: 'msg_1', delta })),
];
const { id: _id, ...llamaCalled } = called('', { call_id: 'fc_1' });
const llamaCall = [
  { type: 'response.output_item.added', item: { ...llamaCalled, arguments: '', status: 'in_progress' } },
  ...['{"city"', ':"Paris"}'].map((delta) => ({
    type: 'response.function_call_arguments.delta',
    delta,
    item_id: 'fc_1',
  })),
];

export const STREAMED: readonly Genuine[] = [
  responses(
    'OpenAI with a reasoning summary',
    [
      ...item(summaryItem, 0, { summary: [] }, [
        at('reasoning_summary_part.added', 'rs_1', 0, { summary_index: 0, part: { type: 'summary_text', text: '' } }),
        ...['**', 'Sum**'].map((delta) =>
          at('reasoning_summary_text.delta', 'rs_1', 0, { summary_index: 0, delta, obfuscation: 'x' }),
        ),
        at('reasoning_summary_text.done', 'rs_1', 0, { summary_index: 0, text: '**Sum**' }),
        at('reasoning_summary_part.done', 'rs_1', 0, { summary_index: 0, part: summaryItem.summary[0] }),
      ]),
      ...message('msg_1', 1, 'Hello.'),
    ],
    [summaryItem, said('msg_1', 'Hello.')],
  ),
  responses(
    'OpenAI with function calls',
    [...calling('fc_1', 0), ...calling('fc_2', 1, SECOND)],
    [called('fc_1'), called('fc_2', SECOND)],
  ),
  responses(
    'OpenAI with a web search',
    [
      ...item(
        search,
        0,
        { action: undefined },
        hosted('web_search_call', 'ws_1', 0, ['in_progress', 'searching', 'completed']),
      ),
      ...item(said('msg_1', 'Paris', { annotations: [citation] }), 1, { content: [] }, [
        at('content_part.added', 'msg_1', 1, { content_index: 0, part: part('') }),
        at('output_text.delta', 'msg_1', 1, { content_index: 0, delta: 'Paris' }),
        at('output_text.annotation.added', 'msg_1', 1, { content_index: 0, annotation_index: 0, annotation: citation }),
        at('output_text.done', 'msg_1', 1, { content_index: 0, text: 'Paris' }),
        at('content_part.done', 'msg_1', 1, { content_index: 0, part: part('Paris', { annotations: [citation] }) }),
      ]),
    ],
    [search, said('msg_1', 'Paris', { annotations: [citation] })],
  ),
  responses(
    'OpenAI with a code interpreter',
    [
      ...item(code, 0, { code: '', outputs: null }, [
        ...hosted('code_interpreter_call', 'ci_1', 0, ['in_progress']),
        ...['1+', '1'].map((delta) => at('code_interpreter_call_code.delta', 'ci_1', 0, { delta })),
        at('code_interpreter_call_code.done', 'ci_1', 0, { code: '1+1' }),
        ...hosted('code_interpreter_call', 'ci_1', 0, ['interpreting', 'completed']),
      ]),
      ...message('msg_1', 1, 'Two.'),
    ],
    [code, said('msg_1', 'Two.')],
  ),
  responses(
    'OpenAI with a custom tool',
    item(custom, 0, { input: '' }, [
      at('custom_tool_call_input.delta', 'ctc_1', 0, { delta: 'SELECT ' }),
      at('custom_tool_call_input.delta', 'ctc_1', 0, { delta: '1' }),
      at('custom_tool_call_input.done', 'ctc_1', 0, { input: 'SELECT 1' }),
    ]),
    [custom],
  ),
  responses(
    'OpenAI that refuses',
    item(refusing, 0, { content: [] }, [
      at('content_part.added', 'msg_1', 0, { content_index: 0, part: { type: 'refusal', refusal: '' } }),
      at('refusal.delta', 'msg_1', 0, { content_index: 0, delta: 'No.' }),
      at('refusal.done', 'msg_1', 0, { content_index: 0, refusal: 'No.' }),
      at('content_part.done', 'msg_1', 0, { content_index: 0, part: refusing.content[0] }),
    ]),
    [refusing],
  ),
  responses('OpenAI, incomplete', message('msg_1', 0, 'Hello'), [said('msg_1', 'Hello')], {
    status: 'incomplete',
    incomplete_details: { reason: 'max_output_tokens' },
  }),
  responses(
    'vLLM, with other ids in the final response',
    item(vllmDone, 0, { content: [] }, [
      at('content_part.added', 'msg_streamed', 0, { content_index: 0, part: part('') }),
      ...vllmText('msg_streamed', 0, ['Hel', 'lo', '.']),
      at('content_part.done', 'msg_streamed', 0, { content_index: 5, part: part('Hello.', { logprobs: null }) }),
    ]),
    [said('msg_final', 'Hello.', { logprobs: null })],
  ),
  responses(
    'vLLM with gpt-oss',
    [
      ...item(reasoned('msg_a', 'Hm.'), 0, { content: null }, [
        at('reasoning_part.added', 'msg_a', 0, { content_index: 0, part: { text: '', type: 'reasoning_text' } }),
        ...['Hm', '.'].map((delta) => at('reasoning_text.delta', 'msg_a', 0, { content_index: 0, delta })),
        at('reasoning_text.done', 'msg_a', 0, { content_index: 0, text: 'Hm.' }),
        at('reasoning_part.done', 'msg_a', 0, { content_index: 0, part: { text: 'Hm.', type: 'reasoning_text' } }),
      ]),
      ...item(
        said('msg_b', 'Hello.'),
        1,
        { content: [] },
        textEvents('msg_b', 1, 'Hello.').map((event) => ({ ...event, content_index: 1 })),
      ),
    ],
    [reasoned('rs_f', 'Hm.'), said('msg_f', 'Hello.')],
  ),
  llama(
    'llama-server',
    [
      ...llamaTexts,
      { type: 'response.output_text.done', item_id: 'msg_1', text: 'Hello.' },
      { type: 'response.content_part.done', item_id: 'msg_1', part: part('Hello.') },
    ],
    [llamaReasoned, llamaSaid('Hello.')],
  ),
];

/** Streams of /v1/responses whose ids and places are not those of the final response. */
export const RENAMED: readonly Genuine[] = [
  responses(
    'vLLM with a reasoning parser, whose message begins with the id and the place of its reasoning',
    [
      ...item(reasoned('a', 'Hm.'), 0, { content: null }, [
        at('content_part.added', 'a', 0, { content_index: 0, part: part('') }),
        ...vllmText('a', 0, ['Hm', '.'], 'reasoning_text'),
      ]),
      {
        type: 'response.output_item.added',
        output_index: 0,
        item: { ...said('a', ''), content: [], status: 'in_progress' },
      },
      at('content_part.added', 'b', 1, { content_index: 0, part: part('') }),
      ...vllmText('b', 1, ['Hel', 'lo.']),
      { type: 'response.output_item.done', output_index: 1, item: said('b', 'Hello.') },
    ],
    [reasoned('rs_f', 'Hm.'), said('msg_f', 'Hello.')],
  ),
  responses(
    'vLLM with gpt-oss and tools, whose item has members of its event',
    [
      ...item(
        { ...called('fc_s'), id: undefined, item_id: 'fc_s', output_index: 0, sequence_number: -1 },
        0,
        { id: 'fc_s', item_id: undefined, output_index: undefined, sequence_number: undefined, arguments: '' },
        [at('function_call_arguments.delta', 'fc_s', 0, { delta: '{"city":"Paris"}' })],
      ),
    ],
    [called('fc_f')],
  ),
];

const vllmCalled = { ...called('fc_s', { call_id: 'call_s' }) };
/** Streams of engines that contradict themselves, or whose events do not say which call they are of. */
export const CONTRADICTIONS: readonly Genuine[] = [
  responses(
    'vLLM with tools, whose final response has another call_id',
    item(vllmCalled, 0, { arguments: '' }, [
      at('function_call_arguments.delta', 'fc_s', 0, { delta: '{"city":"Paris"}' }),
      at('function_call_arguments.done', 'fc_s', 0, { arguments: '{"city":"Paris"}', name: 'get_weather' }),
    ]),
    [called('fc_f', { call_id: 'call_f' })],
  ),
  llama(
    'llama-server with tools behind a text, whose calls have neither id nor place',
    [...llamaTexts, ...llamaCall, { type: 'response.output_text.done', item_id: 'msg_1', text: 'Hello.' }],
    [llamaReasoned, llamaSaid('Hello.'), llamaCalled],
  ),
];

/** Streams that no engine is known to write, and that the rules prove all the same. */
export const ODD_RESPONSES: readonly Genuine[] = [
  responses(
    'calls whose input is not streamed',
    item(called('fc_1'), 0, { arguments: '' }, [
      at('function_call_arguments.done', 'fc_1', 0, { arguments: '{"city":"Paris"}' }),
    ]),
    [called('fc_1')],
  ),
  responses(
    'two messages and two thoughts',
    [0, 1].flatMap((n) => [
      ...item(
        { ...summaryItem, id: `rs_${n}`, summary: ['a', 'b'].map((text) => ({ type: 'summary_text', text })) },
        2 * n,
        { summary: [] },
        ['a', 'b'].map((delta, summary_index) =>
          at('reasoning_summary_text.delta', `rs_${n}`, 2 * n, { summary_index, delta }),
        ),
      ),
      ...item(
        { ...said(`msg_${n}`, 'a'), content: [part('a'), part('b')] },
        2 * n + 1,
        { content: [] },
        ['a', 'b'].map((delta, content_index) =>
          at('output_text.delta', `msg_${n}`, 2 * n + 1, { content_index, delta }),
        ),
      ),
    ]),
    [0, 1].flatMap((n) => [
      { ...summaryItem, id: `rs_${n}`, summary: ['a', 'b'].map((text) => ({ type: 'summary_text', text })) },
      { ...said(`msg_${n}`, 'a'), content: [part('a'), part('b')] },
    ]),
  ),
];
