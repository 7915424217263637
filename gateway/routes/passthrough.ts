// Every other /v1 route that the backend has, models and embeddings among them: passed through as it is. No tee there.
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { bodyText, readBody } from '../body.ts';
import type { Context, Deps } from '../context.ts';
import { pipeDelivery } from '../delivery/pipe.ts';
import { relay } from '../delivery/relay.ts';
import { toBackend } from '../engine/headers.ts';
import type { Caller } from '../keys/caller.ts';
import { checkModel, checkPath } from '../keys/models.ts';
import { Problem } from '../problem.ts';
import { modelsDelivery } from './models.ts';
import { cutTee, readJson, teeHeader } from './request.ts';

const METHODS = new Set(['GET', 'POST', 'DELETE']);
const WHERE = 'tee works on /v1/chat/completions and /v1/completions.';

export function passthrough({ config, engine }: Deps) {
  return async (c: Context): Promise<Response> => {
    const { incoming, outgoing } = c.env;
    const method = incoming.method ?? 'GET';
    if (!METHODS.has(method))
      throw new Problem('method_not_allowed', `${method} is not allowed here.`, {
        headers: { allow: [...METHODS].join(', ') },
      });
    const path = backendPath(incoming.url ?? '');
    const caller = c.env.caller;
    const type = incoming.headers['content-type'];
    checkPath(caller, method, path, isJson(type));
    const body = await readBody(incoming, config.max_body_bytes, c.env.seat);
    // Clients that send it with all of their requests may ask for lists too: there is nothing to attest.
    if (method === 'POST' && teeHeader(incoming.headers))
      throw new Problem('invalid_request', WHERE, { param: 'x-tee' });
    if (method === 'POST' && caller.limits.models !== null) checkBody(body, caller);
    const forward = withoutTee(body, type);
    if (asksForStream(body)) await c.env.seat.stream();
    const watch = c.env.watch;
    const exchange = { id: c.env.id, owner: c.env.owner, request: '', tee: false, choices: 1, outgoing, watch };
    const headers = toBackend(incoming.headers, config.backend_api_key);
    watch.trace?.toBackend(headers);
    const request = {
      method,
      path,
      headers,
      body: forward.length === 0 ? null : forward,
      repeatable: method === 'GET',
    };
    const { models } = caller.limits;
    const listed = models !== null && method === 'GET' && /^\/models\/?(\?|$)/.test(path) ? models : null;
    const outcome = await relay(engine, request, exchange, (head, port) =>
      listed === null ? pipeDelivery(head, port, exchange) : modelsDelivery(head, port, exchange, listed),
    );
    c.env.outcome = outcome;
    return RESPONSE_ALREADY_SENT;
  };
}

/** What follows `/v1`. A path that a backend could resolve to something outside of it is refused. */
function backendPath(url: string): string {
  if (!url.startsWith('/v1/')) throw new Problem('not_found', 'There is nothing here. The API begins at /v1.');
  const rest = url.slice('/v1'.length);
  const path = rest.split('?', 1)[0] ?? '';
  let decoded: string;
  try {
    decoded = decodeURIComponent(path);
  } catch {
    throw new Problem('invalid_request', 'The path is not valid percent-encoding.');
  }
  if (/(^|[/\\])\.{1,2}([/\\]|$)|[\\\0\r\n]/.test(decoded)) throw new Problem('not_found', 'There is nothing here.');
  return rest;
}

const isJson = (contentType = '') => /^application\/json\b/i.test(contentType);

function withoutTee(body: Buffer, contentType: string | undefined): Buffer | string {
  if (!isJson(contentType)) return body;
  if (!mayName(body, 'tee')) return body;
  const text = bodyText(body);
  const { forward, tee } = cutTee(text, readJson(text));
  if (tee) throw new Problem('invalid_request', `tee: ${WHERE}`, { param: 'tee' });
  return forward;
}

/** Whatever the path is called, and the body's type: a backend may take both otherwise. */
function asksForStream(body: Buffer): boolean {
  if (!mayName(body, 'stream')) return false;
  try {
    return (readJson(bodyText(body)) as { stream?: unknown } | null)?.stream === true;
  } catch {
    return false;
  }
}

/** Whether a member of that name may be in it, written out or escaped: a body without one is not parsed. */
const mayName = (body: Buffer, name: string) => body.includes(`${name}"`) || body.includes('\\u');

function checkBody(body: Buffer, caller: Caller): void {
  const text = bodyText(body);
  checkModel(caller, text, readJson(text));
}
