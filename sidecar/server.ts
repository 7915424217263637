// The sidecar's server: WebSocket over a Unix socket, one session a gateway.
import { createServer } from 'node:http';
import type { Logger } from 'pino';
import { WebSocketServer } from 'ws';
import { MAX_FRAME_BYTES } from '../proto/frames.ts';
import type { Attester, AttesterError } from './attester.ts';
import { checkCollected } from './checked.ts';
import { logResult } from './log.ts';
import { createScheduler } from './scheduler.ts';
import { runSession } from './session.ts';
import { listenOnInherited, listenOnSocket } from './socket.ts';
import { where } from './where.ts';

export interface SidecarServer {
  close(): Promise<void>;
}

export interface ServerOptions {
  readonly socket_path: string;
  /** A socket that somebody else made and listens on, instead of `socket_path`. */
  readonly inherited_fd?: number | null;
  readonly attest_queue_max: number;
  readonly attest_deadline_ms: number;
  /** Why the attester cannot attest yet, where that is known from its start. */
  readonly trouble?: AttesterError | null;
}

/** Gateways that may be connected at once. */
const MAX_SESSIONS = 64;

/** Listens and serves until closed. @throws {SocketError} */
export async function startServer(attester: Attester, options: ServerOptions, log: Logger): Promise<SidecarServer> {
  const statusSenders = new Set<() => void>();
  const scheduler = createScheduler(attester, {
    ...options,
    check: (collected, nonce) => checkCollected(collected, nonce, attester),
    onTrouble(trouble) {
      if (trouble === null) log.info('attesting again');
      else log.error(trouble, 'cannot attest');
      for (const sendStatus of statusSenders) sendStatus();
    },
  });
  let attested_total = 0;
  let failed_total = 0;
  const server = createServer((_request, response) => {
    response
      .writeHead(426, { 'content-type': 'text/plain', upgrade: 'websocket' })
      .end('This socket speaks WebSocket.\n');
  });
  const sockets = new WebSocketServer({ server, perMessageDeflate: false, maxPayload: MAX_FRAME_BYTES });
  sockets.on('error', () => {}); // the server's own errors are listenOnSocket's to report
  sockets.on('connection', (ws) => {
    ws.on('error', () => ws.terminate());
    if (sockets.clients.size > MAX_SESSIONS) return ws.close(1013, 'too many gateways');
    log.info({ sessions: sockets.clients.size }, 'gateway connected');
    const sendStatus = runSession(ws, {
      attester,
      scheduler,
      onUnexpected: (error) => log.error(where(error), 'the attester failed in an unexpected way'),
      totals: () => ({ attested_total, failed_total }),
      onResult(result) {
        if (result.code === 'attested') attested_total++;
        else if (result.code !== 'cancelled') failed_total++;
        logResult(log, result, scheduler.waiting);
      },
    });
    statusSenders.add(sendStatus);
    ws.on('close', () => {
      statusSenders.delete(sendStatus);
      log.info({ sessions: sockets.clients.size }, 'gateway left');
    });
  });
  if (options.trouble) scheduler.failed(options.trouble);
  const { inherited_fd = null, socket_path } = options;
  await (inherited_fd === null ? listenOnSocket(server, socket_path) : listenOnInherited(server, inherited_fd));
  return {
    async close() {
      for (const ws of sockets.clients) ws.close(1001, 'the sidecar stops');
      setTimeout(() => {
        for (const ws of sockets.clients) ws.terminate();
      }, 500).unref();
      await new Promise<void>((resolve) => server.close(() => resolve()));
      scheduler.close();
      await attester.close();
    },
  };
}
