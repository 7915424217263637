// POST /ohttp: opens a request that is sealed to a key of a recent session, serves it like any other, and seals the response.
// GET /.well-known/ohttp-keys: the public keys that the current session's statement names.
import { randomBytes } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Logger } from 'pino';
import { where } from '../../node/log.ts';
import {
  KEYS_MEDIA_TYPE,
  nonceBytes,
  openRequest,
  REQUEST_MEDIA_TYPE,
  ResponseSealer,
  readRequest,
  readRequestHeader,
  responseKeys,
  SealedError,
} from '../../sealed/index.ts';
import type { Sidecar } from '../attestation/interfaces.ts';
import { noSession, unavailable } from '../attestation/sessions.ts';
import type { GatewayConfig } from '../base/config.ts';
import { MAX_UNOPENED, MAX_UNOPENED_OF_ADDRESS } from '../base/memory-bounds.ts';
import { asProblem, Problem } from '../base/problem.ts';
import { mediaType } from '../exchange/relay.ts';
import { ClientGone, commonHeaders, newId } from '../http/body.ts';
import type { Bindings, Context, Middleware } from '../http/context.ts';
import { OwnerLimit } from '../limits/concurrency.ts';
import { Shares } from '../limits/shares.ts';
import {
  checkDate,
  headOf,
  IncomingChunks,
  type OpenedRequest,
  openedRequest,
  problemOf,
} from '../sealing/opened-request.ts';
import { encryptWith, SealedResponse } from '../sealing/sealed-response.ts';
import type { SealingKeys } from '../sealing/sealing-keys.ts';
import type { Telemetry } from '../telemetry/telemetry.ts';
import { CLIENT_GONE } from '../telemetry/watch.ts';

/** Serves an opened request: the app's `fetch`. */
type Serve = (request: Request, bindings: Bindings) => Response | Promise<Response>;

/** With SEALED=required, rejects requests in the clear. POST /ohttp serves opened requests with `sealed` in their bindings. */
export const sealedOnly: Middleware = (c) => {
  if (c.env.sealed === true) return;
  throw new Problem(
    'sealed_required',
    'This gateway serves only requests that are sealed to its attested key (POST /ohttp): a prompt in the clear could be read on its way.',
  );
};

interface SealedDeps {
  readonly config: GatewayConfig;
  readonly sidecar: Sidecar;
  readonly telemetry: Telemetry;
  readonly log: Logger;
}

export function sealingKeys({
  sidecar,
  sealing,
}: Pick<SealedDeps, 'sidecar'> & { readonly sealing: SealingKeys | null }) {
  return (c: Context): Response => {
    const document = sealing?.published(sidecar.session?.statement ?? null) ?? null;
    if (document !== null) return c.body(new Uint8Array(document), 200, { 'content-type': KEYS_MEDIA_TYPE });
    throw sidecar.hello?.cpu === null ? noSession() : unavailable('No session names the keys of this gateway yet.');
  };
}

/** Limit for the wait for keys, which are there a moment after the sidecar. */
const KEYS_WAIT_MS = 2_000;
/** Limit for decapsulations at once. Each takes a thread for a millisecond, and needs no API key. */
const MAX_OPENING = 64;

