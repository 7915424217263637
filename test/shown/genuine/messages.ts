// Streams of /v1/messages.
import { type Json, MESSAGES } from '../stream.ts';
import { type Genuine, of } from './form.ts';

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

export const MESSAGE_STREAMS: readonly Genuine[] = [
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
