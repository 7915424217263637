// POST /v1/chat/completions and /v1/completions: validates, forwards and delivers; with tee, attests.
import { hash } from 'node:crypto';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { BatchGroup } from '../../proto/frames.ts';
import type { Headers, ResponseHead } from '../backend/backend.ts';
import { headerLines, toBackend } from '../backend/headers.ts';
import { type Exchange, mediaType, type Port, pipeDelivery, relay, type TeeExchange } from '../exchange/relay.ts';
import { streamDelivery } from '../exchange/stream.ts';
import { wholeDelivery } from '../exchange/whole.ts';
import type { Bindings, Context, Deps } from '../http/context.ts';
import { SerializedHeaders } from '../http/outgoing.ts';
import { Problem } from '../http/problem.ts';
import { readBody } from '../http/request.ts';
import type { Owner } from '../keys/keys.ts';
import { TEE_COPIES } from '../limits/bounds.ts';
import { type Endpoint, sessionHeader, type Tee, teeHeader } from '../offload/jobs.ts';
import type { Operation, Outcome, Watch } from '../telemetry/telemetry.ts';

const BACKEND_PATH: Record<Endpoint, string> = { chat: '/chat/completions', completion: '/completions' };
const OPERATION: Record<Endpoint, Operation> = { chat: 'chat', completion: 'text_completion' };

export function generate(endpoint: Endpoint, deps: Deps) {
  const { config, backend, sidecar, store, offload, attestor } = deps;
  return async (c: Context): Promise<Response> => {
    const { id, owner } = c.env;
    const { tee, relayed } = await begin(c);
    try {
      const outcome = await relayed;
      c.env.outcome = outcome;
      if (tee !== null && outcome.tee !== 'attested') store.drop(owner, id);
    } catch (error) {
      if (tee !== null) store.drop(owner, id);
      throw error;
    }
    return RESPONSE_ALREADY_SENT;
  };

  /**
   * Sends the request to the backend. The parsed request ends with this function, so that without tee a long prompt is not kept while the
   * response runs.
   */
  async function begin(c: Context): Promise<{ tee: Tee | null; relayed: Promise<Outcome> }> {
    const { incoming, outgoing } = c.env;
    const permit = c.env.permit;
    const reading = readBody(incoming, config.max_body_bytes, permit);
    if (reading instanceof Promise) offload.expect(Number(incoming.headers['content-length'] ?? 0));
    const body = reading instanceof Promise ? await reading : reading;
    const parsing = offload.parse(endpoint, body, c.env.caller, c.env);
    const generation = parsing instanceof Promise ? await parsing : parsing;
    const { request, forward, choices, stream, model } = generation;
    const tee = generation.tee ?? teeHeader(incoming.headers);
    const watch = c.env.watch;
    watch.generates(OPERATION[endpoint], model, tee !== null);
    if (stream) await permit.stream();
    if (tee !== null) {
      await permit.tee();
      permit.hold((TEE_COPIES - 1) * body.length);
    }
    const { id, owner } = c.env;
    const hold = (chunk: Buffer) => permit.hold(TEE_COPIES * chunk.length);
    // Without tee the request is not kept while its response runs.
    const session = sessionHeader(incoming.headers);
    const batch = tee === 'batch' ? groupOf(owner) : null;
    const exchange =
      tee === null ? { outgoing, watch } : { id, owner, request, session, batch, choices, outgoing, watch, hold };
    if (tee !== null) {
      await sidecar.ready(config.sidecar_wait_ms);
      outgoing.setHeader('x-attestation-id', id);
      store.begin(owner, id);
    }
    const relayed = relay(
      backend,
      {
        method: 'POST',
        path: BACKEND_PATH[endpoint] + query(incoming.url),
        headers: headersOf(incoming, watch),
        body: forward,
        repeatable: true,
        owner: tee === null ? owner : null,
      },
      exchange,
      (head, port) => deliver(head, port, exchange),
    );
    return { tee, relayed };
  }

  /** Whose answers may share a nonce with one of `owner`; null: nobody's. */
  function groupOf(owner: Owner): BatchGroup | null {
    if (config.batch === 'off') return null;
    return config.batch_per_key ? (hash('sha256', `batch ${owner}`) as BatchGroup) : 'all';
  }

  /** Header lines are cached for a client that sends the same head each time. The lines of a trace always differ. */
  function headersOf(incoming: Bindings['incoming'], { trace }: Watch): Headers | SerializedHeaders {
    const cache = trace === null && 'made' in incoming ? incoming.made : null;
    if (cache !== null && cache.toBackend !== null) return cache.toBackend;
    const headers = { ...toBackend(incoming.headers, config.backend_api_key), 'content-type': 'application/json' };
    trace?.toBackend(headers);
    if (cache === null) return headers;
    cache.toBackend = new SerializedHeaders(headerLines(headers));
    return cache.toBackend;
  }

  function deliver(head: ResponseHead, port: Port, exchange: Exchange | TeeExchange) {
    const type = mediaType(head.headers);
    const encoded = head.headers['content-encoding'];
    if (head.status === 204 || head.status === 205)
      throw new Problem(
        'backend_bad_response',
        `The backend answered with status ${head.status}, which has no content.`,
      );
    if (type !== 'text/event-stream' && type !== 'application/json')
      throw new Problem('backend_bad_response', 'The backend answered with neither JSON nor an event stream.');
    if (!('hold' in exchange)) return pipeDelivery(head, port, exchange);
    if (encoded !== undefined && encoded !== 'identity')
      throw new Problem('backend_bad_response', 'The backend compressed an answer that is to be attested.');
    const make = type === 'text/event-stream' ? streamDelivery : wholeDelivery;
    return make(head, port, exchange, attestor, config.max_answer_bytes);
  }
}

function query(url = ''): string {
  const at = url.indexOf('?');
  return at < 0 ? '' : url.slice(at);
}
