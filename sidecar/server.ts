// The sidecar's server: WebSocket over a Unix socket, one session a gateway.
import { createServer } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import { WebSocketServer } from 'ws';
import { HEALTH_PATH, MAX_FRAME_BYTES } from '../proto/frames.ts';
import { where } from '../proto/where.ts';
import type { Attester, AttesterError } from './attester.ts';
import { checkCollected } from './checked.ts';
import { logResult } from './log.ts';
import { createScheduler } from './scheduler.ts';
import { runSession, type Session } from './session.ts';
import { listenOnInherited, listenOnSocket } from './socket.ts';

export interface SidecarServer {
  /** Takes nothing new, lets go of whoever is no gateway, finishes what was asked for as far as `drain_ms` allow, and lets go of the GPU. */
  close(): Promise<void>;
}

export interface ServerOptions {
  readonly socket_path: string;
  /** A socket that somebody else made and listens on, instead of `socket_path`. */
  readonly inherited_fd?: number | null;
  readonly attest_queue_max: number;
  readonly attest_deadline_ms: number;
  /** How long the end may wait for attestations under way; 5 s by default. The gateway asks the next sidecar for the rest. */
  readonly drain_ms?: number;
  /** Why the attester cannot attest yet, where that is known from its start. */
  readonly trouble?: AttesterError | null;
  /** From one look to the next at whether trouble is over. */
  readonly trial_every_ms?: number;
}

/** Connected at once: gateways, each worker of one by itself, of which there may be 64, and health checks. */
const MAX_SESSIONS = 256;
const DRAIN_MS = 5_000;

/** Listens and serves until closed. @throws {SocketError} */
export async function startServer(attester: Attester, options: ServerOptions, log: Logger): Promise<SidecarServer> {
  const sessions = new Set<Session>();
  const scheduler = createScheduler(attester, {
    ...options,
    async check(collected, nonce) {
      await checkCollected(collected, nonce, attester);
      announce();
    },
    onTrouble(trouble) {
      if (trouble === null) log.info('attesting again');
      else log.error(trouble, 'cannot attest');
      for (const session of sessions) session.sendStatus();
    },
  });
  let announced = attester.devices;
  let attested_total = 0;
  let failed_total = 0;
  const server = createServer((_request, response) => {
    response
      .writeHead(426, { 'content-type': 'text/plain', upgrade: 'websocket' })
      .end('This socket speaks WebSocket.\n');
  });
  const sockets = new WebSocketServer({ server, perMessageDeflate: false, maxPayload: MAX_FRAME_BYTES });
  sockets.on('error', () => {}); // the server's own errors are listenOnSocket's to report
  sockets.on('connection', (ws, { url, socket }) => {
    const level = url === HEALTH_PATH ? 'debug' : 'info';
    ws.on('error', () => ws.terminate());
    if (sockets.clients.size > MAX_SESSIONS) return ws.close(1013, 'too many gateways');
    log[level]({ sessions: sockets.clients.size }, 'gateway connected');
    const session = runSession(ws, socket, {
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
    sessions.add(session);
    ws.on('close', () => {
      sessions.delete(session);
      log[level]({ sessions: sockets.clients.size }, 'gateway left');
    });
  });
  /** Before the first answer of an attester that was late, or that took over: gateways learn what it is. */
  function announce(): void {
    if (attester.devices === announced) return;
    announced = attester.devices;
    log.info({ attester: attester.name, devices: announced }, 'attests now');
    for (const session of sessions) session.sendStatus();
  }
  if (options.trouble) scheduler.failed(options.trouble);
  const { inherited_fd = null, socket_path } = options;
  await (inherited_fd === null ? listenOnSocket(server, socket_path) : listenOnInherited(server, inherited_fd));
  return {
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      // Those that never became a session: nobody would time them out any more. A session's connection is not among them.
      server.closeAllConnections();
      const deadline = delay(options.drain_ms ?? DRAIN_MS, undefined, { ref: false });
      await Promise.race([Promise.all([...sessions].map((session) => session.drain())), deadline]);
      for (const ws of sockets.clients) ws.close(1001, 'the sidecar stops');
      setTimeout(() => {
        for (const ws of sockets.clients) ws.terminate();
      }, 500).unref();
      await closed;
      scheduler.close();
      await attester.close();
    },
  };
}
