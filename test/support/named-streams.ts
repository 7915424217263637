// Streams of /v1/responses and /v1/messages as their servers write them, for scripted backends.
import { type Script, stream } from './backend.ts';

export const RESPONSE_ID = 'resp_1';
export const MESSAGE_ID = 'msg_1';

type Event = Readonly<Record<string, unknown>> & { readonly type: string };

/** One event, whose name is its type. */
export const named = (event: Event): string => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;

/** A whole response of /v1/responses with this text. */
export function responseBody(text: string, more: object = {}) {
  return {
    id: RESPONSE_ID,
    object: 'response',
    created_at: 1_700_000_000,
    status: 'completed',
    error: null,
    incomplete_details: null,
    instructions: null,
    metadata: {},
    model: 'scripted',
    output: [
      {
        type: 'message',
        id: 'item_1',
        status: 'completed',
        role: 'assistant',
        content: [{ type: 'output_text', text, annotations: [] }],
      },
    ],
    parallel_tool_calls: true,
    temperature: 1,
    tool_choice: 'auto',
    tools: [],
    top_p: 1,
    usage: {
      input_tokens: 3,
      input_tokens_details: { cached_tokens: 0 },
      output_tokens: 2,
      output_tokens_details: { reasoning_tokens: 0 },
      total_tokens: 5,
    },
    ...more,
  };
}

/** The events of a response whose text comes in these pieces. */
export function responseEvents(pieces: readonly string[]): Event[] {
  const text = pieces.join('');
  const begun = responseBody('', { status: 'in_progress', output: [], usage: null });
  const [item] = responseBody(text).output;
  const at = { item_id: 'item_1', output_index: 0 };
  const part = { ...at, content_index: 0 };
  const empty = { type: 'output_text', text: '', annotations: [] };
  return [
    { type: 'response.created', response: begun },
    { type: 'response.in_progress', response: begun },
    { type: 'response.output_item.added', output_index: 0, item: { ...item, status: 'in_progress', content: [] } },
    { type: 'response.content_part.added', ...part, part: empty },
    ...pieces.map((delta) => ({ type: 'response.output_text.delta', ...part, delta, logprobs: [] })),
    { type: 'response.output_text.done', ...part, text, logprobs: [] },
    { type: 'response.content_part.done', ...part, part: { ...empty, text } },
    { type: 'response.output_item.done', output_index: 0, item },
    { type: 'response.completed', response: responseBody(text) },
  ].map((event, sequence_number) => ({ ...event, sequence_number }));
}

/** The events of a response that calls a function. */
export function functionCallEvents(name: string, pieces: readonly string[]): Event[] {
  const call = { type: 'function_call', id: 'item_1', call_id: 'call_1', name };
  const done = { ...call, status: 'completed', arguments: pieces.join('') };
  const at = { item_id: 'item_1', output_index: 0 };
  const begun = responseBody('', { status: 'in_progress', output: [], usage: null });
  return [
    { type: 'response.created', response: begun },
    { type: 'response.output_item.added', output_index: 0, item: { ...call, status: 'in_progress', arguments: '' } },
    ...pieces.map((delta) => ({ type: 'response.function_call_arguments.delta', ...at, delta })),
    { type: 'response.function_call_arguments.done', ...at, name, arguments: done.arguments },
    { type: 'response.output_item.done', output_index: 0, item: done },
    { type: 'response.completed', response: responseBody('', { output: [done] }) },
  ].map((event, sequence_number) => ({ ...event, sequence_number }));
}

/** A whole message of /v1/messages with these blocks. */
export function messageBody(content: readonly object[], stop_reason: string | null = 'end_turn') {
  return {
    id: MESSAGE_ID,
    type: 'message',
    role: 'assistant',
    model: 'scripted',
    content,
    stop_reason,
    stop_sequence: null,
    usage: { input_tokens: 3, output_tokens: stop_reason === null ? 1 : 2 },
  };
}

/** The events of a message whose text comes in these pieces, and then those of `tool`'s input, if there is one, for the tool of this name. */
export function messageEvents(pieces: readonly string[], tool: readonly string[] = [], name = 'weather'): Event[] {
  const block = (index: number, content_block: object, deltas: readonly object[]): Event[] => [
    { type: 'content_block_start', index, content_block },
    ...deltas.map((delta) => ({ type: 'content_block_delta', index, delta })),
    { type: 'content_block_stop', index },
  ];
  const stop_reason = tool.length === 0 ? 'end_turn' : 'tool_use';
  return [
    { type: 'message_start', message: messageBody([], null) },
    { type: 'ping' },
    ...block(
      0,
      { type: 'text', text: '' },
      pieces.map((text) => ({ type: 'text_delta', text })),
    ),
    ...(tool.length === 0
      ? []
      : block(
          1,
          { type: 'tool_use', id: 'toolu_1', name, input: {} },
          tool.map((partial_json) => ({ type: 'input_json_delta', partial_json })),
        )),
    { type: 'message_delta', delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 2 } },
    { type: 'message_stop' },
  ];
}

/** Sends these events, one write each. */
export const namedStream = (events: readonly Event[], pause_ms = 0): Script => stream(events.map(named), pause_ms);
