// An HTTP server for the programs of this machine: decides who may use it, and writes responses of Fetch to those of Node.
import { createHash, timingSafeEqual } from 'node:crypto';
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { streamFormOf } from '../../proto/stream/forms.ts';

interface LoopbackOptions {
  /** 0: any that is free. */
  readonly port: number;
  /** The key that clients must send as their API key. */
  readonly token: string;
  /** Origins of the web pages that may use the server, as browsers send them; other pages are refused. */
  readonly origins: readonly string[];
  /** Serves an admitted request. `path` begins with `/v1/` and includes the query. */
  readonly serve: (path: string, init: RequestInit & { readonly headers: Headers }) => Promise<Response>;
}

export interface Loopback {
  /** `http://127.0.0.1:PORT` */
  readonly url: string;
  /** Ends running requests, too. */
  close(): Promise<void>;
}

/** The largest body: twice what a gateway takes by default. */
const MAX_BODY_BYTES = 32 * 1024 * 1024;
/** Limit for concurrent requests: each may hold a body and a response. */
const MAX_REQUESTS = 64;
const MAX_CONNECTIONS = 4 * MAX_REQUESTS;
const HOST = '127.0.0.1';
/** Headers of a connection or of this hop, of browsers, or written anew. */
const NOT_FORWARDED = new Set([
  ...['accept-encoding', 'authorization', 'connection', 'content-length', 'cookie', 'expect', 'host', 'keep-alive'],
  ...['origin', 'proxy-authorization', 'proxy-connection', 'referer', 'te', 'trailer', 'transfer-encoding', 'upgrade'],
  ...['x-api-key', 'x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto', 'forwarded'],
]);
const NOT_RETURNED = new Set(['connection', 'content-encoding', 'content-length', 'keep-alive', 'transfer-encoding']);

/** A request that is not served. The message is for its user. */
class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** @throws what `listen` throws: EADDRINUSE, EACCES. */
export async function startLoopback({ port, token, origins, serve }: LoopbackOptions): Promise<Loopback> {
  const isToken = tokenCheck(token);
  let running = 0;
  const server = createServer((request, response) => {
    handle(request, response).catch((error: unknown) => fail(response, error));
  });
  server.maxConnections = MAX_CONNECTIONS;
  const listening = await listen(server, port);

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    admitHost(request.headers.host, listening);
    const { origin } = request.headers;
    if (origin !== undefined) {
      if (!origins.includes(origin))
        throw new Refusal(
          403,
          'origin_not_allowed',
          'Pages of this origin may not use the proxy: --allow-origin names those that may.',
        );
      response.setHeader('access-control-allow-origin', origin);
      response.setHeader('access-control-expose-headers', '*');
      response.setHeader('vary', 'origin');
    }
    if (request.method === 'OPTIONS') return preflight(request, response);
    if (!isToken(keyIn(request.headers)))
      throw new Refusal(
        401,
        'invalid_api_key',
        "The API key is not the proxy's own key, which it printed at its start.",
      );
    const path = request.url ?? '';
    if (!/^\/v1\/[!-~]*$/.test(path))
      throw new Refusal(
        404,
        'not_found',
        'The proxy serves what is under /v1/: let the base URL of your client end in /v1.',
      );
    if (running >= MAX_REQUESTS)
      throw new Refusal(503, 'overloaded', `The proxy serves ${MAX_REQUESTS} requests at once.`);
    running++;
    try {
      await exchange(path, request, response);
    } finally {
      running--;
    }
  }

  async function exchange(path: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const cancelling = new AbortController();
    response.once('close', () => cancelling.abort());
    const body = await bodyOf(request);
    const init = { method: request.method ?? 'GET', headers: forwarded(request.headers), signal: cancelling.signal };
    const bodied = body === null || init.method === 'GET' || init.method === 'HEAD' ? init : { ...init, body };
    const answer = await serve(path, bodied);
    await deliver(answer, path, response);
  }

  return {
    url: `http://${HOST}:${listening}`,
    close() {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(() => resolve()));
    },
  };
}

function listen(server: Server, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, HOST, () => {
      server.off('error', reject);
      resolve((server.address() as AddressInfo).port);
    });
  });
}

/** Compares digests in constant time. */
function tokenCheck(token: string): (given: string | undefined) => boolean {
  const digestOf = (text: string) => createHash('sha256').update(text).digest();
  const expected = digestOf(token);
  return (given) => given !== undefined && timingSafeEqual(digestOf(given), expected);
}

/**
 * Refuses other host names: the owner of one can point it at this machine (DNS rebinding), and a page of that name sends no `Origin`.
 * @throws {Refusal} host_not_allowed
 */
