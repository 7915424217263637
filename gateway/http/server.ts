// The HTTP server: its limits, and the checks of a request before it reaches a route.
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerOptions,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import { createServer as createTlsServer, Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { getRequestListener, RequestError } from '@hono/node-server';
import type { Logger } from 'pino';
import { where } from '../../node/log.ts';
import { MAX_UNSERVED_BYTES } from '../base/memory-bounds.ts';
import { asProblem, Problem } from '../base/problem.ts';
import { isHost, originForm } from '../base/target.ts';
import { commonHeaders, newId } from './body.ts';
import { linger, type SlicedConnection, sliceConnections } from './sliced-connection.ts';
import type { Credentials } from './tls.ts';

interface HttpOptions {
  /** Time from a connection's first byte to the end of its request's headers. */
  readonly headers_timeout_ms: number;
  /** Time for the whole request, body included. */
  readonly request_timeout_ms: number;
  /** Connections of this process. A further one is closed when it opens. */
  readonly max_connections: number;
  /** null: plain HTTP. */
  readonly tls: Credentials | null;
}

/** The size of the request line and headers. */
export const MAX_HEADER_BYTES = 32 * 1024;
export const MAX_HEADERS = 1_000;
const KEEP_ALIVE_MS = 75_000;
const CHECK_MS = 5_000;

type Fetch = Parameters<typeof getRequestListener>[0];

/** The latest exchange of a connection. */
interface Exchange {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  /** Bytes read from the connection when this request began. Two requests with the same value arrived in one read. */
  readonly bytes_read: number;
}

/**
 * Creates a server that does not listen yet. Requests that the server itself rejects get OpenAI's error shape and a log line.
 * A request that begins while the response to the one before it is not complete is not served: the response is completed, and the
 * connection ends.
 */
export function createHttpServer(fetch: Fetch, options: HttpOptions, log: Logger): Server {
  const serverOptions = serverOptionsOf(options);
  const route = getRequestListener(fetch, {
    hostname: 'localhost',
    errorHandler: (error) => unexpectedError(error, log),
  });
  const latest = new WeakMap<Duplex, Exchange>();
  /** Connections that take no further request. */
  const ending = new WeakSet<Duplex>();
  const running = (socket: Duplex): Exchange | null => {
    const exchange = latest.get(socket);
    return exchange === undefined || exchange.outgoing.writableEnded ? null : exchange;
  };
  /** Completes the response in progress, and reads nothing until then. */
  const endAfter = (socket: Duplex, { outgoing }: Exchange): void => {
    if (ending.has(socket)) return;
    ending.add(socket);
    (socket as SlicedConnection).stop();
    if (outgoing.writableFinished) linger(socket);
    else outgoing.once('finish', () => linger(socket));
  };
  /** Calls `serve`, unless another response is in progress. */
  const take = (incoming: IncomingMessage, outgoing: ServerResponse, serve: () => void): void => {
    const { socket } = incoming;
    const bytes_read = socket.bytesRead;
    const before = latest.get(socket);
    const isBehind = before !== undefined && (running(socket) !== null || before.bytes_read === bytes_read);
    if (isBehind || ending.has(socket)) unserved.behind(socket);
    if (isBehind) return endAfter(socket, before);
    if (ending.has(socket)) return;
    latest.set(socket, { incoming, outgoing, bytes_read });
    unserved.served(socket);
    outgoing.once('close', () => unserved.served(socket));
    serve();
  };
  const refuseLast = (incoming: IncomingMessage, outgoing: ServerResponse, fault: Problem): void => {
    ending.add(incoming.socket);
    refuse(incoming, outgoing, fault, log);
  };
  const listener = (incoming: IncomingMessage, outgoing: ServerResponse) =>
    take(incoming, outgoing, () => {
      const fault = faultOf(incoming);
      if (fault !== null) return refuseLast(incoming, outgoing, fault);
      // Upgrades are not served, and Node reads nothing after such a request, perhaps not even its body.
      if (incoming.headers.upgrade !== undefined) outgoing.setHeader('connection', 'close');
      void route(incoming, outgoing);
    });
  const server =
    options.tls === null
      ? createServer(serverOptions, listener)
      : createTlsServer({ ...serverOptions, ...options.tls, handshakeTimeout: options.headers_timeout_ms }, listener);
  const unserved = limitUnserved(
    server,
    (socket) => running(socket) !== null || latest.get(socket)?.incoming.complete === false,
  );
  sliceConnections(server);
  // Node drops headers above this number silently. Twice our limit lets `faultOf` see that there are too many.
  server.maxHeadersCount = 2 * MAX_HEADERS;
  server.maxConnections = options.max_connections;
  server.on('checkContinue', (incoming: IncomingMessage, outgoing: ServerResponse) => {
    if (running(incoming.socket) === null && !ending.has(incoming.socket)) outgoing.writeContinue();
    server.emit('request', incoming, outgoing);
  });
  server.on('checkExpectation', (incoming: IncomingMessage, outgoing: ServerResponse) =>
    take(incoming, outgoing, () =>
      refuseLast(incoming, outgoing, new Problem('expectation_failed', 'Only "expect: 100-continue" can be met.')),
    ),
  );
  server.on('connect', (_incoming: IncomingMessage, socket: Duplex) => {
    // Node no longer listens for errors, `drain` and `timeout` here, so a response in progress could neither fail nor end.
    if (running(socket) !== null) return void socket.destroy();
    refuseOnSocket(socket, new Problem('method_not_allowed', 'This is no proxy.'), log);
  });
  /** Timers run before pending bytes are read. A request that came while the process was busy gets its response, or 408. */
  const endSilent = (socket: Socket): void => {
    if (socket.bytesRead === 0) return void socket.destroy();
    if (latest.has(socket) || ending.has(socket)) return;
    ending.add(socket);
    refuseOnSocket(socket, new Problem('request_timeout', 'The request did not arrive in time.'), log);
  };
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    if (ending.has(socket)) return;
    const before = latest.get(socket);
    // Node reports failed TLS handshakes and broken connections here too, and those that never brought a byte.
    const silent = before === undefined && (socket as Socket).bytesRead === 0;
    if (silent && error.code === 'ERR_HTTP_REQUEST_TIMEOUT') return void setImmediate(endSilent, socket as Socket);
    if (silent || !/^(HPE|ERR_HTTP)_/.test(error.code ?? '')) return void socket.destroy();
    // The next request cannot be read.
    if (before?.incoming.complete && running(socket) !== null) return endAfter(socket, before);
    ending.add(socket);
    // The body of the request before cannot be read, and the response to it has begun: no other can be sent.
    if (before?.incoming.complete === false && before.outgoing.headersSent)
      return before.outgoing.writableEnded ? linger(socket) : void socket.destroy();
    // The client left in the middle of a request. If it had come to a route, its log line says so.
    if (error.code === 'HPE_INVALID_EOF_STATE') return void socket.destroy();
    refuseOnSocket(socket, problemOf(error), log);
  });
  return server;
}

