// Streams as engines, proxies and providers write them, in few words each. All of them must be provable.
import { CHAT, type Endpoint, type Json, MESSAGES, RESPONSES, type Stream, TEXT } from './stream.ts';

export interface Genuine extends Stream {
  readonly name: string;
}

const of = (endpoint: Endpoint, name: string, events: readonly Json[], choices = 1): Genuine => ({
  endpoint,
  name,
  events,
  choices,
});

// Chat completions

const HEAD = { id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1_700_000_000, model: 'sim-7b' };
const USAGE = { prompt_tokens: 5, completion_tokens: 7, total_tokens: 12 };
const ROLE = { role: 'assistant' };
const chunk = (delta: Json, finish_reason: string | null = null, choice: Json = {}, more: Json = {}): Json => ({
  ...HEAD,
  choices: [{ index: 0, delta, ...choice, finish_reason }],
  ...more,
});
const usageChunk = (more: Json = {}): Json => ({ ...HEAD, choices: [], usage: USAGE, ...more });
const call = (more: Json, delta: Json = {}): Json => ({ ...delta, tool_calls: [{ index: 0, ...more }] });
const begun = (more: Json = {}): Json => ({
  id: 'call_1',
  type: 'function',
  function: { name: 'get_weather', arguments: '' },
  ...more,
});
const args = (text: string): Json => ({ function: { arguments: text } });
const each = (events: readonly Json[], more: (i: number) => Json): Json[] =>
  events.map((event, i) => ({ ...event, ...more(i) }));
const whole = (index: number, id: string, more: Json = {}): Json => ({
  index,
  id,
  type: 'function',
  function: { name: 'find', arguments: `{"q":${index}}` },
  ...more,
});

const vllm = (delta: Json, finish: string | null = null, choice: Json = {}, more: Json = {}) =>
  chunk(
    delta,
    finish,
    { logprobs: null, token_ids: null, ...(finish === null ? {} : { stop_reason: null }), ...choice },
    more,
  );
const azureFilter = { hate: { filtered: false, severity: 'safe' } };
const detail = (more: Json): Json => ({ type: 'reasoning.text', format: 'anthropic-claude-v1', index: 0, ...more });
const openrouter = (delta: Json, finish: string | null = null, more: Json = {}) => ({
  ...chunk({ role: 'assistant', content: '', ...delta }, finish, {
    native_finish_reason: finish && 'end_turn',
    logprobs: null,
  }),
  provider: 'Anthropic',
  ...more,
});
const litellm = (delta: Json, finish: string | null = null) =>
  chunk(
    { provider_specific_fields: null, role: null, function_call: null, tool_calls: null, audio: null, ...delta },
    finish,
    { logprobs: null },
  );
const logprobs = (token: string) => ({
  logprobs: { content: [{ token, logprob: -0.1, bytes: [72], top_logprobs: [] }], refusal: null },
});
const openai = (delta: Json, finish: string | null = null, choice: Json = {}) =>
  chunk(delta, finish, choice, {
    service_tier: 'default',
    system_fingerprint: 'fp_1',
    usage: null,
    obfuscation: 'xV3',
  });
const thinking = (text: string) => ({ content: [{ type: 'thinking', thinking: [{ type: 'text', text }] }] });
const summary = (text: string) => ({
  content: [{ type: 'reasoning', summary: [{ type: 'summary_text', text, signature: '' }] }],
});

