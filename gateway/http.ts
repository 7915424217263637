// Limits of the HTTP server itself, and its answer to what is no HTTP at all.
import type { Server, ServerOptions } from 'node:http';
import { Problem } from './problem.ts';

export const serverOptions: ServerOptions = {
  maxHeaderSize: 32 * 1024,
  /** Headers within 15 s, the whole request within 120 s. */
  headersTimeout: 15_000,
  requestTimeout: 120_000,
  connectionsCheckingInterval: 5_000,
  keepAliveTimeout: 75_000,
  requireHostHeader: true,
  insecureHTTPParser: false,
};

/** What the parser refuses gets OpenAI's shape too. */
export function refuseBadRequests(server: Server): void {
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    // In the middle of an answer there is no place for another.
    const answering = (socket as { _httpMessage?: { headersSent: boolean } })._httpMessage?.headersSent === true;
    if (error.code === 'ECONNRESET' || !socket.writable || answering) return void socket.destroy();
    const problem =
      error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? new Problem('request_timeout', 'The request did not arrive in time.')
        : new Problem('invalid_request', 'The request is not valid HTTP.');
    const body = JSON.stringify(problem.body);
    socket.end(
      `HTTP/1.1 ${problem.status} ${problem.status === 408 ? 'Request Timeout' : 'Bad Request'}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
    );
  });
}
