// What both kinds of client connections share, those of the plain path and those that Node parses: how each is taken from Node's server, the
// limit of what they have sent ahead, how they take turns, and how they end.
import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { MAX_UNSERVED_BYTES } from '../limits/bounds.ts';

/**
 * Gives every new connection of `server` to `take` in place of Node's own listeners. Over TLS it is the decrypted connection. `giveToNode`
 * calls those listeners.
 */
export function interceptConnections(
  server: Server,
  take: (socket: Socket, giveToNode: (connection: Duplex) => void) => void,
): void {
  const event = server instanceof TlsServer ? 'secureConnection' : 'connection';
  const listeners = server.listeners(event) as ((this: Server, connection: Duplex) => void)[];
  const giveToNode = (connection: Duplex) => {
    for (const listener of listeners) listener.call(server, connection);
  };
  server.removeAllListeners(event);
  server.on(event, (socket: Socket) => take(socket, giveToNode));
}

// Unserved input: parts of requests, and requests that wait behind others. One limit holds for all connections of a process together,
// because none of them has shown an API key yet. Above it, the connection with the most unserved input is closed.

/** The memory that unserved input takes, which is more than the bytes received. */
let total_bytes = 0;
/** The connections that have unserved input. */
const connections = new Set<Unserved>();

/** The unserved input of one connection. */
export class Unserved {
  #bytes = 0;
  readonly #end: () => void;

  /** `end` closes the connection and calls `set(0)`. */
  constructor(end: () => void) {
    this.#end = end;
  }

  set(bytes: number): void {
    if (bytes === this.#bytes) return;
    const more = bytes > this.#bytes;
    total_bytes += bytes - this.#bytes;
    this.#bytes = bytes;
    if (bytes > 0) connections.add(this);
    else connections.delete(this);
    if (more && total_bytes > MAX_UNSERVED_BYTES) Unserved.#largest().#end();
  }

  static #largest(): Unserved {
    return [...connections].reduce((most, one) => (one.#bytes > most.#bytes ? one : most));
  }
}

/**
 * Tasks that one turn of the event loop starts, so that a request sent alone does not wait for all that others have sent ahead. They are
 * counted and not timed, because most of what a task costs comes in promises after it.
 */
const TASKS_PER_TURN = 4;
const tasks: (() => void)[] = [];

/** Runs a task in one of the next turns, after those that were scheduled before it. */
export function schedule(task: () => void): void {
  if (tasks.push(task) === 1) setImmediate(runTasks);
}

function runTasks(): void {
  const started = tasks.slice(0, TASKS_PER_TURN);
  for (const task of started) task();
  tasks.splice(0, started.length);
  if (tasks.length > 0) setImmediate(runTasks);
}

/** How long a client may take to read its last response before the connection is cut. */
const LINGER_MS = 1_000;

/** Ends our side of a connection and reads on for a while: a client that still sends would lose its response if it were cut at once. */
export function linger(socket: Duplex): void {
  socket.end();
  cutSoon(socket);
}

/** Cuts a connection whose last response is written, once the client has had time to read it. */
export function cutSoon(socket: Duplex): void {
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}
