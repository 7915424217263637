// Passes every other /v1 route through to the backend, models and embeddings among them. They have no tee.

import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import * as z from 'zod';
import type { ResponseHead } from '../backend/backend.ts';
import { toBackend } from '../backend/headers.ts';
import { type Delivery, type Exchange, type Port, pipeDelivery, relay } from '../exchange/relay.ts';
import type { Context, Deps } from '../http/context.ts';
import { Problem } from '../http/problem.ts';
import { readBody } from '../http/request.ts';
import { checkPath, checkRoute } from '../keys/keys.ts';
import { TEE_ROUTES_MESSAGE, teeHeader } from '../offload/jobs.ts';

// GET /v1/models for a key that is restricted to some models: the backend's list without the others.

const MAX_LIST_BYTES = 4 * 1024 * 1024;
const listSchema = z.looseObject({ data: z.array(z.looseObject({ id: z.string() })) });

export function modelsDelivery(
  head: ResponseHead,
  port: Port,
  exchange: Exchange,
  models: ReadonlySet<string>,
): Delivery {
  const { outgoing } = exchange;
  const chunks: Buffer[] = [];
  let bytes = 0;
  return {
    data(chunk) {
      bytes += chunk.length;
      chunks.push(chunk);
      if (bytes > MAX_LIST_BYTES) port.refuse(badList());
    },
    end() {
      const body = listOf(Buffer.concat(chunks).toString('utf8'), models);
      if (body === null) return port.refuse(badList());
      outgoing.writeHead(head.status, {
        'content-type': 'application/json',
        'content-length': Buffer.byteLength(body),
      });
      outgoing.end(body);
      port.done({ status: head.status });
    },
    fail: (problem) => port.refuse(problem),
  };
}

/** Returns null for a body that is no list, or is nested too deeply to be serialized. */
function listOf(text: string, models: ReadonlySet<string>): string | null {
  try {
    const list = listSchema.parse(JSON.parse(text));
    return JSON.stringify({ ...list, data: list.data.filter(({ id }) => models.has(id)) });
  } catch {
    return null;
  }
}

const badList = () => new Problem('backend_bad_response', 'The backend answered with no list of models.');

const METHODS = new Set(['GET', 'POST', 'DELETE']);

export function passthrough({ config, backend, offload }: Deps) {
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
    const json = isJson(type);
    checkRoute(caller, method, path);
    checkPath(caller, method, path, json);
    const body = await readBody(incoming, config.max_body_bytes, c.env.permit);
    // Clients that send x-tee with all requests may also request lists, which have nothing to attest.
    if (method === 'POST' && teeHeader(incoming.headers) !== null)
      throw new Problem('invalid_request', TEE_ROUTES_MESSAGE, { param: 'x-tee' });
    const { models } = caller.limits;
    const restrictedCaller = method === 'POST' && models !== null ? caller : null;
    const { forward, stream } = await offload.passThrough({ body, json, restrictedCaller }, c.env);
    if (stream) await c.env.permit.stream();
    const watch = c.env.watch;
    const exchange = { outgoing, watch };
    const headers = toBackend(incoming.headers, config.backend_api_key);
    watch.trace?.toBackend(headers);
    const request = {
      method,
      path,
      headers,
      body: method === 'GET' || forward.length === 0 ? null : forward,
      repeatable: method === 'GET',
      owner: c.env.owner,
    };
    const allowedModels = models !== null && method === 'GET' && /^\/models\/?(\?|$)/.test(path) ? models : null;
    const outcome = await relay(backend, request, exchange, (head, port) =>
      allowedModels === null ? pipeDelivery(head, port, exchange) : modelsDelivery(head, port, exchange, allowedModels),
    );
    c.env.outcome = outcome;
    return RESPONSE_ALREADY_SENT;
  };
}

/** Returns the part after `/v1`. A path that a backend could resolve to something outside of it is rejected. */
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
