// Passes every other /v1 route through to the backend: models, responses, messages, embeddings and others. With tee, attests the response
// to a JSON object where it is JSON or a stream of a known form.

import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { streamFormOf } from '../../proto/stream/forms.ts';
import type { Backend, Backends, Model, ResponseHead } from '../backend/backend.ts';
import { toBackend } from '../backend/headers.ts';
import { modelListSchema } from '../backend/probe.ts';
import { Problem } from '../base/problem.ts';
import { withoutQuery } from '../base/target.ts';
import { type Delivery, type Exchange, type Port, pipeDelivery, relay } from '../exchange/relay.ts';
import { isProvable, openTee, settleTee, type TeeDeps, teeDelivery, teeHeader } from '../exchange/tee.ts';
import { readBody } from '../http/body.ts';
import type { Context } from '../http/context.ts';
import { reserveTokens } from '../http/token-budget.ts';
import { checkRoute } from '../keys/keys.ts';
import { checkPath } from '../keys/models.ts';
import type { Telemetry } from '../telemetry/telemetry.ts';
import type { Operation } from '../telemetry/watch.ts';
import { beginsObject, type PassThrough } from '../threads/jobs.ts';
import type { Offload } from '../threads/offload.ts';
import type { Estimate } from '../usage/budget.ts';
import type { UsageBook } from '../usage/usage.ts';

// GET /v1/models for a key that is restricted to some models: the backend's list without all others.

const MAX_LIST_BYTES = 4 * 1024 * 1024;

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
    const list = modelListSchema.parse(JSON.parse(text));
    return JSON.stringify({ ...list, data: list.data.filter(({ id }) => models.has(id)) });
  } catch {
    return null;
  }
}

const badList = () => new Problem('backend_bad_response', 'The backend answered with no list of models.');

/** The response to GET /v1/models with several backends. */
function mergedModels(c: Context, models: readonly Model[], allowed: ReadonlySet<string> | null): Response {
  const listed = models.filter(({ id }) => allowed === null || allowed.has(id)).map(({ json }) => json);
  return c.body(`{"object":"list","data":[${listed.join(',')}]}`, 200, { 'content-type': 'application/json' });
}

// The model in the path of a request: it selects one of several backends.

/** The id in GET /v1/models/{id}; null for any other request. */
function modelInPath(method: string, path: string): string | null {
  const [, id = ''] = /^\/models\/(.*)$/.exec(withoutQuery(path)) ?? [];
  return method === 'GET' && id !== '' ? decodeURIComponent(id) : null;
}

const METHODS = new Set(['GET', 'POST', 'DELETE']);

interface PassThroughDeps extends TeeDeps {
  readonly backend: Backend;
  readonly backends: Backends | null;
  readonly offload: Offload;
  readonly telemetry: Telemetry;
  readonly book: UsageBook;
}

