// Puts the plain path in front of Node's HTTP server: plain requests go to the app from here, everything else as ever.
// What it saves is most of what a request costs in Node; docs/performance.md has the figures.
import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Logger } from 'pino';
import { where } from '../../../proto/log.ts';
import type { Bindings, Ends } from '../context.ts';
import { PlainConnection } from './connection.ts';
import type { PlainRequest } from './request.ts';
import type { PlainResponse } from './response.ts';

/** Hono's `fetch`. */
export type Fetch = (request: Request, env: Bindings) => Response | Promise<Response>;

export interface PlainPath {
  /** Answers that are not out yet. */
  readonly running: number;
  /** Nothing new is taken; answers that run go on, and their connections end with them. */
  stop(): void;
  /** Ends every connection, whatever it carries. */
  destroy(): void;
}

/** Connections go back to `server` with all their bytes at the first request that is not plain. */
export function takeConnections(server: Server, fetch: Fetch, log: Logger): PlainPath {
  // Over TLS what is read here are the bytes inside of it.
  const event = server instanceof TlsServer ? 'secureConnection' : 'connection';
  const byNode = server.listeners(event) as ((this: Server, socket: Socket) => void)[];
  const connections = new Map<Socket, PlainConnection>();
  server.removeAllListeners(event);
  server.on(event, (socket: Socket) => {
    const forget = () => void connections.delete(socket);
    const connection = new PlainConnection(socket, {
      first_byte_ms: server.headersTimeout,
      keep_alive_ms: server.keepAliveTimeout,
      serve: (request, answer) => void serve(fetch, request, answer, log),
      handOver() {
        socket.off('close', forget);
        forget();
        for (const take of byNode) take.call(server, socket);
      },
    });
    connections.set(socket, connection);
    socket.once('close', forget);
  });
  return {
    get running() {
      return [...connections.values()].filter((connection) => connection.answering).length;
    },
    stop() {
      for (const connection of connections.values()) connection.stop();
    },
    destroy() {
      for (const socket of connections.keys()) socket.destroy();
    },
  };
}

async function serve(fetch: Fetch, request: PlainRequest, answer: PlainResponse, log: Logger): Promise<void> {
  try {
    // The middleware sets the rest.
    const ends: Ends = { incoming: request, outgoing: answer };
    const response = await fetch(new FetchRequest(request) as unknown as Request, ends as Bindings);
    if (answer.headersSent || answer.destroyed) return;
    const body = Buffer.from(await response.arrayBuffer());
    answer.writeHead(response.status, { ...Object.fromEntries(response.headers), 'content-length': body.length });
    answer.end(body);
  } catch (error) {
    // The app answers its errors itself. What gets here has no answer, and the client must not wait for one.
    log.error(where(error), 'internal error');
    answer.destroy();
  }
}

/** As much of Fetch's Request as Hono asks of one whose body is read elsewhere. */
class FetchRequest {
  readonly method: string;
  readonly #request: PlainRequest;
  #headers: Headers | null = null;

  constructor(request: PlainRequest) {
    this.method = request.method;
    this.#request = request;
  }

  get url(): string {
    return `http://${this.#request.headers.host}${this.#request.url}`;
  }

  get headers(): Headers {
    this.#headers ??= new Headers(this.#request.headers as Record<string, string>);
    return this.#headers;
  }
}
