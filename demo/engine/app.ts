// The engine's table of contents: a server with OpenAI's and Anthropic's endpoints over the demo model, and over the one of --model. It never listens, so tests can hold it.
import { type Context, Hono } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import type * as z from 'zod';
import { chat } from './chat.ts';
import { completions } from './completions.ts';
import { embeddings } from './embeddings.ts';
import { createEngine, type Engine } from './engine.ts';
import { messages } from './messages.ts';
import { Problem } from './problem.ts';
import {
  chatRequestSchema,
  completionRequestSchema,
  detokenizeRequestSchema,
  embeddingRequestSchema,
  messageRequestSchema,
  parse,
  responseRequestSchema,
  tokenizeRequestSchema,
} from './request.ts';
import { responses } from './responses.ts';
import { SHAPE } from './shape.ts';
import { detokenize, tokenize } from './tokenize.ts';

const MAX_BODY_BYTES = 64 * 1024 * 1024;
const MESSAGES = '/v1/messages';
const NONSENSE =
  'A demo: a tiny transformer with seeded random weights and a rough built-in grammar. Its text is nonsense.';

type Work<T> = (engine: Engine, request: T, signal: AbortSignal, stop: (reason: unknown) => void) => Promise<Response>;

/** @param engines one a model; the first answers requests that name none */
export function createEngineApp(engines: readonly Engine[] = [createEngine()]): Hono {
  const app = new Hono();
  app.use(bodyLimit({ maxSize: MAX_BODY_BYTES, onError: tooLarge }));
  app.get('/health', (c) => c.json({ status: 'ok', model: engines[0]?.model_id }));
  app.get('/v1/models', (c) => c.json({ object: 'list', data: engines.map(card) }));
  app.get('/v1/models/:id', (c) => c.json(card(engineOf(engines, c.req.param('id')))));
  const serve = <T extends { model?: string | null | undefined }>(path: string, schema: z.ZodType<T>, work: Work<T>) =>
    app.post(path, async (c) => {
      const request = parse(schema, await json(c));
      const engine = engineOf(engines, request.model ?? engines[0]?.model_id);
      return whileConnected(c, (signal, stop) => work(engine, request, signal, stop));
    });
  serve('/v1/chat/completions', chatRequestSchema, chat);
  serve('/v1/completions', completionRequestSchema, completions);
  serve('/v1/responses', responseRequestSchema, responses);
  serve(MESSAGES, messageRequestSchema, messages);
  serve('/v1/embeddings', embeddingRequestSchema, embeddings);
  serve('/tokenize', tokenizeRequestSchema, tokenize);
  serve('/detokenize', detokenizeRequestSchema, detokenize);
  app.notFound((c) => {
    throw new Problem(404, `There is no ${c.req.method} ${c.req.path} here.`, { code: 'not_found' });
  });
  app.onError((error, c) => {
    const known = error instanceof Problem;
    // Of a client that is gone there is nothing to report.
    if (!known && !c.req.raw.signal.aborted) console.error(error);
    const problem = known ? error : new Problem(500, 'The demo engine failed.');
    return c.json(c.req.path === MESSAGES ? problem.messageBody : problem.body, problem.status);
  });
  return app;
}

function engineOf(engines: readonly Engine[], id: string | undefined): Engine {
  const found = engines.find(({ model_id }) => model_id === id);
  if (found !== undefined) return found;
  throw new Problem(404, `The model \`${id}\` does not exist.`, { param: 'model', code: 'model_not_found' });
}

function card(engine: Engine): object {
  return {
    id: engine.model_id,
    object: 'model',
    created: Math.floor(engine.started_ms / 1000),
    owned_by: 'countersign',
    max_model_len: engine.llama?.max_context_tokens ?? SHAPE.max_context_tokens,
    description: engine.llama === null ? NONSENSE : 'A small real model, by llama.cpp.',
  };
}

/** The work's signal is aborted when the client goes away, before its answer or in the middle of it. */
function whileConnected(
  c: Context,
  work: (signal: AbortSignal, stop: (reason: unknown) => void) => Promise<Response>,
): Promise<Response> {
  const stopping = new AbortController();
  const stop = (reason: unknown) => stopping.abort(reason);
  const { signal } = c.req.raw;
  if (signal.aborted) stop(signal.reason);
  signal.addEventListener('abort', () => stop(signal.reason), { once: true });
  return work(stopping.signal, stop);
}

async function json(c: Context): Promise<unknown> {
  const text = await c.req.text();
  try {
    return JSON.parse(text);
  } catch {
    throw new Problem(400, 'The body is not valid JSON.', { code: 'invalid_json' });
  }
}

function tooLarge(): never {
  throw new Problem(413, `The body is larger than ${MAX_BODY_BYTES} bytes.`, { code: 'body_too_large' });
}
