// POST /v1/responses: a chat of one choice, in the shape that newer clients ask for, whole or as named events.
import { eventStream } from './answer.ts';
import { chatEvents, chatJob } from './chat.ts';
import type { Engine } from './engine.ts';
import type { FinishReason } from './generate.ts';
import type { ChatRequest, ResponseRequest } from './request.ts';

/** @param stop ends the work that `signal` watches over */
export async function responses(
  engine: Engine,
  request: ResponseRequest,
  signal: AbortSignal,
  stop: (reason: unknown) => void,
): Promise<Response> {
  const job = await chatJob(engine, asChat(request), signal);
  const item_id = `msg_${engine.new_id()}`;
  const created_at = Math.floor(engine.now_ms() / 1000);
  const begun = { id: `resp_${engine.new_id()}`, object: 'response', created_at, model: engine.model_id, error: null };

  let sequence_number = 0;
  const event = (type: string, more: object) => ({ type, sequence_number: sequence_number++, ...more });
  /** A part of the item, which is the only one. */
  const part = (text: string) => ({ type: 'output_text', text, annotations: [], logprobs: [] });
  const item = (status: string, content: object[]) => ({
    type: 'message',
    id: item_id,
    status,
    role: 'assistant',
    content,
  });

  function ended(text: string, reason: FinishReason, output_tokens: number): object {
    const incomplete = reason === 'length';
    const input_tokens = job.prompt.length;
    return {
      ...begun,
      status: incomplete ? 'incomplete' : 'completed',
      incomplete_details: incomplete ? { reason: 'max_output_tokens' } : null,
      instructions: request.instructions ?? null,
      metadata: {},
      output: [item(incomplete ? 'incomplete' : 'completed', [part(text)])],
      parallel_tool_calls: true,
      temperature: job.sampling.temperature,
      tool_choice: 'auto',
      tools: [],
      top_p: job.sampling.top_p,
      usage: {
        input_tokens,
        input_tokens_details: { cached_tokens: 0 },
        output_tokens,
        output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: input_tokens + output_tokens,
      },
    };
  }

  async function* events(): AsyncGenerator<{ readonly type: string }> {
    const at = { item_id: item_id, output_index: 0, content_index: 0 };
    const response = { ...begun, status: 'in_progress', output: [], usage: null };
    yield event('response.created', { response });
    yield event('response.in_progress', { response });
    yield event('response.output_item.added', { output_index: 0, item: item('in_progress', []) });
    yield event('response.content_part.added', { ...at, part: part('') });
    let text = '';
    for await (const one of chatEvents(job)) {
      if (one.type === 'piece') {
        text += one.piece.text;
        yield event('response.output_text.delta', { ...at, delta: one.piece.text, logprobs: [] });
        continue;
      }
      const { finish_reason, completion_tokens } = one.ending;
      const last = ended(text, finish_reason, completion_tokens) as { readonly output: object[] };
      yield event('response.output_text.done', { ...at, text, logprobs: [] });
      yield event('response.content_part.done', { ...at, part: part(text) });
      yield event('response.output_item.done', { output_index: 0, item: last.output[0] });
      yield event(finish_reason === 'length' ? 'response.incomplete' : 'response.completed', { response: last });
    }
  }

  if (request.stream) return eventStream(events(), stop, ({ type }) => `event: ${type}\n`, '');
  let text = '';
  for await (const one of chatEvents(job)) {
    if (one.type === 'piece') text += one.piece.text;
    else return Response.json(ended(text, one.ending.finish_reason, one.ending.completion_tokens));
  }
  throw new Error('the answer has no ending');
}

function asChat({ input, instructions, max_output_tokens, ...request }: ResponseRequest): ChatRequest {
  const asked = typeof input === 'string' ? [{ role: 'user', content: input }] : input;
  const system = typeof instructions === 'string' ? [{ role: 'system', content: instructions }] : [];
  return { ...request, messages: [...system, ...asked], max_completion_tokens: max_output_tokens, n: 1 };
}
