// Rejects requests that never reach a route, with the same shape, headers and log line as every other response.
import { randomBytes } from 'node:crypto';
import { IncomingMessage, ServerResponse, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Logger } from 'pino';
import { MANY_BYTES } from './bytes.ts';
import type { PlainRequest } from './plain-path/request.ts';
import { type Outgoing, share } from './plain-path/response.ts';
import type { Problem } from './problem.ts';

/** How long a client may take to read its last response before the connection is cut. */
const LINGER_MS = 1_000;

/** Ends our side of a connection and reads on for a while: a client that still sends would lose its response if it were cut at once. */
export function linger(socket: Duplex): void {
  socket.end();
  cutSoon(socket);
}

/** Cuts a connection whose last response is written, once the client has had time to read it. */
export function cutSoon(socket: Duplex): void {
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}

/** Closes the connection after the response if a large body has not arrived by then. Reading the rest of it would delay other requests. */
export function closeWithoutDraining(incoming: IncomingMessage | PlainRequest, outgoing: Outgoing): void {
  const { socket } = outgoing;
  if (!(incoming instanceof IncomingMessage) || !(outgoing instanceof ServerResponse) || socket === null) return;
  if (Number(incoming.headers['content-length'] ?? Number.POSITIVE_INFINITY) <= MANY_BYTES) return;
  outgoing.once('finish', () => {
    if (incoming.complete) return;
    // On `finish` Node begins to discard the body; the pause comes after that.
    setImmediate(() => {
      socket.pause();
      linger(socket);
    });
  });
}

const COMMON = share({
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'; sandbox",
  'referrer-policy': 'no-referrer',
});

/** The headers of every response. */
export function commonHeaders(id: string): Record<string, string> {
  return { 'x-request-id': id, ...COMMON };
}

export function setCommonHeaders(outgoing: Pick<Outgoing, 'setHeader' | 'setShared'>, id: string): void {
  outgoing.setHeader('x-request-id', id);
  if (outgoing.setShared !== undefined) outgoing.setShared(COMMON);
  else for (const name in COMMON) outgoing.setHeader(name, COMMON[name] as string);
}

const IDS = 256;
const ID_BYTES = 16;
const ID_LENGTH = 'req-'.length + 2 * ID_BYTES;
let ids: string[] = [];

/**
 * Makes `req-` and 128 random bits in hexadecimal. Ids are made in batches, because the generator takes as long for one as for all. Each is
 * a flat string, because it is written several times.
 */
export function newId(): string {
  if (ids.length === 0) {
    const random = randomBytes(IDS * ID_BYTES).toString('hex');
    const text = Buffer.from(random.replaceAll(/.{32}/g, 'req-$&'), 'latin1');
    ids = Array.from({ length: IDS }, (_, i) => text.toString('latin1', i * ID_LENGTH, (i + 1) * ID_LENGTH));
  }
  return ids.pop() as string;
}

/** Sends an error response to a request that Node has parsed. */
export function refuse(incoming: IncomingMessage, outgoing: ServerResponse, problem: Problem, log: Logger): void {
  const id = newId();
  const body = JSON.stringify(problem.body);
  outgoing.writeHead(problem.status, { ...commonHeaders(id), ...problem.headers, ...entity(body) }).end(body);
  // The body has no reader, so it is discarded.
  incoming.resume();
  log.info({ id, method: incoming.method, route: null, status: problem.status, code: problem.code });
}

/** Sends an error response on a connection whose request could not be parsed, and ends the connection. */
export function refuseOnSocket(socket: Duplex, problem: Problem, log: Logger): void {
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
