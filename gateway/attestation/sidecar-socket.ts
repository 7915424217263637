// Connects to the sidecar's socket where nobody else can have put it. Who may write in its folder could put another there, and would
// be handed prompts; Node does not tell which process listens (SO_PEERCRED), so what counts is whose folder and socket these are.
import { closeSync, constants, fstatSync, lstatSync, openSync, type Stats } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { basename, dirname } from 'node:path';

/** The socket may be somebody else's. The message is for /health and the log, and names no path. */
export class SocketRefused extends Error {
  override readonly name = 'SocketRefused';
  readonly code: 'socket_owner' | 'socket_mode' | 'socket_kind';
  constructor(code: SocketRefused['code'], message: string) {
    super(message);
    this.code = code;
  }
}

const ROOT_UID = 0;
const GROUP_WRITES = 0o020;
const OTHERS_WRITE = 0o002;

/**
 * `sidecar_uid`: a user who may own folder and socket beside root and the gateway's own; null: nobody else.
 * @throws {SocketRefused}. @throws whatever the system says of the folder or the socket: ENOENT, EACCES.
 */
export function connectOwned(path: string, sidecar_uid: number | null): Socket {
  const folder = openSync(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    checkFolder(fstatSync(folder), sidecar_uid);
    // Through the open folder: whoever could rename it, or one above it, cannot put another in its place between look and use.
    const socket = process.platform === 'linux' ? `/proc/self/fd/${folder}/${basename(path)}` : path;
    checkSocket(lstatSync(socket), sidecar_uid);
    return connect(socket);
  } finally {
    closeSync(folder);
  }
}

function checkFolder(stats: Stats, sidecar_uid: number | null): void {
  checkOwner("the socket's folder", stats.uid, sidecar_uid);
  if ((stats.mode & (GROUP_WRITES | OTHERS_WRITE)) !== 0)
    throw new SocketRefused('socket_mode', "others may write in the socket's folder: its mode must be 0750 or less");
}

function checkSocket(stats: Stats, sidecar_uid: number | null): void {
  if (!stats.isSocket()) throw new SocketRefused('socket_kind', 'what stands in its place is not a socket');
  checkOwner('the socket', stats.uid, sidecar_uid);
  if ((stats.mode & OTHERS_WRITE) !== 0)
    throw new SocketRefused('socket_mode', 'everybody may connect to the socket: its mode must be 0660 or less');
}

function checkOwner(what: string, uid: number, sidecar_uid: number | null): void {
  const own_uid = process.getuid?.();
  if (uid === ROOT_UID || uid === own_uid || uid === sidecar_uid) return;
  throw new SocketRefused(
    'socket_owner',
    `${what} belongs to user ${uid}, who is neither root nor this gateway's user (${own_uid}) nor SIDECAR_UID`,
  );
}
