// The edge of every exchange: its id, the headers that go with every answer, its errors, and what is told of it at its end.
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { where } from '../proto/where.ts';
import { ClientGone } from './body.ts';
import type { Context, Deps, Handle, Step } from './context.ts';
import { asProblem } from './problem.ts';
import { newId, setCommonHeaders } from './refusal.ts';
import type { Outgoing } from './wire/answer.ts';

const PREFLIGHT = {
  'access-control-allow-methods': 'GET, POST, DELETE, OPTIONS',
  'access-control-max-age': '86400',
};

/**
 * Puts the edge around what serves a route. Its steps go in order, each may refuse; one function in place of a chain of
 * middleware, which would cost as much as the rest of the routing. Headers are set on Node's response, so that answers
 * that bypass Hono carry them too.
 */
export function createEdge({ config, telemetry, log }: Deps) {
  return (route: string, steps: readonly Step[], handle: Handle) =>
    async (c: Context): Promise<Response> => {
      const { incoming, outgoing } = c.env;
      const watch = telemetry.begin(incoming.headers);
      c.env.watch = watch;
      const id = newId();
      c.env.id = id;
      setCommonHeaders(outgoing, id);
      endWhenStalled(outgoing, config.write_stall_ms);
      let response: Response;
      try {
        for (const step of steps) {
          const waits = step(c);
          if (waits !== undefined) await waits;
        }
        response = await handle(c);
      } catch (error) {
        response = refused(error, c);
      }
      telemetry.end(c, watch, route, response);
      return response;
    };

  /** Where every error becomes an answer. */
  function refused(error: unknown, c: Context): Response {
    const { outgoing } = c.env;
    if (error instanceof ClientGone || outgoing.destroyed) {
      c.env.outcome = { status: 499 };
      return RESPONSE_ALREADY_SENT;
    }
    const problem = asProblem(error);
    // A message can quote what was parsed; where it happened cannot.
    if (problem.code === 'internal_error') log.error({ id: c.env.id, ...where(error) }, 'internal error');
    if (outgoing.headersSent) {
      c.env.outcome = { status: outgoing.statusCode, problem };
      outgoing.destroy();
      return RESPONSE_ALREADY_SENT;
    }
    c.env.outcome = { status: problem.status, problem };
    const headers = { ...problem.headers, 'content-type': 'application/json' };
    const body = Buffer.from(JSON.stringify(problem.body));
    // Hono makes an answer to HEAD out of the one to GET, and sends it itself.
    if (c.env.incoming.method === 'HEAD') return c.body(body, problem.status as 400, headers);
    // Written here and not by way of a Fetch response: to refuse must cost less than to serve.
    outgoing.writeHead(problem.status, { ...headers, 'content-length': body.length });
    outgoing.end(body);
    return RESPONSE_ALREADY_SENT;
  }
}

/** Lets a client go that takes nothing: nothing has moved on its connection for `stall_ms`, and bytes still wait for it. */
function endWhenStalled(outgoing: Outgoing, stall_ms: number): void {
  outgoing.setTimeout(stall_ms, () => {
    if (outgoing.writableLength > 0 || (outgoing.socket?.writableLength ?? 0) > 0) outgoing.destroy();
  });
}

/** Browsers ask first. Any header may be sent: clients add their own, and a list would break the next one. */
export function preflight(c: Context): Response {
  const headers = c.req.header('access-control-request-headers');
  return c.body(null, 204, {
    ...PREFLIGHT,
    'access-control-allow-headers': headers ?? 'authorization, content-type, x-tee',
  });
}
