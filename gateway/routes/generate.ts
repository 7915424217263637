// POST /v1/chat/completions and /v1/completions: validates, forwards and delivers; with tee, attests.
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { CHAT_ENDPOINT } from '../../proto/attestation/raw.ts';
import type { Backend, Headers, ResponseHead } from '../backend/backend.ts';
import { toBackend } from '../backend/headers.ts';
import { Problem } from '../base/problem.ts';
import { type Exchange, mediaType, type Port, pipeDelivery, relay, type TeeExchange } from '../exchange/relay.ts';
import { openTee, settleTee, type TeeDeps, teeDelivery, teeHeader } from '../exchange/tee.ts';
import { readBody } from '../http/body.ts';
import type { Bindings, Context } from '../http/context.ts';
import { reserveTokens } from '../http/token-budget.ts';
import type { Caller } from '../keys/keys.ts';
import { checkPath } from '../keys/models.ts';
import type { Operation, Outcome, Watch } from '../telemetry/watch.ts';
import type { Endpoint } from '../threads/jobs.ts';
import type { Offload } from '../threads/offload.ts';
import type { UsageBook } from '../usage/usage.ts';

const BACKEND_PATH: Record<Endpoint, string> = { chat: '/chat/completions', completion: '/completions' };
const ENDPOINT: Record<Endpoint, string> = { chat: CHAT_ENDPOINT, completion: '/v1/completions' };
const OPERATION: Record<Endpoint, Operation> = { chat: 'chat', completion: 'text_completion' };

interface GenerateDeps extends TeeDeps {
  readonly backend: Backend;
  readonly offload: Offload;
  readonly book: UsageBook;
}

export function generate(endpoint: Endpoint, deps: GenerateDeps) {
  const { config, backend, offload, book } = deps;
  return async (c: Context): Promise<Response> => {
    const { attested, relayed } = await begin(c);
    c.env.outcome = await (attested ? settleTee(c.env, deps, relayed) : relayed);
    return RESPONSE_ALREADY_SENT;
  };

  /**
   * Sends the request to the backend. Only this function refers to the parsed request, so that without tee a long prompt is not kept during
   * the response.
   */
  async function begin(c: Context): Promise<{ attested: boolean; relayed: Promise<Outcome> }> {
    const { incoming, outgoing, caller, permit, watch } = c.env;
    const path = BACKEND_PATH[endpoint] + query(incoming.url);
    checkPath(caller, 'POST', path, true);
    const reading = readBody(incoming, config.max_body_bytes, permit);
    offload.expect(Number(incoming.headers['content-length'] ?? 0));
    const body = await reading;
    const header = teeHeader(incoming.headers);
    const metering = c.env.budget === undefined ? 'off' : header.tee === null ? 'usage' : 'estimate';
    const parsing = offload.parse(endpoint, body, caller, c.env, metering);
    const generation = parsing instanceof Promise ? await parsing : parsing;
    const { request, forward, choices, stream, model, estimate, usageAsked } = generation;
    const tee = generation.tee ?? header.tee;
    watch.generates(OPERATION[endpoint], model, tee !== null);
    if (stream) permit.stream();
    if (estimate !== null) await reserveTokens(c.env, book, estimate);
    const exchange =
      tee === null
        ? { outgoing, watch }
        : await openTee(c.env, deps, { tee, spliced: header.spliced, endpoint: ENDPOINT[endpoint], request, choices });
    const relayed = relay(
      backend,
      {
        method: 'POST',
        path,
        headers: headersOf(incoming, caller, watch),
        body: forward,
        repeatable: true,
        owner: tee === null ? c.env.owner : null,
        attested: tee !== null,
        model,
      },
      exchange,
      (head, port) => deliver(head, port, exchange, usageAsked),
    );
    return { attested: tee !== null, relayed };
  }

  function headersOf(incoming: Bindings['incoming'], caller: Caller, { trace }: Watch): Headers {
    const headers = {
      ...toBackend(incoming.headers, config.backend_api_key, caller),
      'content-type': 'application/json',
    };
    trace?.toBackend(headers);
    return headers;
  }

  function deliver(head: ResponseHead, port: Port, exchange: Exchange | TeeExchange, usageAsked: boolean) {
    const type = mediaType(head.headers);
    if (head.status === 204 || head.status === 205)
      throw new Problem(
        'backend_bad_response',
        `The backend answered with status ${head.status}, which has no content.`,
      );
    if (type !== 'text/event-stream' && type !== 'application/json')
      throw new Problem('backend_bad_response', 'The backend answered with neither JSON nor an event stream.');
    return 'hold' in exchange
      ? teeDelivery(head, port, exchange, deps)
      : pipeDelivery(head, port, exchange, usageAsked);
  }
}

function query(url = ''): string {
  const at = url.indexOf('?');
  return at < 0 ? '' : url.slice(at);
}
