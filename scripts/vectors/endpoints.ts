// The exchanges of each endpoint that the vectors are about: a request, its whole response, and the events of its stream.
import { createHash } from 'node:crypto';
import type { RawParts, StreamDigest } from '../../proto/attestation/raw.ts';
import { PAYLOADS, STREAMED, TIMESTAMP, WHOLE } from './exchange.ts';

/** `name` is null where the endpoint's events have none. */
export interface Sent {
  readonly name: string | null;
  readonly payload: string;
}

export interface EndpointExchange {
  readonly endpoint: string;
  readonly whole: RawParts;
  /** Absent: the endpoint does not stream. */
  readonly stream?: { readonly parts: RawParts; readonly events: readonly Sent[] };
}

export const digestOf = (events: readonly Sent[]): StreamDigest => ({
  events: events.length,
  sha256: createHash('sha256')
    .update(events.map(({ name, payload }) => `${name === null ? '' : `${name}\n`}${payload}\n`).join(''))
    .digest('hex'),
});

const parts = (endpoint: string, request: string, response: string, events?: readonly Sent[]): RawParts => ({
  endpoint,
  request,
  response,
  ...(events === undefined ? {} : { stream: digestOf(events) }),
  timestamp: TIMESTAMP,
});
const streaming = (request: string) => request.replace('"tee"', '"stream":true,"tee"');
const unnamed = (payloads: readonly string[]): Sent[] => payloads.map((payload) => ({ name: null, payload }));
/** An event's name is its type. */
const named = (payloads: readonly string[]): Sent[] =>
  payloads.map((payload) => ({ name: (JSON.parse(payload) as { type: string }).type, payload }));

const CHAT: Required<EndpointExchange> = {
  endpoint: '/v1/chat/completions',
  whole: WHOLE,
  stream: { parts: STREAMED, events: unnamed(PAYLOADS) },
};

const COMPLETION = '{"model":"demo","prompt":"Say hello","temperature":1.0,"tee":true}';
const completion = (text: string, finish: string | null) =>
  `{"id":"cmpl-1","object":"text_completion","created":1748779140,"model":"demo","choices":[{"index":0,"text":"${text}","logprobs":null,"finish_reason":${JSON.stringify(finish)}}]}`;
const COMPLETION_EVENTS = unnamed([completion('Hel', null), completion('lo.', null), completion('', 'stop')]);

const COMPLETIONS: Required<EndpointExchange> = {
  endpoint: '/v1/completions',
  whole: parts('/v1/completions', COMPLETION, completion('Hello.', 'stop')),
  stream: {
    parts: parts('/v1/completions', streaming(COMPLETION), completion('Hello.', 'stop'), COMPLETION_EVENTS),
    events: COMPLETION_EVENTS,
  },
};

const RESPONSES_REQUEST = '{"model":"demo","input":"Say \\u0068ello","temperature":1.0,"tee":true}';
const response = (status: string, output: string) =>
  `{"id":"resp_1","object":"response","created_at":1748779140,"status":"${status}","error":null,"model":"demo","output":[${output}],"temperature":1.0}`;
const ITEM = (text: string) =>
  `{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"${text}","annotations":[]}]}`;
const AT = '"item_id":"msg_1","output_index":0,"content_index":0';
const FINAL_RESPONSE = response('completed', ITEM('Hello.'));
const RESPONSE_EVENTS = named([
  `{"type":"response.created","sequence_number":0,"response":${response('in_progress', '')}}`,
  `{"type":"response.output_text.delta","sequence_number":1,${AT},"delta":"Hel"}`,
  `{"type":"response.output_text.delta","sequence_number":2,${AT},"delta":"lo."}`,
  `{"type":"response.output_text.done","sequence_number":3,${AT},"text":"Hello."}`,
  `{"type":"response.completed","sequence_number":4,"response":${FINAL_RESPONSE}}`,
]);