export function passthrough(deps: PassThroughDeps, attestationById: (c: Context, id: string) => Promise<Response>) {
  const { config, backend, backends, offload, telemetry, book } = deps;
  return async (c: Context): Promise<Response> => {
    const { incoming, outgoing, caller, permit, watch } = c.env;
    const method = incoming.method ?? 'GET';
    if (!METHODS.has(method))
      throw new Problem('method_not_allowed', `${method} is not allowed here.`, {
        headers: { allow: [...METHODS].join(', ') },
      });
    const path = backendPath(incoming.url ?? '');
    const jsonType = isJson(incoming.headers['content-type']);
    checkRoute(caller, method, path);
    const attestationId = method === 'GET' ? idIn(path) : null;
    if (attestationId === null) checkPath(caller, method, path, jsonType);
    const body = await readBody(incoming, config.max_body_bytes, permit);
    if (attestationId !== null) return attestationById(c, attestationId);
    const header = teeHeader(incoming.headers);
    const { models } = caller.limits;
    const restrictedCaller = method === 'POST' && models !== null ? caller : null;
    const mayAttest = method === 'POST' && header.tee !== null;
    const byModel = method === 'POST' && backends !== null;
    const counted = method === 'POST' && telemetry.counts;
    const json = jsonType || beginsObject(body);
    const metered = c.env.budget !== undefined;
    const parsed = await offload.passThrough(
      { body, json, restrictedCaller, mayAttest, byModel, counted, metered },
      c.env,
    );
    if (method === 'GET' && parsed.tee !== null) throw new Problem('invalid_request', BODY_OF_GET, { param: 'tee' });
    watch.model = parsed.model ?? null;
    const { forward, stream, object, model } = parsed;
    const tee = parsed.tee ?? (object ? header.tee : null);
    if (stream) permit.stream();
    await reserveTokens(c.env, book, estimateFor(path, parsed));
    if (tee === null && header.tee !== null) outgoing.setHeader(...UNSUPPORTED);
    const isList = method === 'GET' && /^\/models\/?(\?|$)/.test(path);
    if (backends !== null && isList) return mergedModels(c, await backends.models(), models);
    const headers = {
      ...toBackend(incoming.headers, config.backend_api_key, caller),
      // The body was read as JSON in UTF-8: the proof says so, and the model was checked in it.
      ...(tee === null && restrictedCaller === null ? {} : { 'content-type': 'application/json' }),
    };
    watch.trace?.toBackend(headers);
    const request = {
      method,
      path,
      headers,
      body: method === 'GET' || forward.length === 0 ? null : forward,
      repeatable: method === 'GET',
      owner: tee === null ? c.env.owner : null,
      attested: tee !== null,
      model:
        backends === null
          ? null
          : method === 'POST'
            ? (model ?? (await offload.modelInForm(incoming.headers['content-type'] ?? '', body, c.env)))
            : modelInPath(method, path),
    };
    if (tee !== null) {
      const endpoint = `/v1${withoutQuery(path)}`;
      watch.generates(operationOf(endpoint), model, true);
      const exchange = await openTee(c.env, deps, {
        tee,
        spliced: header.spliced,
        endpoint,
        request: body,
        choices: 1,
      });
      const relayed = relay(backend, request, exchange, (head, port) => {
        if (isProvable(head, exchange)) return teeDelivery(head, port, exchange, deps);
        if (parsed.tee !== null) throw new Problem('invalid_request', NOT_PROVABLE, { param: 'tee' });
        outgoing.setHeader(...UNSUPPORTED);
        return pipeDelivery(head, port, exchange);
      });
      c.env.outcome = await settleTee(c.env, deps, relayed);
      return RESPONSE_ALREADY_SENT;
    }
    const exchange = { outgoing, watch };
    const allowedModels = isList ? models : null;
    const outcome = await relay(backend, request, exchange, (head, port) =>
      allowedModels === null ? pipeDelivery(head, port, exchange) : modelsDelivery(head, port, exchange, allowedModels),
    );
    c.env.outcome = outcome;
    return RESPONSE_ALREADY_SENT;
  };
}

const NOT_PROVABLE = 'tee: the answer of this request is neither a JSON object nor a stream that can be proven.';
const BODY_OF_GET = 'tee: the body of a GET is not sent to the backend, so it cannot be proven. Send a POST.';
/** Tells a client that sends `x-tee` with every request that this response is not attested. */
const UNSUPPORTED = ['x-tee', 'unsupported'] as const;

/** The id in `/…/{id}/attestation`. */
function idIn(path: string): string | null {
  const id = /^\/.+\/([^/]+)\/attestation$/.exec(withoutQuery(path))?.[1];
  return id === undefined ? null : decodeURIComponent(id);
}

/** OpenTelemetry's name for the endpoint's operation. */
const operationOf = (endpoint: string): Operation =>
  endpoint === '/v1/embeddings' ? 'embeddings' : 'generate_content';

/** Returns the part after `/v1`. Rejects a path that a backend could resolve to a path outside of it. */
function backendPath(url: string): string {
  if (!url.startsWith('/v1/')) throw new Problem('not_found', 'There is nothing here. The API begins at /v1.');
  const rest = url.slice('/v1'.length);
  const path = withoutQuery(rest);
  let decoded: string;
  try {
    decoded = decodeURIComponent(path);
  } catch {
    throw new Problem('invalid_request', 'The path is not valid percent-encoding.');
  }
  if (/(^|[/\\])\.{1,2}([/\\]|$)|[\\\0\r\n]/.test(decoded)) throw new Problem('not_found', 'There is nothing here.');
  return rest;
}

/** Only some endpoints generate an answer. */
function estimateFor(path: string, { estimate }: PassThrough): Estimate {
  const { prompt, output } = estimate ?? { prompt: 0, output: 0 };
  return { prompt, output: output ?? (streamFormOf(`/v1${withoutQuery(path)}`) === null ? 0 : null) };
}

const isJson = (contentType = '') => /^application\/json\b/i.test(contentType);
