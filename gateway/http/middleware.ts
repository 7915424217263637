// Middleware of every route: the exchange's id, the headers of every response, errors, and the log line at the end; then admission: API
// key, concurrency limits, rate.
import { IncomingMessage, ServerResponse } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Logger } from 'pino';
import { where } from '../../node/log.ts';
import { MANY_BYTES } from '../base/bytes.ts';
import { type GatewayConfig, hasKeys } from '../base/config.ts';
import { asProblem, Problem } from '../base/problem.ts';
import { createOwnHosts, hostOf } from '../base/target.ts';
import type { Keys } from '../keys/keys.ts';
import type { Concurrency, ConcurrencyPermit } from '../limits/concurrency.ts';
import { type Allowance, addressOf, createRates, inMemory, type Rates } from '../limits/rates.ts';
import type { Telemetry } from '../telemetry/telemetry.ts';
import { CLIENT_GONE } from '../telemetry/watch.ts';
import { ClientGone, newId, type Outgoing, setCommonHeaders } from './body.ts';
import type { Context, Handler, HttpBindings, Middleware } from './context.ts';
import { linger } from './sliced-connection.ts';

interface AdmissionDeps {
  readonly config: GatewayConfig;
  readonly keys: Keys;
  readonly concurrency: Concurrency;
  readonly rates: Rates;
  readonly telemetry: Telemetry;
  readonly log: Logger;
}

const PREFLIGHT = {
  'access-control-allow-methods': 'GET, POST, DELETE, OPTIONS',
  'access-control-max-age': '86400',
};

/**
 * Wraps the handler of a route. Its middleware runs in order, and each may reject the request. This is one function, because a chain of
 * Hono's middleware costs as much as the rest of the routing. Headers are set on Node's response, so that responses that bypass Hono carry
 * them too.
 */
export function createExchangeMiddleware({
  config,
  telemetry,
  log,
}: Pick<AdmissionDeps, 'config' | 'telemetry' | 'log'>) {
  return (route: string, middleware: readonly Middleware[], handler: Handler) =>
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
        for (const run of middleware) {
          const pending = run(c);
          if (pending !== undefined) await pending;
        }
        response = await handler(c);
        // A relayed response has an outcome by now. Any other one would be written to nobody.
        if (response !== RESPONSE_ALREADY_SENT && outgoing.destroyed) response = clientGone(c);
      } catch (error) {
        response = errorResponse(error, c);
      }
      telemetry.end(c.env, watch, route, response);
      return response;
    };

  /** Turns every error into a response. */
  function errorResponse(error: unknown, c: Context): Response {
    const { outgoing } = c.env;
    if (error instanceof ClientGone || outgoing.destroyed) return clientGone(c);
    const problem = asProblem(error);
    // An error's message can quote the request; its location in the code cannot.
    if (problem.code === 'internal_error') log.error({ id: c.env.id, ...where(error) }, 'internal error');
    if (outgoing.headersSent) {
      c.env.outcome = { status: outgoing.statusCode, problem };
      outgoing.destroy();
      return RESPONSE_ALREADY_SENT;
    }
    c.env.outcome = { status: problem.status, problem };
    const headers = { ...problem.headers, 'content-type': 'application/json' };
    const body = Buffer.from(JSON.stringify(problem.body));
    // Hono serves HEAD by the handler of GET, and sends that response itself.
    if (c.env.incoming.method === 'HEAD') return new Response(body, { status: problem.status, headers });
    // Node's response is cheaper than a Fetch response: rejecting a request must cost less than serving one.
    outgoing.writeHead(problem.status, { ...headers, 'content-length': body.length });
    outgoing.end(body);
    return RESPONSE_ALREADY_SENT;
  }
}

function clientGone(c: Context): Response {
  c.env.outcome = CLIENT_GONE;
  return RESPONSE_ALREADY_SENT;
}

/** Closes the connection of a client that reads nothing: no byte has moved for `stall_ms`, although some wait to be sent. */
function endWhenStalled(outgoing: Outgoing, stall_ms: number): void {
  outgoing.setTimeout(stall_ms, () => {
    if (outgoing.writableLength > 0 || (outgoing.socket?.writableLength ?? 0) > 0) outgoing.destroy();
  });
}

/** Responds to CORS preflight. Any header is allowed: clients add their own, and a fixed list would break the next one. */
export function preflight(c: Context): Response {
  const headers = c.req.header('access-control-request-headers');
  return c.body(null, 204, {
    ...PREFLIGHT,
    'access-control-allow-headers': headers ?? 'authorization, content-type, x-tee',
  });
}

// Admission: API key, concurrency limits, rate. It runs before the body is read, except for the limit on all requests in total, which
// counts a request once it has arrived.

/** Finds the caller by the API key. */
export function authenticated({ keys }: Pick<AdmissionDeps, 'keys'>): Middleware {
  return (c) => {
    const caller = keys.authenticate(c.env.incoming.headers);
    c.env.caller = caller;
    c.env.owner = caller.owner;
  };
}

/** For routes without a body, whose request is complete with its head. @throws {Problem} overloaded */
export const withoutBody: Middleware = (c) => c.env.permit.received();

function mayHold(permit: ConcurrencyPermit, bytes: number): boolean {
  try {
    permit.hold(bytes);
    return true;
  } catch {
    return false;
  }
}

/**
 * Rejects a request past a limit at once, so that accepted requests are served. It is synchronous unless a rate applies.
 */