const chat: readonly Genuine[] = [
  of(CHAT, 'vLLM', [
    vllm({ ...ROLE, content: '' }),
    vllm({ content: 'Hel' }),
    vllm({ content: 'lo.' }),
    vllm({ content: '' }, 'stop'),
    usageChunk(),
  ]),
  of(CHAT, 'vLLM with reasoning by two names', [
    vllm({ ...ROLE, content: '' }),
    ...['So', ' it is.'].map((text) => vllm({ reasoning: text, reasoning_content: text })),
    vllm({ content: 'Yes.' }),
    vllm({ content: '' }, 'stop'),
  ]),
  of(CHAT, 'vLLM with tools', [
    vllm({ ...ROLE, content: '' }),
    vllm({ content: '\n' }),
    vllm(call(begun())),
    vllm(call(args('{"city": '))),
    vllm(call(args('"Paris"}'))),
    vllm(call(args('')), 'tool_calls'),
  ]),
  of(CHAT, 'vLLM with continuous usage and token ids', [
    vllm({ ...ROLE, content: '' }, null, {}, { usage: USAGE, prompt_token_ids: [1, 2] }),
    vllm({ content: 'Hi' }, null, { token_ids: [3] }, { usage: USAGE }),
    vllm({ content: '!' }, 'stop', { token_ids: [4], stop_reason: 128_009 }, { usage: USAGE }),
  ]),
  of(CHAT, 'SGLang', [
    chunk({ ...ROLE, content: '', reasoning_content: null, tool_calls: null }, null, {
      logprobs: null,
      matched_stop: null,
    }),
    chunk(
      { role: null, content: 'Hello.', reasoning_content: null, tool_calls: null },
      null,
      { logprobs: null, matched_stop: null },
      { usage: null },
    ),
    chunk({ role: null, content: null, reasoning_content: null, tool_calls: null }, 'stop', {
      logprobs: null,
      matched_stop: 151_645,
    }),
    usageChunk(),
  ]),
  of(CHAT, 'SGLang with tools', [
    chunk({ ...ROLE, content: '' }),
    chunk(call({ ...begun(), function: { name: 'get_weather', arguments: '' } }, { role: null, content: null })),
    chunk(
      call(
        { id: null, type: 'function', function: { name: null, arguments: '{"city": "Paris"}' } },
        { role: null, content: null },
      ),
    ),
    chunk({ content: null }, 'tool_calls', { matched_stop: null }),
  ]),
  of(
    CHAT,
    'llama-server',
    each(
      [
        chunk({ ...ROLE, content: null }),
        chunk({ reasoning_content: 'We' }),
        chunk({ content: 'Hello' }),
        chunk({ content: '.' }),
        { ...chunk({}, 'stop') },
        usageChunk({ timings: { prompt_n: 5, predicted_ms: 93.5 } }),
      ],
      (i) => ({ created: HEAD.created + i, system_fingerprint: 'b6097' }),
    ),
  ),
  of(CHAT, 'llama-server, whose stream begins with null', [
    null,
    chunk({ ...ROLE, content: null }),
    chunk({ content: 'Hello.' }),
    chunk({}, 'stop', {}, { usage: USAGE, timings: { prompt_n: 5 } }),
  ]),
  of(
    CHAT,
    'Ollama',
    each(
      [
        chunk({ ...ROLE, content: '', reasoning: 'Well' }),
        chunk({ ...ROLE, content: 'Hello.' }),
        chunk({ ...ROLE, content: '' }, 'stop'),
      ],
      (i) => ({ created: HEAD.created + i, system_fingerprint: 'fp_ollama' }),
    ),
  ),
  of(CHAT, 'Ollama with whole calls', [
    chunk({ ...ROLE, content: '', tool_calls: [whole(0, 'call_a')] }),
    chunk({ ...ROLE, content: '', tool_calls: [whole(1, 'call_b')] }),
    chunk({ ...ROLE, content: '' }, 'tool_calls'),
    usageChunk(),
  ]),
  of(
    CHAT,
    'LiteLLM over Claude, with an id for each chunk',
    each(
      [
        litellm({
          role: 'assistant',
          content: '',
          reasoning_content: 'Hm',
          thinking_blocks: [{ type: 'thinking', thinking: 'Hm', signature: null }],
          provider_specific_fields: { thinking_blocks: [{ type: 'thinking', thinking: 'Hm', signature: null }] },
        }),
        litellm({
          content: '',
          reasoning_content: '',
          thinking_blocks: [{ type: 'thinking', thinking: '', signature: 'c2ln' }],
        }),
        litellm({ content: 'Hello.' }),
        litellm({}, 'stop'),
        { ...litellm({}), usage: USAGE },
      ],
      (i) => ({ id: `chatcmpl-${i}` }),
    ),
  ),
  of(CHAT, 'OpenRouter with reasoning', [
    openrouter({ reasoning: 'Let', reasoning_details: [detail({ text: 'Let' })] }),
    openrouter({ reasoning: ' me.', reasoning_details: [detail({ text: ' me.' })] }),
    openrouter({ reasoning: null, reasoning_details: [detail({ signature: 'c2ln' })] }),
    openrouter({ content: 'Hello.' }),
    openrouter({}, 'stop'),
    openrouter({}, null, {
      usage: { ...USAGE, cost: 0.0021, is_byok: false, cost_details: { upstream_inference_cost: null } },
    }),
  ]),
  of(CHAT, 'OpenRouter with tools and encrypted reasoning', [
    openrouter({
      reasoning: 'I',
      reasoning_details: [detail({ type: 'reasoning.summary', summary: 'I', format: 'openai-responses-v1' })],
    }),
    openrouter({
      reasoning_details: [
        detail({ type: 'reasoning.encrypted', data: 'ZW5j', id: 'rs_1', format: 'openai-responses-v1' }),
      ],
    }),
    openrouter({ content: null, ...call(begun()) }),
    openrouter({ content: null, ...call({ type: 'function', ...args('{"city":"Paris"}') }) }),
    openrouter({}, 'tool_calls', { usage: { ...USAGE, cost: 0 } }),
  ]),
  of(CHAT, 'Azure, with what it says of the prompt first and of the answer after its end', [
    {
      id: '',
      object: '',
      created: 0,
      model: '',
      choices: [],
      prompt_filter_results: [{ prompt_index: 0, content_filter_results: azureFilter }],
    },
    chunk({ ...ROLE, content: '', refusal: null }, null, { logprobs: null, content_filter_results: {} }),
    chunk({ content: 'Hello.' }, null, { content_filter_results: azureFilter }),
    chunk({}, 'stop', { content_filter_results: {} }),
    {
      id: '',
      object: '',
      created: 0,
      model: '',
      choices: [
        {
          index: 0,
          finish_reason: null,
          content_filter_results: azureFilter,
          content_filter_offsets: { check_offset: 44, start_offset: 44, end_offset: 50 },
        },
      ],
    },
    usageChunk(),
  ]),
  of(CHAT, "Mistral's Magistral", [
    chunk({ ...ROLE, content: '' }),
    chunk(thinking('First')),
    chunk(thinking(', then.')),
    chunk({ content: 'So ' }),
    chunk({ content: 'be it.' }),
    chunk({ content: '' }, 'stop', {}, { usage: USAGE, p: 'abc' }),
  ]),
  of(CHAT, 'Mistral with references', [
    chunk({ ...ROLE, content: '' }),
    chunk({ content: 'Paris' }),
    chunk({ content: [{ type: 'reference', reference_ids: [1, 2] }] }),
    chunk({ content: ', then.' }),
    chunk({ content: '' }, 'stop', {}, { usage: USAGE }),
  ]),
  of(CHAT, 'Mistral with whole calls', [
    chunk({ ...ROLE, content: '' }),
    chunk(
      { content: '', tool_calls: [{ index: 0, id: 'Dx1', function: { name: 'find', arguments: '{"q": 1}' } }] },
      'tool_calls',
      {},
      { usage: USAGE },
    ),
  ]),
  of(CHAT, 'Databricks', [
    chunk({ ...ROLE, ...summary('First') }),
    chunk(summary(', then.')),
    chunk({ content: [{ type: 'reasoning', summary: [{ type: 'summary_text', text: '', signature: 'c2ln' }] }] }),
    chunk({ content: 'Hello' }),
    chunk({ content: '.' }),
    chunk({ content: '' }, 'stop', {}, { usage: USAGE }),
  ]),
  of(CHAT, 'DeepSeek', [
    chunk({ ...ROLE, content: null, reasoning_content: '' }, null, { logprobs: null }),
    chunk({ content: null, reasoning_content: 'Hm.' }),
    chunk({ content: 'Hello.', reasoning_content: null }),
    chunk({ content: '', reasoning_content: null }, 'stop', {}, { usage: USAGE }),
  ]),
  of(CHAT, 'Groq with gpt-oss', [
    chunk({ ...ROLE, content: null }, null, {}, { x_groq: { id: 'req_1' } }),
    chunk({ reasoning: 'Hm', channel: 'analysis' }),
    chunk({ content: 'Hello.' }),
    chunk({}, 'stop', {}, { x_groq: { id: 'req_1', usage: USAGE }, usage: USAGE }),
  ]),
  of(CHAT, "Gemini's OpenAI compatibility", [
    chunk({ ...ROLE, content: 'Hi.' }),
    chunk(
      {
        ...ROLE,
        tool_calls: [whole(0, 'function-call-1', { extra_content: { google: { thought_signature: 'c2ln' } } })],
      },
      null,
      {},
      { usage: USAGE },
    ),
    chunk({ ...ROLE, tool_calls: [whole(1, 'function-call-2')] }, 'tool_calls', {}, { usage: USAGE }),
  ]),
  of(CHAT, 'xAI', [
    chunk({ ...ROLE, reasoning_content: 'Hm' }, null, {}, { system_fingerprint: 'fp_x' }),
    chunk({ ...ROLE, content: 'Hello.' }),
    chunk({ ...ROLE, tool_calls: [whole(0, 'call_x')] }),
    chunk({ content: '' }, 'tool_calls'),
    usageChunk({ citations: ['https://example.org'] }),
  ]),
  of(CHAT, 'OpenAI with logprobs', [
    openai({ ...ROLE, content: '', refusal: null }, null, { logprobs: null }),
    openai({ content: 'Hel' }, null, logprobs('Hel')),
    openai({ content: 'lo' }, null, logprobs('lo')),
    openai({}, 'stop', { logprobs: null }),
    usageChunk(),
  ]),
  of(CHAT, 'OpenAI that refuses', [
    openai({ ...ROLE, content: '', refusal: null }),
    openai({ refusal: 'I am' }),
    openai({ refusal: ' sorry.' }),
    openai({}, 'stop'),
  ]),
  of(
    CHAT,
    'OpenAI with three choices',
    [
      ...[0, 1, 2].map((index) => openai({ ...ROLE, content: '' }, null, { index })),
      ...['a', 'b', 'c', 'd', 'e'].map((content, i) => openai({ content }, null, { index: (i * 2) % 3 })),
      ...[2, 0, 1].map((index) => openai({}, 'stop', { index })),
    ],
    3,
  ),
  of(CHAT, 'OpenAI with audio', [
    openai({ ...ROLE, audio: { id: 'audio_1', transcript: 'Hel' } }),
    openai({ audio: { data: 'UklGRg' } }),
    openai({ audio: { transcript: 'lo.', data: 'AAAA' } }),
    openai({ audio: { expires_at: 1_700_003_600 } }),
    openai({}, 'stop'),
  ]),
  of(CHAT, 'OpenAI with a legacy function call', [
    openai({ ...ROLE, content: null, function_call: { name: 'find', arguments: '' } }),
    openai({ function_call: { arguments: '{"q"' } }),
    openai({ function_call: { arguments: ':1}' } }),
    openai({}, 'function_call'),
  ]),
  of(CHAT, 'OpenAI with parallel calls', [
    openai({ ...ROLE, content: null, tool_calls: [{ ...begun(), index: 0 }] }),
    openai(call(args('{"city":"Paris"}'))),
    openai({ tool_calls: [{ index: 1, id: 'call_2', type: 'function', function: { name: 'find', arguments: '' } }] }),
    openai({ tool_calls: [{ index: 1, ...args('{}') }] }),
    openai({}, 'tool_calls'),
  ]),
  of(CHAT, 'OpenAI with a custom tool', [
    openai({
      ...ROLE,
      content: null,
      tool_calls: [{ index: 0, id: 'call_1', type: 'custom', custom: { name: 'sql', input: '' } }],
    }),
    openai(call({ custom: { input: 'SELECT ' } })),
    openai(call({ custom: { input: '1' } })),
    openai({}, 'tool_calls'),
  ]),
];