const RESPONSES: Required<EndpointExchange> = {
  endpoint: '/v1/responses',
  whole: parts('/v1/responses', RESPONSES_REQUEST, FINAL_RESPONSE),
  stream: {
    parts: parts('/v1/responses', streaming(RESPONSES_REQUEST), FINAL_RESPONSE, RESPONSE_EVENTS),
    events: RESPONSE_EVENTS,
  },
};

const MESSAGES_REQUEST =
  '{"model":"demo","max_tokens":16,"messages":[{"role":"user","content":"Say hello"}],"temperature":1.0,"tee":true}';
const message = (content: string, stop: string | null, output_tokens: number) =>
  `{"id":"msg_1","type":"message","role":"assistant","model":"demo","content":[${content}],"stop_reason":${JSON.stringify(stop)},"usage":{"input_tokens":9,"output_tokens":${output_tokens}}}`;
const BLOCKS =
  '{"type":"text","text":"Hello."},{"type":"tool_use","id":"toolu_1","name":"wave","input":{"times":1.0,"seed":12345678901234567890}}';
const delta = (index: number, one: string) => `{"type":"content_block_delta","index":${index},"delta":${one}}`;
const MESSAGE_EVENTS = named([
  `{"type":"message_start","message":${message('', null, 1)}}`,
  '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
  '{"type":"ping"}',
  delta(0, '{"type":"text_delta","text":"Hel"}'),
  delta(0, '{"type":"text_delta","text":"lo."}'),
  '{"type":"content_block_stop","index":0}',
  '{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"wave","input":{}}}',
  delta(1, '{"type":"input_json_delta","partial_json":"{\\"times\\": 1.0,"}'),
  delta(1, '{"type":"input_json_delta","partial_json":"\\"seed\\":12345678901234567890}"}'),
  '{"type":"content_block_stop","index":1}',
  '{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":7}}',
  '{"type":"message_stop"}',
]);

const MESSAGES: Required<EndpointExchange> = {
  endpoint: '/v1/messages',
  whole: parts('/v1/messages', MESSAGES_REQUEST, message(BLOCKS, 'tool_use', 7)),
  stream: {
    parts: parts('/v1/messages', streaming(MESSAGES_REQUEST), message(BLOCKS, 'tool_use', 7), MESSAGE_EVENTS),
    events: MESSAGE_EVENTS,
  },
};

const EMBEDDINGS: EndpointExchange = {
  endpoint: '/v1/embeddings',
  whole: parts(
    '/v1/embeddings',
    '{"model":"demo","input":["hello"],"tee":true}',
    '{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1.0,1e-9]}],"model":"demo"}\n',
  ),
};

export const EXCHANGES = {
  chat: CHAT,
  completions: COMPLETIONS,
  responses: RESPONSES,
  messages: MESSAGES,
  embeddings: EMBEDDINGS,
} as const;

/** A stream as the backend sent it, and as a client with `x-tee: header` saves it; `attestation` stands in the event at each of `at`. */
export function savedStream(events: readonly Sent[], attestation?: unknown, at: readonly number[] = []): string {
  const text = events.map(({ name, payload }, i) => {
    const carrying = at.includes(i) ? carried(name, payload, attestation) : payload;
    return `${name === null ? '' : `event: ${name}\n`}data: ${carrying}\n\n`;
  });
  return [...text, ...(events[0]?.name === null ? ['data: [DONE]\n\n'] : [])].join('');
}

/** Before the last `}` of the answer: the response inside of the event that completes it, else the event itself. */
function carried(name: string | null, payload: string, attestation: unknown): string {
  return payload.replace(
    name === 'response.completed' ? /\}\}$/ : /\}$/,
    (end) => `,"attestation":${JSON.stringify(attestation)}${end}`,
  );
}

/** Where the attestation stands. */
export function finalEvent(events: readonly Sent[]): number {
  const at = events.findIndex(({ name }) => name === 'response.completed' || name === 'message_delta');
  return at < 0 ? events.length - 1 : at;
}