export function limitedByKey({ concurrency, rates, telemetry }: AdmissionDeps): Middleware {
  return (c) => {
    const { outgoing } = c.env;
    const caller = c.env.caller;
    const permit = concurrency.acquire(caller);
    c.env.permit = permit;
    if (telemetry.counts) c.env.watch.hold = (bytes) => mayHold(permit, bytes);
    outgoing.once('close', () => permit.release());
    const per_second = caller.limits.rps ?? 0;
    if (per_second === 0) return;
    return rates.take(`key:${caller.name}`, per_second).then((allowance) => admit(c, allowance, 'this API key'));
  };
}

/** The verify endpoint needs no API key, so each client address has a rate. The verifier shares its capacity among addresses too. */
export function limitedVerification({ config, rates }: AdmissionDeps): Middleware {
  return async (c) => {
    const { incoming, outgoing } = c.env;
    const address = addressOf(incoming.headers, outgoing.socket, config.client_address_header);
    c.env.address = address;
    closeWithoutDraining(c.env);
    if (config.max_verify_per_second > 0)
      admit(c, await rates.take(`verify:${address}`, config.max_verify_per_second), 'verifications from one address');
    // `close` was emitted during the wait above, and is not emitted again.
    if (outgoing.destroyed) throw new ClientGone('the client left before its turn');
  };
}

/** Requests of one kind without an API key from one address in a second. Opening a sealed one takes a millisecond. */
const MAX_KEYLESS_PER_SECOND = 200;

/** Limits requests whose API key is not known yet, or needs none, by the client's address. They are counted in this process. */
export function limitedByAddress({ config }: Pick<AdmissionDeps, 'config'>, subject: string): Middleware {
  const rates = createRates(inMemory);
  return async (c) => {
    const { incoming, outgoing } = c.env;
    const address = addressOf(incoming.headers, outgoing.socket, config.client_address_header);
    c.env.address = address;
    admit(c, await rates.take(address, MAX_KEYLESS_PER_SECOND), `${subject} from one address`);
  };
}

/** Closes the connection after the response if a large body has not arrived by then. Reading the rest of it would delay other requests. */
function closeWithoutDraining({ incoming, outgoing }: HttpBindings): void {
  const { socket } = outgoing;
  if (!(incoming instanceof IncomingMessage) || !(outgoing instanceof ServerResponse) || socket === null) return;
  if (Number(incoming.headers['content-length'] ?? Number.POSITIVE_INFINITY) <= MANY_BYTES) return;
  outgoing.once('finish', () => {
    if (!incoming.complete) linger(socket);
  });
}

/** Sets the rate limit headers that OpenAI's clients read. @throws {Problem} rate_limit_exceeded */
function admit(c: Context, { allowed, limit, remaining, reset_ms }: Allowance, subject: string): void {
  const { outgoing } = c.env;
  outgoing.setHeader('x-ratelimit-limit-requests', String(limit));
  outgoing.setHeader('x-ratelimit-remaining-requests', String(remaining));
  outgoing.setHeader('x-ratelimit-reset-requests', `${Math.ceil(reset_ms)}ms`);
  if (!allowed)
    throw new Problem('rate_limit_exceeded', `The rate limit is ${limit} requests a second for ${subject}.`, {
      retryAfterSeconds: reset_ms / 1000,
    });
}

const EXPOSED =
  'x-request-id, x-attestation-id, x-tee, x-tee-batch, retry-after, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens';
const LOOPBACK_ORIGIN = /^https?:\/\/(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/;

/** By default every origin is allowed where API keys are required, and only this machine's origins where none are. */
function allows(config: GatewayConfig, origin: string, host: string | undefined): boolean {
  const { cors_origins } = config;
  const keys = hasKeys(config);
  if (cors_origins === null) return keys || LOOPBACK_ORIGIN.test(origin);
  // The gateway's own page is allowed too, but only with API keys: without them the host header proves nothing.
  return cors_origins.includes('*') || cors_origins.includes(origin) || (keys && hostOf(origin) === host);
}

/**
 * Whether a page of another site asks without `Origin`, as for an image (Fetch Metadata). A link or a frame may still show the gateway's
 * documents, which lie outside /v1.
 */
function isHidden(c: Context): boolean {
  const { 'sec-fetch-site': site, 'sec-fetch-mode': mode } = c.env.incoming.headers;
  if (site !== 'cross-site' && site !== 'same-site') return false;
  return mode !== 'navigate' || c.req.path.startsWith('/v1');
}

/** CORS (Fetch §3.3). Rejects a page that is not allowed with 403 `origin_not_allowed`, before anything else is done. */
export function origins({ config }: AdmissionDeps): Middleware {
  const ownHost = hasKeys(config) ? () => true : createOwnHosts(config.cors_origins);
  const anyPage = hasKeys(config) || config.cors_origins?.includes('*') === true;
  return (c) => {
    const { incoming, outgoing } = c.env;
    const { origin, host } = incoming.headers;
    outgoing.setHeader('vary', 'origin');
    if (!ownHost(host))
      throw new Problem(
        'origin_not_allowed',
        'Without API keys this gateway has no such name (CORS_ORIGINS names more).',
      );
    if (origin === undefined ? !anyPage && isHidden(c) : !allows(config, origin, host))
      throw new Problem('origin_not_allowed', 'Web pages of this origin may not use this gateway (CORS_ORIGINS).');
    if (origin !== undefined) {
      outgoing.setHeader('access-control-allow-origin', origin);
      outgoing.setHeader('access-control-expose-headers', EXPOSED);
    }
  };
}