export function sealed(deps: SealedDeps, keys: SealingKeys, serve: Serve) {
  const { log, telemetry, config, sidecar } = deps;
  let opening = 0;
  const unopened = new Shares(MAX_UNOPENED);
  const ofAddress = new OwnerLimit(MAX_UNOPENED_OF_ADDRESS, 'sealed requests that are not open yet from one address');

  return async (c: Context): Promise<Response> => {
    const incoming = c.env.incoming as IncomingMessage;
    if (mediaType(incoming.headers) !== REQUEST_MEDIA_TYPE)
      throw new Problem('sealed_malformed', `A sealed request is of type ${REQUEST_MEDIA_TYPE}.`);
    const leaveAddress = ofAddress.acquire(c.env.address);
    const chunks = new IncomingChunks(incoming);
    const share = unopened.open(c.env.address, () => chunks.fail(tooMany()));
    const onOpened = () => {
      leaveAddress();
      share.release();
    };
    try {
      share.acquire(1);
      await exchange(c, chunks, onOpened);
      return RESPONSE_ALREADY_SENT;
    } catch (error) {
      throw problemOf(error);
    } finally {
      onOpened();
      chunks.release();
    }
  };

  /** `onOpened`: from now on the limits of the API key count. */
  async function exchange(c: Context, chunks: IncomingChunks, onOpened: () => void): Promise<void> {
    const { message, response } = await open(c, chunks);
    telemetry.metrics.sealedRequests.inc();
    c.env.outcome = { status: 200 };
    let request: OpenedRequest;
    try {
      const opened = await readRequest(message);
      const head = headOf(opened.head);
      const { client_address_header } = config;
      // Only the proxy in front may set the client's address, and it sets it on the outer request.
      if (client_address_header !== null) {
        delete head.headers[client_address_header];
        const outer = c.env.incoming.headers[client_address_header];
        if (outer !== undefined) head.headers[client_address_header] = outer;
      }
      checkDate(head.headers, Date.now());
      request = await openedRequest(head, opened);
    } catch (error) {
      if (error instanceof ClientGone) throw error;
      return refuse(c, response, asProblem(problemOf(error)));
    }
    onOpened();
    await serveOpened(c, request, response, serve, log);
  }

  /** Opens the first chunk, which shows that the request is for this key. Errors until then are sent in the clear. */
  async function open(c: Context, chunks: IncomingChunks) {
    const header = await readRequestHeader(chunks);
    if (sidecar.hello?.cpu !== null) await keys.ready(KEYS_WAIT_MS);
    const found = keys.find(header);
    if (found === null) throw keyUnknown();
    if (opening >= MAX_OPENING) throw tooMany();
    opening++;
    const opened = await openRequest(header, found.key).finally(() => opening--);
    let first: IteratorResult<Uint8Array, void> = await opened.chunks.next().catch((error: unknown) => {
      // After a restart, the identifier may belong to another key.
      throw error instanceof SealedError && error.code === 'sealed_not_opened' ? keyUnknown() : error;
    });
    const admission = await keys.admit(found, header.enc);
    if (admission === 'ended') throw keyUnknown();
    if (admission === 'replayed')
      throw new Problem('sealed_replayed', 'This sealed request was received before: seal it anew.');
    async function* message() {
      if (first.done !== true) yield first.value;
      // It is not kept while the rest is waited for.
      first = { done: true, value: undefined };
      yield* opened.chunks;
    }
    const secrets = await responseKeys(opened.secret, randomBytes(nonceBytes(opened.secret)));
    const sealer = new ResponseSealer(secrets, encryptWith(secrets.key));
    return { message: message(), response: new SealedResponse(c.env.outgoing, sealer) };
  }
}

/** Passes the opened request to the app. A relayed response is written there, any other one here. */
async function serveOpened(
  c: Context,
  request: OpenedRequest,
  response: SealedResponse,
  serve: Serve,
  log: Logger,
): Promise<void> {
  const { method, url, headers } = request;
  const fetched = new Request(`http://${headers.host}${url}`, { method, headers: headers as Record<string, string> });
  try {
    const bindings = { incoming: request, outgoing: response, sealed: true } as unknown as Bindings;
    const written = await serve(fetched, bindings);
    if (bindings.outcome === CLIENT_GONE) c.env.outcome = CLIENT_GONE;
    if (response.headersSent || response.destroyed) return;
    const body = Buffer.from(await written.arrayBuffer());
    response.writeHead(written.status, { ...Object.fromEntries(written.headers), 'content-length': body.length });
    response.end(method === 'HEAD' ? undefined : body);
  } catch (error) {
    // The app handles its own errors. An error that gets here has no response, and the client must not wait for one.
    log.error({ id: c.env.id, ...where(error) }, 'internal error');
    response.destroy();
  } finally {
    request.destroy();
  }
}

/** The error is sealed too: its message may be about the content. */
function refuse(c: Context, response: SealedResponse, problem: Problem): void {
  c.env.outcome = { status: problem.status, problem };
  const body = JSON.stringify(problem.body);
  const headers = { ...commonHeaders(newId()), ...problem.headers, 'content-type': 'application/json' };
  response.writeHead(problem.status, { ...headers, 'content-length': Buffer.byteLength(body) });
  response.end(body);
}

const tooMany = () => new Problem('overloaded', 'Too many sealed requests are being opened.', { retryAfterSeconds: 1 });

const keyUnknown = () =>
  new Problem(
    'sealed_key_unknown',
    'No key here opens this request. Verify the current session and seal to the keys that it names.',
  );
