// The gateway's table of contents: every route and what serves it. The app never listens, so that tests can call it.
import { Hono } from 'hono';
import type { Deps, Env, Handler, Middleware } from './http/context.ts';
import {
  authenticated,
  bounded,
  createExchangeMiddleware,
  origins,
  preflight,
  verifyBounded,
  withoutBody,
} from './http/middleware.ts';
import { Problem } from './http/problem.ts';
import { decodedPath } from './http/target.ts';
import { attestationById, generate } from './routes/generate.ts';
import { openapi } from './routes/openapi.ts';
import { createCollateralRoutes, createPage, service } from './routes/page.ts';
import { passthrough } from './routes/passthrough.ts';
import { health, metrics } from './routes/status.ts';
import { verify, verifyQuery } from './routes/verify.ts';

export function createApp(deps: Deps): Hono<Env> {
  const app = new Hono<Env>({ getPath: path });
  /**
   * Serves what matches no route of `app`. It is a router of its own, so that a request to `app` matches one route and not a chain of
   * several.
   */
  const rest = new Hono<Env>({ getPath: path });
  const exchange = createExchangeMiddleware(deps);
  const on = (routes: Hono<Env>, methods: string, path: string, middleware: readonly Middleware[], handle: Handler) =>
    routes.on(methods.split(' '), path, exchange(path, middleware, handle));
  const open = [origins(deps)];
  const admitted = [...open, authenticated(deps), bounded(deps)];
  const bodiless = [...admitted, withoutBody];
  on(app, 'OPTIONS', '/*', open, preflight);

  on(app, 'GET', '/health', open, health(deps));
  on(app, 'GET', '/metrics', open, metrics(deps));
  on(app, 'GET', '/openapi.json', open, openapi);
  on(app, 'GET POST', '/~sev_gpu@1.0/verify', [...open, verifyBounded(deps), verifyQuery], verify(deps));

  const page = createPage();
  const collateral = createCollateralRoutes(deps);
  on(app, 'GET', '/', open, page.document);
  on(app, 'GET', '/page/service', open, service(deps));
  on(app, 'GET', '/page/collateral/v1/rim/:id', bodiless, collateral.rim);
  on(app, 'POST', '/page/collateral/ocsp', admitted, collateral.ocsp);
  on(app, 'GET', '/page/assets/:asset', open, page.asset);

  on(app, 'POST', '/v1/chat/completions', admitted, generate('chat', deps));
  on(app, 'POST', '/v1/completions', admitted, generate('completion', deps));
  for (const path of ['/v1/chat/completions/:id/attestation', '/v1/completions/:id/attestation']) {
    on(app, 'GET', path, bodiless, attestationById(deps));
    on(rest, 'ALL', path, admitted, only('GET'));
  }
  on(rest, 'ALL', '/v1/chat/completions', admitted, only('POST'));
  on(rest, 'ALL', '/v1/completions', admitted, only('POST'));
  on(rest, 'ALL', '/v1/*', admitted, passthrough(deps));

  on(rest, 'ALL', '/health', open, only('GET'));
  on(rest, 'ALL', '/metrics', open, only('GET'));
  on(rest, 'ALL', '/openapi.json', open, only('GET'));
  on(rest, 'ALL', '/~sev_gpu@1.0/verify', open, only('GET, POST'));
  // This is a route, so that it is logged like the others.
  on(rest, 'ALL', '/*', open, () => {
    throw new Problem('not_found', 'There is nothing here. The API begins at /v1, the page is at /.');
  });
  app.notFound((c) => rest.fetch(c.req.raw, c.env));
  // The middleware handles errors. Its own errors go to the caller of the app: Hono would print them, with what they quote.
  for (const routes of [app, rest])
    routes.onError((error) => {
      throw error;
    });
  return app;
}

function only(allow: string) {
  return (): never => {
    throw new Problem('method_not_allowed', `Only ${allow} is allowed here.`, { headers: { allow } });
  };
}

/** The path of Node's own target: Fetch's URL has already resolved dots and escapes. */
function path(request: Request, options?: { env?: Env['Bindings'] }): string {
  return decodedPath(options?.env?.incoming.url ?? new URL(request.url).pathname);
}
