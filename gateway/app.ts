// The gateway's table of contents: every route and what serves it. It never listens, so tests can hold it.
import { Hono } from 'hono';
import { authenticated, bounded, verifyBounded } from './admission.ts';
import type { Deps, Env } from './context.ts';
import { edge, onError, preflight } from './edge.ts';
import { origins } from './origins.ts';
import { createCollateralRoutes } from './page/collateral.ts';
import { createPage } from './page/serve.ts';
import { service } from './page/service.ts';
import { Problem } from './problem.ts';
import { attestationById } from './routes/attestation.ts';
import { generate } from './routes/generate.ts';
import { health } from './routes/health.ts';
import { metrics } from './routes/metrics.ts';
import { openapi } from './routes/openapi.ts';
import { passthrough } from './routes/passthrough.ts';
import { verify, verifyQuery } from './routes/verify.ts';
import { decodedPath } from './target.ts';

export function createApp(deps: Deps): Hono<Env> {
  const app = new Hono<Env>({ getPath: path });
  app.use(edge(deps), origins(deps));
  app.options('*', preflight);

  app.get('/health', health(deps));
  app.get('/metrics', metrics(deps));
  app.get('/openapi.json', openapi(deps));
  app.on(['GET', 'POST'], '/~sev_gpu@1.0/verify', verifyBounded(deps), verifyQuery, verify(deps));

  const page = createPage();
  const collateral = createCollateralRoutes(deps);
  app.get('/', page.document);
  app.get('/page/service', service(deps));
  app.use('/page/collateral/*', authenticated(deps), bounded(deps));
  app.get('/page/collateral/v1/rim/:id', collateral.rim);
  app.post('/page/collateral/ocsp', collateral.ocsp);
  app.get('/page/assets/:asset', page.asset);

  app.use('/v1/*', authenticated(deps), bounded(deps));
  app.post('/v1/chat/completions', generate('chat', deps));
  app.post('/v1/completions', generate('completion', deps));
  app.get('/v1/chat/completions/:id/attestation', attestationById(deps));
  app.get('/v1/completions/:id/attestation', attestationById(deps));
  for (const path of ['/v1/chat/completions/:id/attestation', '/v1/completions/:id/attestation'])
    app.all(path, only('GET'));
  app.all('/v1/chat/completions', only('POST'));
  app.all('/v1/completions', only('POST'));
  app.all('/v1/*', passthrough(deps));

  app.all('/health', only('GET'));
  app.all('/metrics', only('GET'));
  app.all('/openapi.json', only('GET'));
  app.all('/~sev_gpu@1.0/verify', only('GET, POST'));
  // A route like the others, so that the edge logs it.
  app.all('*', () => {
    throw new Problem('not_found', 'There is nothing here. The API begins at /v1, the page is at /.');
  });
  app.onError(onError(deps));
  return app;
}

function only(allow: string) {
  return (): never => {
    throw new Problem('method_not_allowed', `Only ${allow} is allowed here.`, { headers: { allow } });
  };
}

/** From Node's own target: a URL of Fetch would have resolved dots and escapes. */
function path(request: Request, options?: { env?: Env['Bindings'] }): string {
  return decodedPath(options?.env?.incoming.url ?? new URL(request.url).pathname);
}