function admitHost(host: string | undefined, port: number): void {
  const names = [`${HOST}:${port}`, `localhost:${port}`, ...(port === 80 ? [HOST, 'localhost'] : [])];
  if (host === undefined || !names.includes(host.toLowerCase()))
    throw new Refusal(403, 'host_not_allowed', `The proxy serves ${names.slice(0, 2).join(' and ')} alone.`);
}

/** `Authorization: Bearer KEY`, or `x-api-key: KEY` as Anthropic's clients send it. */
function keyIn({ authorization, 'x-api-key': key }: IncomingHttpHeaders): string | undefined {
  const bearer = authorization === undefined ? undefined : /^Bearer +(\S+) *$/i.exec(authorization)?.[1];
  return bearer ?? (typeof key === 'string' ? key : undefined);
}

function preflight(request: IncomingMessage, response: ServerResponse): void {
  response
    .writeHead(204, {
      'access-control-allow-methods': 'GET, POST, DELETE, OPTIONS',
      'access-control-allow-headers':
        request.headers['access-control-request-headers'] ?? 'authorization, content-type',
      'access-control-max-age': '600',
    })
    .end();
}

function forwarded(headers: IncomingHttpHeaders): Headers {
  const sent = new Headers();
  for (const [name, value] of Object.entries(headers))
    if (value !== undefined && !NOT_FORWARDED.has(name) && !name.startsWith('sec-'))
      sent.set(name, [value].flat().join(', '));
  return sent;
}

/** null: there is none. @throws {Refusal} body_too_large */
async function bodyOf(request: IncomingMessage): Promise<Uint8Array<ArrayBuffer> | null> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request) {
    length += (chunk as Buffer).length;
    // The rest of a large body is read and dropped: a client that is cut off loses its response.
    if (length <= MAX_BODY_BYTES) chunks.push(chunk as Buffer);
    else if (length > 2 * MAX_BODY_BYTES) break;
    else chunks.length = 0;
  }
  if (length > MAX_BODY_BYTES)
    throw new Refusal(413, 'body_too_large', `The body is larger than ${MAX_BODY_BYTES} bytes.`);
  return length === 0 ? null : new Uint8Array(Buffer.concat(chunks));
}

/** Writes the response as it comes. A response that breaks off never ends as if it were whole. */
async function deliver(answer: Response, path: string, response: ServerResponse): Promise<void> {
  const headers = [...answer.headers].filter(([name]) => !NOT_RETURNED.has(name));
  response.writeHead(answer.status, Object.fromEntries(headers));
  // The client gets the head before the first byte of the body.
  response.flushHeaders();
  const reader = answer.body?.getReader();
  try {
    for (let next = await reader?.read(); next !== undefined && !next.done; next = await reader?.read())
      if (!response.write(next.value)) await drained(response);
    response.end();
  } catch (error) {
    if (response.destroyed) return;
    const isStream = answer.headers.get('content-type')?.startsWith('text/event-stream') === true;
    if (!isStream) response.destroy();
    else response.write(errorEvent(path, error), () => response.destroy());
  }
}

const drained = (response: ServerResponse): Promise<void> =>
  new Promise((resolve) => {
    const done = () => {
      response.off('drain', done).off('close', done);
      resolve();
    };
    response.on('drain', done).on('close', done);
    if (response.destroyed) done();
  });

/** The error in the form of the endpoint's streams, so that its clients throw an error of their own. */
function errorEvent(path: string, error: unknown): string {
  const body = errorBody(error);
  const form = streamFormOf(path.split('?', 1)[0] ?? '');
  if (form === 'completion' || form === null) return `data: ${JSON.stringify(body)}\n\n`;
  const { code, message, param } = body.error;
  return `event: error\ndata: ${JSON.stringify({ type: 'error', code, message, param, ...body })}\n\n`;
}

function fail(response: ServerResponse, error: unknown): void {
  if (response.destroyed || response.headersSent) return void response.destroy();
  const status = error instanceof Refusal ? error.status : 502;
  response.writeHead(status, {
    'content-type': 'application/json',
    ...(status === 413 ? { connection: 'close' } : {}),
  });
  response.end(JSON.stringify(errorBody(error)));
}

/** Errors of this program have fixed messages; those of the network may contain anything, and are replaced. */
function errorBody(error: unknown) {
  const known = error instanceof Error && 'code' in error && typeof error.code === 'string' && KNOWN.has(error.name);
  const [code, message] = known
    ? [String(error.code), error.message]
    : ['gateway_unreachable', 'The gateway cannot be reached, or its answer broke off.'];
  const type = error instanceof Refusal ? typeOf(error.status) : known ? 'unproven_answer' : 'server_error';
  return { error: { message, type, param: null, code } };
}

const KNOWN = new Set(['Refusal', 'UnprovenAnswerError', 'SealedFetchError']);

function typeOf(status: number): string {
  if (status === 401) return 'authentication_error';
  if (status === 403) return 'permission_error';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}
