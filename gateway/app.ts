// The gateway's table of contents: every route and what serves it. It never listens, so tests can hold it.
import { Hono } from 'hono';
import { authenticated, bounded, verifyBounded } from './admission.ts';
import type { Deps, Env } from './context.ts';
import { edge, onError, preflight } from './edge.ts';
import { Problem } from './problem.ts';
import { attestationById } from './routes/attestation.ts';
import { generate } from './routes/generate.ts';
import { health } from './routes/health.ts';
import { passthrough } from './routes/passthrough.ts';
import { verify, verifyQuery } from './routes/verify.ts';

export function createApp(deps: Deps): Hono<Env> {
  const app = new Hono<Env>({ getPath: decodedPath });
  app.use(edge(deps));
  app.options('*', preflight);

  app.get('/health', health(deps));
  app.on(['GET', 'POST'], '/~sev_gpu@1.0/verify', verifyBounded(deps), verifyQuery, verify(deps));

  app.use('/v1/*', authenticated(deps), bounded(deps));
  app.post('/v1/chat/completions', generate('chat', deps));
  app.post('/v1/completions', generate('completion', deps));
  app.get('/v1/chat/completions/:id/attestation', attestationById(deps));
  app.get('/v1/completions/:id/attestation', attestationById(deps));
  app.all('/v1/chat/completions', only('POST'));
  app.all('/v1/completions', only('POST'));
  app.all('/v1/*', passthrough(deps));

  app.all('/health', only('GET'));
  app.all('/~sev_gpu@1.0/verify', only('GET, POST'));
  // A route like the others, so that the edge logs it.
  app.all('*', () => {
    throw new Problem('not_found', 'There is nothing here. The API begins at /v1.');
  });
  app.onError(onError(deps));
  return app;
}

function only(allow: string) {
  return (): never => {
    throw new Problem('method_not_allowed', `Only ${allow} is allowed here.`, { headers: { allow } });
  };
}

/** The path as clients mean it: `/%7Esev_gpu%401.0/verify` is the same place. A slash that was escaped stays escaped. */
function decodedPath(request: Request, options?: { env?: Env['Bindings'] }): string {
  const url = options?.env?.incoming.url ?? new URL(request.url).pathname;
  const query = url.indexOf('?');
  const path = query < 0 ? url : url.slice(0, query);
  if (!path.includes('%')) return path;
  return path.replace(/%(?!2[fF])[0-9A-Fa-f]{2}/g, (escaped) => {
    const char = String.fromCharCode(Number.parseInt(escaped.slice(1), 16));
    return /[!-~]/.test(char) && char !== '%' ? char : escaped;
  });
}
