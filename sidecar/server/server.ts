// The sidecar's server: WebSocket over a Unix socket, one connection a gateway.
import { randomInt } from 'node:crypto';
import { chmodSync, lstatSync, mkdirSync, unlinkSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { connect, type ListenOptions } from 'node:net';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Logger, pino } from 'pino';
import { WebSocketServer } from 'ws';
import { prettyLine, where } from '../../node/log.ts';
import { HEALTH_PATH, type KeysFrame, MAX_FRAME_BYTES, type SharedKeys } from '../../proto/attestation/frames.ts';
import type { Attester, AttesterError } from '../common/attester.ts';
import { createSessions, type Sessions, type SessionsOptions } from '../cpu/sessions.ts';
import { checkCollected } from '../signing/evidence-check.ts';
import { createScheduler } from '../signing/scheduler.ts';
import { type GatewayConnection, type Result, serveConnection } from './connection.ts';

// The Unix socket that the sidecar listens on. Either it makes its own and removes a stale one, or it inherits one.

const FOLDER_MODE = 0o750;
const SOCKET_MODE = 0o660;
/** As large as systemd's own: a smaller backlog would refuse connections that wait for a restart. */
const INHERITED_BACKLOG = 4096;

/** The sidecar cannot listen on its socket. The message is one line for the operator. */
export class SocketError extends Error {
  override readonly name = 'SocketError';