const text: readonly Genuine[] = [
  of(
    TEXT,
    'vLLM, two texts',
    [0, 1, 1, 0].map((index, i) => ({
      ...HEAD,
      object: 'text_completion',
      choices: [
        {
          index,
          text: `t${i}`,
          logprobs: null,
          finish_reason: i > 1 ? 'length' : null,
          stop_reason: null,
          prompt_token_ids: null,
          token_ids: null,
        },
      ],
      usage: null,
    })),
    2,
  ),
  of(
    TEXT,
    'llama-server',
    [chunk({}), chunk({}, 'stop')].map((event, i) => ({
      ...event,
      object: 'text_completion',
      choices: [{ text: i === 0 ? 'Hello.' : '', index: 0, logprobs: null, finish_reason: i === 0 ? null : 'stop' }],
      timings: { prompt_n: i },
    })),
  ),
];

// Responses

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

const response: readonly Genuine[] = [
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

// Messages

const START = {
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'sim-7b',
  content: [],
  stop_reason: null,
  stop_sequence: null,
  usage: { input_tokens: 5, output_tokens: 1, service_tier: 'standard' },
};
const block = (index: number, content_block: Json, deltas: readonly Json[]): Json[] => [
  { type: 'content_block_start', index, content_block },
  ...deltas.map((delta) => ({ type: 'content_block_delta', index, delta })),
  { type: 'content_block_stop', index },
];
const texts = (...all: readonly string[]): Json[] => all.map((text) => ({ type: 'text_delta', text }));
const inputs = (...all: readonly string[]): Json[] =>
  all.map((partial_json) => ({ type: 'input_json_delta', partial_json }));
const messages = (
  name: string,
  events: readonly Json[],
  stop_reason = 'end_turn',
  more: Json = {},
  stop: Json = {},
): Genuine =>
  of(MESSAGES, name, [
    { type: 'message_start', message: START },
    ...events,
    { type: 'message_delta', delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 9 }, ...more },
    { type: 'message_stop', ...stop },
  ]);
