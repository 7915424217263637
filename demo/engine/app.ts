// The engine's table of contents: an OpenAI-compatible server over the demo model. It never listens, so tests can hold it.
import { type Context, Hono } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import { chat } from './chat.ts';
import { completions } from './completions.ts';
import { createEngine, type Engine } from './engine.ts';
import { Problem } from './problem.ts';
import { chatRequestSchema, completionRequestSchema, parse, responseRequestSchema } from './request.ts';
import { responses } from './responses.ts';
import { SHAPE } from './shape.ts';

const MAX_BODY_BYTES = 64 * 1024 * 1024;

export function createEngineApp(engine: Engine = createEngine()): Hono {
  const app = new Hono();
  app.use(bodyLimit({ maxSize: MAX_BODY_BYTES, onError: tooLarge }));
  app.get('/health', (c) => c.json({ status: 'ok', model: engine.model_id }));
  app.get('/v1/models', (c) => c.json({ object: 'list', data: [card(engine)] }));
  app.get('/v1/models/:id', (c) => {
    const id = c.req.param('id');
    if (id !== engine.model_id)
      throw new Problem(404, `The model \`${id}\` does not exist.`, { param: 'model', code: 'model_not_found' });
    return c.json(card(engine));
  });
  // Whatever model is asked for, the only one there is answers, and says its name.
  app.post('/v1/chat/completions', async (c) => {
    const request = parse(chatRequestSchema, await json(c));
    return whileConnected(c, (signal, stop) => chat(engine, request, signal, stop));
  });
  app.post('/v1/completions', async (c) => {
    const request = parse(completionRequestSchema, await json(c));
    return whileConnected(c, (signal, stop) => completions(engine, request, signal, stop));
  });
  app.post('/v1/responses', async (c) => {
    const request = parse(responseRequestSchema, await json(c));
    return whileConnected(c, (signal, stop) => responses(engine, request, signal, stop));
  });
  app.notFound((c) => {
    throw new Problem(404, `There is no ${c.req.method} ${c.req.path} here.`, { code: 'not_found' });
  });
  app.onError((error, c) => {
    const known = error instanceof Problem;
    // Of a client that is gone there is nothing to report.
    if (!known && !c.req.raw.signal.aborted) console.error(error);
    const problem = known ? error : new Problem(500, 'The demo engine failed.');
    return c.json(problem.body, problem.status);
  });
  return app;
}

function card(engine: Engine): object {
  return {
    id: engine.model_id,
    object: 'model',
    created: Math.floor(engine.started_ms / 1000),
    owned_by: 'countersign',
    max_model_len: SHAPE.max_context_tokens,
    description:
      'A demo: a tiny transformer with seeded random weights and a rough built-in grammar. Its text is nonsense.',
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
