// The Unix socket that the sidecar listens on: its own, with what a killed predecessor left behind, or one that it is handed.
import { chmodSync, lstatSync, mkdirSync, unlinkSync } from 'node:fs';
import type { Server } from 'node:http';
import { connect, type ListenOptions } from 'node:net';
import { dirname } from 'node:path';

const FOLDER_MODE = 0o750;
const SOCKET_MODE = 0o660;
/** systemd's own: a smaller one would shorten the line of those who wait for a restart. */
const INHERITED_BACKLOG = 4096;

/** The socket cannot be had. The message is one line for the operator. */
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
  // The socket must not be open to others even for the moment before a chmod.
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
 * Serves the listening Unix socket behind descriptor `fd`. Its path, folder and permissions are its maker's: nothing is made, changed or removed.
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
  // Only a network socket has an address here. Whoever reaches the sidecar can have the GPU sign: never from the network.
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
  if (await answers(path)) throw new SocketError('in_use', `a sidecar already listens on ${path}`);
  unlinkSync(path);
}

function answers(path: string): Promise<boolean> {
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