const result = {
  type: 'web_search_tool_result',
  tool_use_id: 'srvtoolu_1',
  content: [
    { type: 'web_search_result', url: 'https://example.org', title: 'x', encrypted_content: 'ZW5j', page_age: null },
  ],
};
const cited = {
  type: 'web_search_result_location',
  cited_text: 'Paris',
  url: 'https://example.org',
  title: 'x',
  encrypted_index: 'aQ==',
};

const anthropic: readonly Genuine[] = [
  messages(
    'Anthropic',
    [
      { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
      { type: 'ping' },
      ...block(0, {}, texts('Hel', 'lo.')).slice(1),
    ],
    'end_turn',
    { usage: { input_tokens: 5, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 9 } },
  ),
  messages('Anthropic that thinks', [
    ...block(0, { type: 'thinking', thinking: '', signature: '' }, [
      { type: 'thinking_delta', thinking: 'Hm' },
      { type: 'thinking_delta', thinking: '.' },
      { type: 'signature_delta', signature: 'c2ln' },
    ]),
    ...block(1, { type: 'redacted_thinking', data: 'ZGF0YQ==' }, []),
    ...block(2, { type: 'text', text: '' }, texts('Hello.')),
  ]),
  messages(
    'Anthropic with tools',
    [
      ...block(0, { type: 'text', text: '' }, texts('So.')),
      ...block(
        1,
        { type: 'tool_use', id: 'toolu_1', name: 'get_weather', input: {}, caller: { type: 'direct' } },
        inputs('', '{"city"', ': "Paris"}'),
      ),
      ...block(2, { type: 'tool_use', id: 'toolu_2', name: 'find', input: {} }, inputs('')),
    ],
    'tool_use',
  ),
  messages(
    'Anthropic with a web search',
    [
      ...block(
        0,
        { type: 'server_tool_use', id: 'srvtoolu_1', name: 'web_search', input: {} },
        inputs('', '{"query":', ' "q"}'),
      ),
      ...block(1, result, []),
      ...block(2, { type: 'text', text: '', citations: [] }, [
        { type: 'citations_delta', citation: cited },
        ...texts('Paris'),
      ]),
    ],
    'end_turn',
    { usage: { input_tokens: 99, output_tokens: 9, server_tool_use: { web_search_requests: 1 } } },
  ),
  messages('Anthropic, cut off in a call', block(0, { type: 'text', text: '' }, texts('I')), 'max_tokens', {
    context_management: { applied_edits: [] },
  }),
  messages(
    'Bedrock',
    block(0, { type: 'text', text: '' }, texts('Hello.')),
    'end_turn',
    {},
    { 'amazon-bedrock-invocationMetrics': { inputTokenCount: 5, outputTokenCount: 9 } },
  ),
  // Its blocks stop at the end, and none of its tool blocks has an input.
  messages(
    'llama-server',
    [
      ...block(0, { type: 'thinking', thinking: '' }, [{ type: 'thinking_delta', thinking: 'Hm' }]).slice(0, -1),
      ...block(1, { type: 'text', text: '' }, texts('Hel', 'lo.')).slice(0, -1),
      ...block(2, { type: 'tool_use', id: '1', name: 'get_weather' }, inputs('{"city"', ':"Paris"}')).slice(0, -1),
      { type: 'content_block_delta', index: 0, delta: { type: 'signature_delta', signature: '' } },
      ...[0, 1, 2].map((index) => ({ type: 'content_block_stop', index })),
    ],
    'tool_use',
  ),
];

/** Streams of /v1/responses whose ids and places are not those of the final response. */
const renamed: readonly Genuine[] = [
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

export const GENUINE: readonly Genuine[] = [...chat, ...text, ...response, ...renamed, ...anthropic];

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
export const ODD: readonly Genuine[] = [
  of(CHAT, 'a refusal amid a text', [
    chunk({ ...ROLE, content: 'Hi' }),
    chunk({ refusal: 'No' }),
    chunk({ content: '.' }, 'stop'),
  ]),
  of(CHAT, 'a reason to finish that comes twice', [
    chunk({ ...ROLE, content: 'Hi.' }, 'stop'),
    chunk({ content: '' }, 'stop'),
  ]),
  of(CHAT, 'a stream without a role', [chunk({ content: 'Hi.' }), chunk(call(begun())), chunk({}, 'tool_calls')]),
  of(CHAT, 'calls of both kinds', [
    chunk({ ...ROLE, content: null, ...call(begun()) }),
    chunk({ function_call: { name: 'find', arguments: '{}' } }, 'tool_calls'),
  ]),
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
