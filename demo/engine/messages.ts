// POST /v1/messages: a chat of one choice in Anthropic's form, whole or as named events.
import { eventStream } from './answer.ts';
import { chatEvents, chatJob } from './chat.ts';
import type { Engine } from './engine.ts';
import type { Ending } from './generate.ts';
import type { ChatRequest, MessageRequest } from './request.ts';

/** @param stop ends the work that `signal` watches over */
export async function messages(
  engine: Engine,
  request: MessageRequest,
  signal: AbortSignal,
  stop: (reason: unknown) => void,
): Promise<Response> {
  const job = await chatJob(engine, asChat(request), signal);
  const message = {
    id: `msg_${engine.new_id()}`,
    type: 'message',
    role: 'assistant',
    model: engine.model_id,
    content: [] as object[],
    stop_reason: null,
    stop_sequence: null,
    usage: { input_tokens: job.prompt.length, output_tokens: 0 },
  };

  async function* events(): AsyncGenerator<{ readonly type: string }> {
    yield event('message_start', { message });
    yield event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } });
    for await (const one of chatEvents(job)) {
      if (one.type === 'piece') {
        yield event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: one.piece.text } });
        continue;
      }
      yield event('content_block_stop', { index: 0 });
      const output_tokens = one.ending.completion_tokens;
      yield event('message_delta', { delta: ended(one.ending), usage: { output_tokens } });
    }
    yield event('message_stop', {});
  }

  async function whole(): Promise<object> {
    let text = '';
    for await (const one of chatEvents(job)) {
      if (one.type === 'piece') {
        text += one.piece.text;
        continue;
      }
      const usage = { ...message.usage, output_tokens: one.ending.completion_tokens };
      return { ...message, content: [{ type: 'text', text }], ...ended(one.ending), usage };
    }
    throw new Error('the answer has no ending');
  }

  if (request.stream) return eventStream(events(), stop, ({ type }) => `event: ${type}\n`, '');
  return Response.json(await whole());
}

const event = (type: string, more: object) => ({ type, ...more });

function ended({ finish_reason, stop }: Ending): { stop_reason: string; stop_sequence: string | null } {
  if (stop !== null) return { stop_reason: 'stop_sequence', stop_sequence: stop };
  return { stop_reason: finish_reason === 'length' ? 'max_tokens' : 'end_turn', stop_sequence: null };
}

function asChat({ system, messages, max_tokens, stop_sequences, ...request }: MessageRequest): ChatRequest {
  const first = system ? [{ role: 'system', content: system }] : [];
  return {
    ...request,
    messages: [...first, ...messages],
    max_completion_tokens: max_tokens,
    stop: stop_sequences,
    n: 1,
    logprobs: false,
  };
}