const serverOptionsOf = ({ headers_timeout_ms, request_timeout_ms }: HttpOptions): ServerOptions => ({
  maxHeaderSize: MAX_HEADER_BYTES,
  headersTimeout: headers_timeout_ms,
  requestTimeout: request_timeout_ms,
  connectionsCheckingInterval: Math.min(CHECK_MS, Math.ceil(headers_timeout_ms / 3)),
  keepAliveTimeout: KEEP_ALIVE_MS,
  // Node would respond without a body; `faultOf` responds with an error message.
  requireHostHeader: false,
  insecureHTTPParser: false,
});

/**
 * Returns the fault of a request that the parser accepted, or null. Rewrites its target to the form that routes know.
 * Rejects a request if two parsers could disagree about its end or its host (RFC 9112 §3.2, §6.1).
 */
function faultOf(incoming: IncomingMessage): Problem | null {
  if (incoming.httpVersion !== '1.1' && incoming.httpVersion !== '1.0')
    return new Problem('http_version_not_supported', 'HTTP/1.1 and HTTP/1.0 are spoken here.');
  const http11 = incoming.httpVersion === '1.1';
  let hosts = 0;
  for (let i = 0; i < incoming.rawHeaders.length; i += 2)
    if (incoming.rawHeaders[i]?.length === 4 && incoming.rawHeaders[i]?.toLowerCase() === 'host') hosts++;
  const { host, 'transfer-encoding': coding } = incoming.headers;
  if (incoming.rawHeaders.length > 2 * MAX_HEADERS)
    return new Problem('headers_too_large', `The request has more than ${MAX_HEADERS} headers.`);
  if (hosts > 1 || (hosts === 0 && http11)) return new Problem('invalid_request', 'Send one host header.');
  if (host !== undefined && !isHost(host)) return new Problem('invalid_request', 'The host header names no host.');
  if (coding !== undefined && (!http11 || coding.toLowerCase() !== 'chunked'))
    return new Problem('invalid_request', 'The only transfer-encoding here is chunked, in HTTP/1.1.');
  const target = originForm(incoming.method ?? 'GET', incoming.url ?? '');
  if (target === null) return new Problem('invalid_request', 'The request target is not valid.');
  incoming.url = target;
  return null;
}

