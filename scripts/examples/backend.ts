// The backend that the examples of /openapi.json are made with: a model that knows one ocean and one capital, on every endpoint.
import { EXAMPLE_MODEL as model } from '../../gateway/routes/openapi/examples.ts';
import { answer, DONE, event, type Script, stream } from '../../test/support/backend.ts';

const created = () => Math.floor(Date.now() / 1000);
const json = (value: object): Script => answer(JSON.stringify(value));

/** Named events, as Responses and Messages have them. */
const named = (events: readonly { readonly type: string; readonly [member: string]: unknown }[]): Script =>
  stream(events.map((one) => `event: ${one.type}\n${event(one)}`));

const PIECES = ['The', ' Pacific', '.'];
const TEXT = PIECES.join('');

const USAGE = { prompt_tokens: 12, completion_tokens: 3, total_tokens: 15 };

/** The canary asks for the capital. */
function chat(asked: { stream?: boolean; messages: readonly { content: string }[] }): Script {
  const content = /capital of France/.test(asked.messages.at(-1)?.content ?? '') ? 'Paris' : TEXT;
  const head = { id: 'chatcmpl-5f1c2a', created: created(), model };
  if (asked.stream !== true)
    return json({
      ...head,
      object: 'chat.completion',
      choices: [{ index: 0, message: { role: 'assistant', content }, logprobs: null, finish_reason: 'stop' }],
      usage: USAGE,
    });
  const chunk = (delta: object, finish_reason: string | null = null) =>
    event({ ...head, object: 'chat.completion.chunk', choices: [{ index: 0, delta, logprobs: null, finish_reason }] });
  return stream([
    chunk({ role: 'assistant', content: '' }),
    ...PIECES.map((piece) => chunk({ content: piece })),
    chunk({}, 'stop'),
    DONE,
  ]);
}

function completion(asked: { stream?: boolean }): Script {
  const head = { id: 'cmpl-9d04e7', object: 'text_completion', created: created(), model };
  const choice = (text: string, finish_reason: string | null) => ({ index: 0, text, logprobs: null, finish_reason });
  if (asked.stream !== true) return json({ ...head, choices: [choice(' the Pacific.', 'stop')], usage: USAGE });
  const chunk = (text: string, finish_reason: string | null = null) =>
    event({ ...head, choices: [choice(text, finish_reason)] });
  return stream([chunk(' the'), chunk(' Pacific'), chunk('.'), chunk('', 'stop'), DONE]);
}

function response(asked: { stream?: boolean }): Script {
  const part = { type: 'output_text', text: TEXT, annotations: [] };
  const item = { type: 'message', id: 'msg_2b7f', status: 'completed', role: 'assistant', content: [part] };
  const whole = {
    id: 'resp_68e3',
    object: 'response',
    created_at: created(),
    status: 'completed',
    error: null,
    model,
    output: [item],
    usage: { input_tokens: 12, output_tokens: 3, total_tokens: 15 },
  };
  if (asked.stream !== true) return json(whole);
  const at = { item_id: item.id, output_index: 0, content_index: 0 };
  return named(
    [
      { type: 'response.created', response: { ...whole, status: 'in_progress', output: [], usage: null } },
      ...PIECES.map((delta) => ({ type: 'response.output_text.delta', ...at, delta })),
      { type: 'response.output_text.done', ...at, text: TEXT },
      { type: 'response.completed', response: whole },
    ].map((one, sequence_number) => ({ ...one, sequence_number })),
  );
}

function message(asked: { stream?: boolean }): Script {
  const head = { id: 'msg_01c4', type: 'message', role: 'assistant', model };
  const end = { stop_reason: 'end_turn', stop_sequence: null };
  if (asked.stream !== true)
    return json({
      ...head,
      content: [{ type: 'text', text: TEXT }],
      ...end,
      usage: { input_tokens: 12, output_tokens: 3 },
    });
  const begun = { stop_reason: null, stop_sequence: null, usage: { input_tokens: 12, output_tokens: 1 } };
  return named([
    { type: 'message_start', message: { ...head, content: [], ...begun } },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    ...PIECES.map((text) => ({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } })),
    { type: 'content_block_stop', index: 0 },
    { type: 'message_delta', delta: end, usage: { output_tokens: 3 } },
    { type: 'message_stop' },
  ]);
}

const embedding = () =>
  json({
    object: 'list',
    data: [{ object: 'embedding', index: 0, embedding: [0.0123, -0.0456, 0.0789] }],
    model,
    usage: { prompt_tokens: 4, total_tokens: 4 },
  });

const rerank = () =>
  json({
    id: 'rerank-31ab',
    model,
    results: [
      { index: 0, relevance_score: 0.98 },
      { index: 1, relevance_score: 0.12 },
    ],
  });

const MODEL = { id: model, object: 'model', created: 1_764_547_200, owned_by: 'vllm' };
export const MODELS = JSON.stringify({ object: 'list', data: [MODEL] });

const ENDPOINTS: Readonly<Record<string, (asked: never) => Script>> = {
  '/v1/chat/completions': chat,
  '/v1/completions': completion,
  '/v1/responses': response,
  '/v1/messages': message,
  '/v1/embeddings': embedding,
  '/v1/rerank': rerank,
  [`/v1/models/${model}`]: () => json(MODEL),
};

export const exampleBackend: Script = (request, outgoing) => {
  const endpoint = ENDPOINTS[request.url];
  const script =
    endpoint?.((request.body === '' ? {} : JSON.parse(request.body)) as never) ?? answer('{"error":"none"}', 404);
  return script(request, outgoing);
};
