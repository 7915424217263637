// Streams of chat completions and completions.
import { CHAT, type Json, TEXT } from '../stream.ts';
import { each, type Genuine, of } from './form.ts';

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

export const CHATS: readonly Genuine[] = [
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

export const TEXTS: readonly Genuine[] = [
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

/** Streams that no engine is known to write, and that the rules prove all the same. */
export const ODD_CHATS: readonly Genuine[] = [
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
];