function problemOf(error: NodeJS.ErrnoException): Problem {
  switch (error.code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new Problem('request_timeout', 'The request did not arrive in time.');
    case 'HPE_HEADER_OVERFLOW':
      return new Problem('headers_too_large', `The request's headers are larger than ${MAX_HEADER_BYTES} bytes.`);
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return new Problem('body_too_large', 'The chunk extensions of the request body are too large.');
    default:
      return new Problem('invalid_request', 'The request is not valid HTTP.');
  }
}

// Rejects requests that never reach a route, with the same shape, headers and log line as every other response.

/** Sends an error response to a request that Node has parsed. The connection ends with it. */
function refuse(incoming: IncomingMessage, outgoing: ServerResponse, problem: Problem, log: Logger): void {
  const id = newId();
  const body = JSON.stringify(problem.body);
  outgoing.setHeader('connection', 'close');
  outgoing.writeHead(problem.status, { ...commonHeaders(id), ...problem.headers, ...entity(body) }).end(body);
  // The body has no reader, so it is discarded.
  incoming.resume();
  log.info({ id, method: incoming.method, route: null, status: problem.status, code: problem.code });
}

/** Sends an error response on a connection whose request could not be parsed, and ends the connection. */
function refuseOnSocket(socket: Duplex, problem: Problem, log: Logger): void {
  const id = newId();
  const body = JSON.stringify(problem.body);
  const headers = { ...commonHeaders(id), ...problem.headers, ...entity(body), connection: 'close' };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.on('error', () => socket.destroy());
  socket.write(`HTTP/1.1 ${problem.status} ${STATUS_CODES[problem.status]}\r\n${lines.join('')}\r\n${body}`);
  linger(socket);
  log.info({ id, route: null, status: problem.status, code: problem.code });
}

function entity(body: string) {
  return { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)) };
}

/** Responds to an error that no route and no middleware caught, such as a rejection by Hono's adaptor. */
function unexpectedError(error: unknown, log: Logger): Response {
  const refused = error instanceof RequestError;
  if (!refused) log.error(where(error), 'internal error');
  const problem = refused ? new Problem('invalid_request', 'The request target is not valid.') : asProblem(error);
  return new Response(JSON.stringify(problem.body), {
    status: problem.status,
    headers: { ...commonHeaders(newId()), 'content-type': 'application/json' },
  });
}

// Draining: the server accepts nothing new, and each connection ends after its current response.

