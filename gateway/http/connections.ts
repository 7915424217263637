// Functions for both kinds of client connections, those of the plain path and those that Node parses: interception, the limit on unserved
// input, fair scheduling, and closing.
import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { MAX_UNSERVED_BYTES } from '../base/bounds.ts';

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

// Unserved input: parts of requests, and requests that wait behind others. All connections of a process share one limit, because this input
// is not yet authenticated. Above the limit, the connection with the most unserved input is closed.

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
 * Tasks that start in one turn of the event loop, so that a single request does not wait for all pipelined requests of other clients. The
 * limit is a number and not a time, because most of a task's work happens later, in promises.
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