  readonly code: 'not_a_socket' | 'not_a_unix_socket' | 'in_use' | 'folder_unusable' | 'listen_failed';
  constructor(code: SocketError['code'], message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Listens on `path`, folder 0750, socket 0660. A stale socket is removed; a live one, or a file, is not. @throws {SocketError} */
export async function listenOnSocket(server: Server, path: string): Promise<void> {
  makeFolder(dirname(path));
  await clearStale(path);
  // The umask closes the socket to others also in the moment before the chmod.
  const umask = process.umask(0o777 & ~SOCKET_MODE);
  try {
    await listening(server, { path });
    chmodSync(path, SOCKET_MODE);
  } catch (cause) {
    throw new SocketError('listen_failed', `cannot listen on ${path}: ${(cause as NodeJS.ErrnoException).code}`, {
      cause,
    });
  } finally {
    process.umask(umask);
  }
}

/**
 * Serves the listening Unix socket behind descriptor `fd`. Its path, folder and permissions belong to the process that made it and are
 * not changed.
 * @throws {SocketError}
 */
export async function listenOnInherited(server: Server, fd: number): Promise<void> {
  try {
    await listening(server, { fd, backlog: INHERITED_BACKLOG });
  } catch (cause) {
    throw new SocketError(
      'listen_failed',
      `cannot listen on the inherited socket: ${(cause as NodeJS.ErrnoException).code}`,
      { cause },
    );
  }
  // Only a network socket has an address here. It is refused, because everybody who reaches the sidecar can have the GPU sign.
  if (server.address() === null) return;
  server.close();
  throw new SocketError('not_a_unix_socket', 'the inherited socket is not a Unix socket');
}

function listening(server: Server, options: ListenOptions & { fd?: number }): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(options, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

function makeFolder(folder: string): void {
  try {
    const made = mkdirSync(folder, { recursive: true, mode: FOLDER_MODE });
    if (made !== undefined) chmodSync(folder, FOLDER_MODE);
  } catch (cause) {
    throw new SocketError(
      'folder_unusable',
      `cannot make the socket's folder ${folder}: ${(cause as NodeJS.ErrnoException).code}`,
      { cause },
    );
  }
}

async function clearStale(path: string): Promise<void> {
  let isSocket: boolean;
  try {
    isSocket = lstatSync(path).isSocket();
  } catch {
    return;
  }
  if (!isSocket) throw new SocketError('not_a_socket', `${path} exists and is not a socket`);
  if (await isListening(path)) throw new SocketError('in_use', `a sidecar already listens on ${path}`);
  unlinkSync(path);
}

function isListening(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    const end = (alive: boolean) => {
      probe.destroy();
      resolve(alive);
    };
    probe.once('connect', () => end(true));
    probe.once('error', () => end(false));
  });
}

interface SidecarServer {
  /** Takes no new requests, closes all but WebSockets, drains requests in flight within `drain_ms`, and closes the attester. */
  close(): Promise<void>;
}

interface ServerOptions {
  readonly sidecar_socket: string;
  /** A socket that another process made and listens on, instead of `sidecar_socket`. */
  readonly inherited_fd?: number | null;
  readonly attest_queue_max: number;
  readonly attest_deadline_ms: number;
  /** Who signs a nonce: every device (the default), or any one of them. */
  readonly signers?: 'all' | 'any';
  /** Whether each result is checked here too, before the gateway checks it; true by default. */
  readonly self_check?: boolean;
  /** How long `close` may wait for attestations in flight. The gateway sends the rest to the next sidecar. */
  readonly drain_ms: number;
  /** The reason why the attester could not start; null by default. */
  readonly unavailable?: AttesterError | null;
  /** The time between trials while the attester cannot attest. */
  readonly trial_every_ms?: number;
  /** The processor that signs too; null by default. `required`: nothing is attested without it. */
  readonly cpu?: Pick<SessionsOptions, 'collector' | 'required' | 'launch' | 'life_s'> | null;
}

/** Concurrent connections: gateways and health checks. */
const MAX_CONNECTIONS = 256;
/** How long the start waits for a required first session. After that, gateways are told why nothing is attested. */
const FIRST_SESSION_MS = 10_000;

/** Listens and serves until closed. @throws {SocketError} */
export async function startServer(attester: Attester, options: ServerOptions, log: Logger): Promise<SidecarServer> {
  const connections = new Set<GatewayConnection>();
  const scheduler = createScheduler(attester, {
    ...options,
    async check(collected, nonce, device) {
      if (options.self_check ?? true) await checkCollected(collected, nonce, attester, device);
      announce();
    },
    onUnavailable(unavailable) {
      if (unavailable === null) log.info('attesting again');
      else log.error(unavailable, 'cannot attest');
      for (const connection of connections) connection.sendStatus();
    },
  });
  const { cpu = null } = options;
  let failure: string | null = null;
  const sessions =
    cpu === null
      ? null
      : createSessions({
          ...cpu,
          attest: (nonce, signal) => scheduler.attestByAll(nonce, signal),
          simulatedRoot: () => attester.simulated?.root ?? null,
          onSession(session) {
            if (session !== null) {
              failure = null;
              log.info({ type: cpu.collector.type }, 'a session with the processor');
            }
            for (const connection of connections) {
              connection.sendSession();
              connection.sendStatus();
            }
          },
          onFailure({ message }) {
            // On a machine that is no confidential VM the same failure recurs every minute.
            log[failure === message ? 'debug' : 'error']({ message }, 'no session with the processor');
            failure = message;
          },
        });
  const keys = createSharedKeys(sessions);
  let announced = attester.devices;
  let attested_total = 0;
  let failed_total = 0;
  const server = createServer((_request, response) => {
    response
      .writeHead(426, { 'content-type': 'text/plain', upgrade: 'websocket' })
      .end('This socket speaks WebSocket.\n');
  });
  const sockets = new WebSocketServer({ server, perMessageDeflate: false, maxPayload: MAX_FRAME_BYTES });
  sockets.on('error', () => {}); // listenOnSocket and listenOnInherited report the server's errors
  sockets.on('connection', (ws, { url, socket }) => {
    const level = url === HEALTH_PATH ? 'debug' : 'info';
    ws.on('error', () => ws.terminate());
    if (sockets.clients.size > MAX_CONNECTIONS) return ws.close(1013, 'too many gateways');
    log[level]({ sessions: sockets.clients.size }, 'gateway connected');
    const connection: GatewayConnection = serveConnection(ws, socket, {
      attester,
      scheduler,
      sessions,
      onKeys: (frame) => keys.receive(connection, frame),
      onUnexpected: (error) => log.error(where(error), 'the attester failed in an unexpected way'),
      totals: () => ({ attested_total, failed_total }),
      onResult(result) {
        if (result.code === 'attested') attested_total++;
        else if (result.code !== 'cancelled') failed_total++;
        logResult(log, result, scheduler.waiting);
      },
    });
    connections.add(connection);
    ws.on('close', () => {
      connections.delete(connection);
      keys.leave(connection);
      log[level]({ sessions: sockets.clients.size }, 'gateway left');
    });
  });
  /** Announces an attester that could not run before, or that has replaced another, ahead of its first result. */
  function announce(): void {
    if (attester.devices === announced) return;
    announced = attester.devices;
    log.info({ attester: attester.name, devices: announced }, 'attests now');
    for (const connection of connections) connection.sendStatus();
  }
  if (options.unavailable) scheduler.failed(options.unavailable);
  if (cpu?.required) await Promise.race([sessions?.ready, delay(FIRST_SESSION_MS, undefined, { ref: false })]);
  const { inherited_fd = null, sidecar_socket } = options;
  await (inherited_fd === null ? listenOnSocket(server, sidecar_socket) : listenOnInherited(server, inherited_fd));
  return {
    async close() {
      await closeConnections(server, sockets, connections, options.drain_ms);
      sessions?.close();
      scheduler.close();
      await attester.close();
    },
  };
}

/** The key seeds for sealed prompts that gateways share, for as long as one of them is connected. */
function createSharedKeys(sessions: Sessions | null) {
  const sharing = new Set<GatewayConnection>();
  let shared: SharedKeys | null = null;
  return {
    /** The first proposal for the current version wins. The first version is random, so that a version from another sidecar does not match. */
    receive(connection: GatewayConnection, { hpke, seeds, after }: KeysFrame): void {
      if (seeds === null) return sessions?.setKeys(hpke);
      sharing.add(connection);
      if (shared !== null && shared.n !== after) return connection.sendKeys(shared);
      shared = { type: 'keys', n: (shared?.n ?? randomInt(2 ** 32)) + 1, seeds };
      sessions?.setKeys(hpke);
      for (const one of sharing) one.sendKeys(shared);
    },
    leave(connection: GatewayConnection): void {
      if (sharing.delete(connection) && sharing.size === 0) shared = null;
    },
  };
}

/** Closes the server when requests in flight have their results, after `drain_ms` at the latest. */
async function closeConnections(
  server: Server,
  sockets: WebSocketServer,
  connections: ReadonlySet<GatewayConnection>,
  drain_ms: number,
): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  // Closes connections that never became a WebSocket: no timeout would end them any more.
  server.closeAllConnections();
  const deadline = delay(drain_ms, undefined, { ref: false });
  await Promise.race([Promise.all([...connections].map((connection) => connection.drain())), deadline]);
  for (const ws of sockets.clients) ws.close(1001, 'the sidecar stops');
  setTimeout(() => {
    for (const ws of sockets.clients) ws.terminate();
  }, 500).unref();
  await closed;
}

// The sidecar's log: JSON lines on stdout, or readable lines where that is a terminal.

type Out = Pick<NodeJS.WriteStream, 'isTTY' | 'write'> & Partial<Pick<NodeJS.WriteStream, 'on'>>;

/** A line that cannot be written, to a full disk for example, is lost. */
export function createLog(level: string, out: Out = process.stdout): Logger {
  // Without a listener Node would end the process, and with it every attestation in flight.
  out.on?.('error', () => {});
  return pino(
    { name: 'sidecar', level },
    { write: (line: string) => void out.write(out.isTTY ? prettyLine(line) : line) },
  );
}

/** One line for each attestation: the gateway's id, the outcome, the time of each phase, the queue's length. */
function logResult(log: Logger, { id, code, ms, phases }: Result, queued: number): void {
  const times = Object.entries(phases ?? {}).map(([phase, phase_ms]) => [phase, round(phase_ms)]);
  const level = code === 'attested' || code === 'cancelled' ? 'info' : 'warn';
  log[level]({ id, code, ms: round(ms), ...Object.fromEntries(times), queued }, 'attest');
}

const round = (ms: number) => Math.round(ms * 10) / 10;
