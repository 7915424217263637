// Outgoing messages: the response to a client, and the headers of every response.
import { randomUUID } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

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

/** How long a client may take to read its last response before the connection is cut. */
const LINGER_MS = 1_000;

/** Ends our side of a connection and reads on for a while: a client that still sends would lose its response if it were cut at once. */
export function linger(socket: Duplex): void {
  socket.end();
  socket.resume();
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}
