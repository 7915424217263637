// The edge of every exchange: its id, the headers that go with every answer, one log line.
import { randomUUID } from 'node:crypto';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { MiddlewareHandler } from 'hono';
import { routePath } from 'hono/route';
import { ClientGone } from './body.ts';
import type { Context, Deps, Env } from './context.ts';
import { ANYONE } from './keys/caller.ts';
import { asProblem, Problem } from './problem.ts';

const EXPOSED =
  'x-request-id, x-attestation-id, retry-after, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests';
const PREFLIGHT = {
  'access-control-allow-methods': 'GET, POST, DELETE, OPTIONS',
  'access-control-max-age': '86400',
};

/** Ids, CORS and the log line. Headers are set on Node's response, so that answers that bypass Hono carry them too. */
export function edge({ log }: Deps): MiddlewareHandler<Env> {
  return async (c, next) => {
    const started = performance.now();
    const { incoming, outgoing } = c.env;
    const id = `req-${randomUUID()}`;
    c.set('id', id);
    outgoing.setHeader('x-request-id', id);
    outgoing.setHeader('access-control-allow-origin', '*');
    outgoing.setHeader('access-control-expose-headers', EXPOSED);
    outgoing.setHeader('cache-control', 'no-store');
    await next();
    const outcome = c.get('outcome');
    const caller = c.get('caller');
    log.info({
      id,
      method: incoming.method,
      route: routePath(c, -1),
      status: outcome?.status ?? c.res.status,
      ms: Math.round(performance.now() - started),
      ...(caller === undefined || caller === ANYONE ? {} : { key: caller.name }),
      ...(outcome?.tee === undefined ? {} : { tee: outcome.tee }),
      ...(outcome?.problem === undefined ? {} : { code: outcome.problem.code }),
      ...(c.error instanceof Problem ? { code: c.error.code } : {}),
    });
  };
}

/** Browsers ask first. Any header may be sent: clients add their own, and a list would break the next one. */
export function preflight(c: Context): Response {
  const headers = c.req.header('access-control-request-headers');
  return c.body(null, 204, {
    ...PREFLIGHT,
    'access-control-allow-headers': headers ?? 'authorization, content-type, x-tee',
  });
}

/** Where every error becomes an answer. */
export function onError({ log }: Deps) {
  return (error: Error, c: Context): Response => {
    const { outgoing } = c.env;
    if (error instanceof ClientGone || outgoing.destroyed) {
      c.set('outcome', { status: 499 });
      return RESPONSE_ALREADY_SENT;
    }
    const problem = asProblem(error);
    // A message can quote what was parsed; where it happened cannot.
    if (problem.code === 'internal_error')
      log.error({ id: c.get('id'), name: error.name, at: frames(error) }, 'internal error');
    if (outgoing.headersSent) {
      outgoing.destroy();
      return RESPONSE_ALREADY_SENT;
    }
    const headers = { ...problem.headers, 'content-type': 'application/json' };
    const body = Buffer.from(JSON.stringify(problem.body));
    // Hono makes an answer to HEAD out of the one to GET, and sends it itself.
    if (c.env.incoming.method === 'HEAD') return c.body(body, problem.status as 400, headers);
    // Written here and not by way of a Fetch response: to refuse must cost less than to serve.
    outgoing.writeHead(problem.status, { ...headers, 'content-length': body.length });
    outgoing.end(body);
    c.set('outcome', { status: problem.status });
    return RESPONSE_ALREADY_SENT;
  };
}

function frames(error: Error): string[] {
  return (error.stack ?? '')
    .split('\n')
    .filter((line) => /^\s+at /.test(line))
    .slice(0, 8)
    .map((line) => line.trim());
}
