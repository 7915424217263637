// The Unix socket that the sidecar listens on: its folder, its permissions, and what a killed predecessor left behind.
import { chmodSync, lstatSync, mkdirSync, unlinkSync } from 'node:fs';
import type { Server } from 'node:http';
import { connect } from 'node:net';
import { dirname } from 'node:path';

const FOLDER_MODE = 0o750;
const SOCKET_MODE = 0o660;

/** The socket cannot be had. The message is one line for the operator. */
export class SocketError extends Error {
  override readonly name = 'SocketError';
  readonly code: 'not_a_socket' | 'in_use' | 'folder_unusable' | 'listen_failed';
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
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(path, () => {
        server.off('error', reject);
        resolve();
      });
    });
    chmodSync(path, SOCKET_MODE);
  } catch (cause) {
    throw new SocketError('listen_failed', `cannot listen on ${path}: ${(cause as NodeJS.ErrnoException).code}`, {
      cause,
    });
  } finally {
    process.umask(umask);
  }
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