interface Drain {
  /** Responses in progress. */
  readonly running: number;
  /** Resolves true when every response is out, or false after `drain_ms`; the rest may then be cut. */
  begin(drain_ms: number): Promise<boolean>;
}

/** Call this before the server listens, so that it sees every request. */
export function createDrain(server: Server): Drain {
  const running = new Set<ServerResponse>();
  let draining = false;

  function closeAfter(outgoing: ServerResponse): void {
    // Headers that are sent may promise to keep the connection open.
    if (outgoing.headersSent) outgoing.once('finish', () => outgoing.req.socket.end());
    else outgoing.setHeader('connection', 'close');
  }

  server.prependListener('request', (_incoming: IncomingMessage, outgoing: ServerResponse) => {
    running.add(outgoing);
    outgoing.once('close', () => running.delete(outgoing));
    if (draining) closeAfter(outgoing);
  });

  return {
    get running() {
      return running.size;
    },
    begin(drain_ms) {
      draining = true;
      return new Promise((resolve) => {
        const timer = setTimeout(() => resolve(false), drain_ms);
        server.close(() => {
          clearTimeout(timer);
          resolve(true);
        });
        for (const outgoing of running) closeAfter(outgoing);
        server.closeIdleConnections();
      });
    },
  };
}

// Limits for input that is not served, and that Node keeps: heads that have not ended, and requests that came behind another. All
// connections share them, because nobody is authenticated yet.

/** What Node keeps of a head: each name and value is a string of its own. */
const HEAD_COST = 4;
/** What Node keeps of a request that came behind another. */
const REQUEST_BYTES = 1_500;
/** How often heads are counted. Until then, a fast network brings some 100 MB. */
const COUNT_MS = 100;

interface Input {
  /** Bytes of requests that were served. */
  served_bytes: number;
  /** Requests that came behind another. */
  behind: number;
}

interface Unserved {
  /** All that has been read on this connection belongs to requests that are served. */
  served(socket: Socket): void;
  /** A request came behind another. Closes the connection where there are too many of them. */
  behind(socket: Socket): void;
}

/** `isServing`: what the connection brings is the body of a request, or comes behind one. */
function limitUnserved(server: Server, isServing: (socket: Socket) => boolean): Unserved {
  const inputs = new Map<Socket, Input>();
  let behind = 0;
  server.on(server instanceof TlsServer ? 'secureConnection' : 'connection', (socket: Socket) => {
    inputs.set(socket, { served_bytes: 0, behind: 0 });
    socket.once('close', () => {
      behind -= inputs.get(socket)?.behind ?? 0;
      inputs.delete(socket);
    });
  });

  function served(socket: Socket): void {
    const input = inputs.get(socket);
    if (input !== undefined) input.served_bytes = socket.bytesRead;
  }

  /** Closes the connections with the longest heads until the others are within the limit. */
  function check(): void {
    const heads: [Socket, number][] = [];
    let bytes = 0;
    for (const [socket, { served_bytes }] of inputs) {
      if (isServing(socket)) served(socket);
      else if (socket.bytesRead > served_bytes) {
        heads.push([socket, socket.bytesRead - served_bytes]);
        bytes += socket.bytesRead - served_bytes;
      }
    }
    if (HEAD_COST * bytes <= MAX_UNSERVED_BYTES) return;
    heads.sort(([, a], [, b]) => b - a);
    for (const [socket, length] of heads) {
      socket.destroy();
      bytes -= length;
      if (HEAD_COST * bytes <= MAX_UNSERVED_BYTES) return;
    }
  }

  const timer = setInterval(check, COUNT_MS).unref();
  server.once('close', () => clearInterval(timer));
  return {
    served,
    behind(socket) {
      const input = inputs.get(socket);
      if (input === undefined) return;
      input.behind++;
      if (++behind * REQUEST_BYTES > MAX_UNSERVED_BYTES) socket.destroy();
    },
  };
}
