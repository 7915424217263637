// Messages: a request and its body, a response, and the headers of every response.
import { isUtf8 } from 'node:buffer';
import { randomUUID } from 'node:crypto';
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { ChunkBuffer } from '../base/bytes.ts';
import { Problem } from '../base/problem.ts';

// A body is not read from Fetch's Request, which has none on GET and no limit of size.

/** A request whose body arrives as it is read: Node's, or one that was sealed. */
export interface StreamedRequest extends Readable {
  readonly headers: IncomingHttpHeaders;
  readonly method?: string | undefined;
  readonly url?: string | undefined;
}

/** The client left before its request was complete, so there is no response. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';
}

const clientGone = () => new ClientGone('the client left before its body was complete');

function tooLarge(max_bytes: number): Problem {
  // Hono's adaptor and Node read the rest for a while and discard it: a client that still sends would lose its response if the connection
  // were cut at once.
  return new Problem('body_too_large', `The request body is larger than ${max_bytes} bytes.`);
}

/** The limits that a body counts against. @throws {Problem} where one is reached. */
export interface BodyLimits {
  /** Counts `bytes` more, and checks that `announced` further bytes would fit. */
  hold(bytes: number, announced: number): void;
  /** The whole body has arrived. */
  received(): void;
}

const UNLIMITED: BodyLimits = { hold: () => {}, received: () => {} };

/**
 * Reads the whole body. Call it once, because the body is not kept. Its checks before the first byte throw at once.
 * @throws {Problem} body_too_large, unsupported_encoding, and the errors of `limits`. @throws {ClientGone}
 */
export function readBody(
  incoming: StreamedRequest,
  max_bytes: number,
  limits: BodyLimits = UNLIMITED,
): Promise<Buffer> {
  const encoding = incoming.headers['content-encoding'];
  if (encoding !== undefined && encoding !== 'identity')
    throw new Problem('unsupported_encoding', 'A content-encoding is not supported here: send the body as it is.');
  const announced = Number(incoming.headers['content-length'] ?? 0);
  if (announced > max_bytes) throw tooLarge(max_bytes);
  limits.hold(0, announced);
  // The client may have left during an earlier wait, and `close` is not emitted twice.
  if (incoming.destroyed) throw clientGone();
  return new Promise((resolve, reject) => {
    const chunks = new ChunkBuffer(announced);
    const settle = (error: Error | null) => {
      incoming.off('data', onData).off('end', onEnd).off('error', onError).off('close', onGone);
      if (error !== null) reject(error);
      else resolve(chunks.whole());
    };
    const onData = (chunk: Buffer) => {
      if (chunks.bytes + chunk.length > max_bytes) return settle(tooLarge(max_bytes));
      try {
        limits.hold(chunk.length, 0);
      } catch (error) {
        return settle(error as Error);
      }
      chunks.add(chunk);
    };
    const onEnd = () => {
      try {
        limits.received();
      } catch (error) {
        return settle(error as Error);
      }
      settle(null);
    };
    const onGone = () => settle(clientGone());
    const onError = (error: Error) => settle(error instanceof Problem ? error : clientGone());
    incoming.on('data', onData).on('end', onEnd).on('error', onError).on('close', onGone);
  });
}

/**
 * The limit of names and values in a client's JSON: a prompt of a million tokens has as many. The worst such JSON takes a second and 200
 * MB.
 */
export const MAX_JSON_VALUES = 1_000_000;

const REPLACEMENT = '\ufffd';

/** Decodes the body without change, because this string is hashed later. @throws {Problem} invalid_json when it is not UTF-8. */
export function bodyText(body: Buffer): string {
  const text = body.toString('utf8');
  // The decoder puts this character where bytes are not UTF-8, but the client may also have sent it.
  if (text.includes(REPLACEMENT) && !isUtf8(body))
    throw new Problem('invalid_json', 'The request body is not valid UTF-8.');
  return text;
}

// Responses.

/** The response to a client: the part of Node's ServerResponse that a response to a sealed request has too. */
export interface Outgoing {
  readonly headersSent: boolean;
  readonly destroyed: boolean;
  readonly writableLength: number;
  readonly socket: Socket | null;
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  writeHead(status: number, headers?: OutgoingHttpHeaders): unknown;
  /** Sends the head now, before the first bytes of the body. */
  flushHeaders(): void;
  /** Returns false when the caller should wait for `drain`. */
  write(bytes: Uint8Array): boolean;
  end(bytes?: Uint8Array | string): unknown;
  destroy(): unknown;
  /** Calls `listener` whenever nothing has moved on the connection for `ms`, until the response is out. */
  setTimeout(ms: number, listener: () => void): unknown;
  /** `close`: the response is out, or its client has left. */
  on(event: OutgoingEvent, listener: () => void): unknown;
  once(event: OutgoingEvent, listener: () => void): unknown;
  off(event: OutgoingEvent, listener: () => void): unknown;
}

export type OutgoingEvent = 'close' | 'drain' | 'finish';

const COMMON: readonly (readonly [string, string])[] = [
  ['cache-control', 'no-store'],
  ['x-content-type-options', 'nosniff'],
  ['content-security-policy', "default-src 'none'; frame-ancestors 'none'; sandbox"],
  ['referrer-policy', 'no-referrer'],
];

/** The headers of every response. */
export const commonHeaders = (id: string): Record<string, string> => ({
  'x-request-id': id,
  ...Object.fromEntries(COMMON),
});

export function setCommonHeaders(outgoing: Pick<Outgoing, 'setHeader'>, id: string): void {
  outgoing.setHeader('x-request-id', id);
  for (const [name, value] of COMMON) outgoing.setHeader(name, value);
}

/** `req-` and 122 random bits among 32 hexadecimal digits. */
export const newId = (): string => `req-${randomUUID().replaceAll('-', '')}`;
