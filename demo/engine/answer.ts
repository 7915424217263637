// What the endpoints' answers share: identity, usage, an event stream or one body.
import type { Engine } from './engine.ts';

export interface Identity {
  readonly id: string;
  readonly created: number;
  readonly model: string;
  readonly system_fingerprint: string;
}

export function identity(engine: Engine, prefix: 'chatcmpl' | 'cmpl'): Identity {
  return {
    id: `${prefix}-${engine.new_id()}`,
    created: Math.floor(engine.now_ms() / 1000),
    model: engine.model_id,
    system_fingerprint: (engine.llama ?? engine.model).fingerprint,
  };
}

export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
}

export function usage(prompt_tokens: number, completion_tokens: number): Usage {
  return { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens };
}

/**
 * Server-sent events, pulled: a client that reads slowly slows the model, one that is gone ends it. `start` is written before each, `end`
 * after the last.
 */
export function eventStream<E extends object>(
  chunks: AsyncGenerator<E>,
  stop: (reason: unknown) => void,
  start: (chunk: E) => string = () => '',
  end = 'data: [DONE]\n\n',
): Response {
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const next = await chunks.next();
        if (!next.done) {
          const { value } = next;
          return controller.enqueue(encoder.encode(`${start(value)}data: ${JSON.stringify(value)}\n\n`));
        }
        if (end !== '') controller.enqueue(encoder.encode(end));
        controller.close();
      },
      async cancel(reason) {
        stop(reason);
        await chunks.return(undefined).catch(() => undefined);
      },
    },
    { highWaterMark: 0 },
  );
  return new Response(body, {
    headers: {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
      // Named here, it keeps @hono/node-server from waiting for more events before it sends the first.
      'transfer-encoding': 'chunked',
    },
  });
}
