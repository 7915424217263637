// Limits for input that is not served, and that Node keeps: heads that have not ended, and requests that came behind another. All
// connections share them, because nobody is authenticated yet.
import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import { MAX_UNSERVED_BYTES } from '../base/bounds.ts';

/** What Node keeps of a head: each name and value is a string of its own. */
const HEAD_COST = 4;
/** What Node keeps of a request that came behind another. */
const REQUEST_BYTES = 1_500;
/** How often heads are counted. Until then, a fast network brings some 100 MB. */
const CHECK_MS = 100;

interface Input {
  /** Bytes of requests that were served. */
  served_bytes: number;
  /** Requests that came behind another. */
  behind: number;
}

export interface Unserved {
  /** All that has been read on this connection belongs to requests that are served. */
  served(socket: Socket): void;
  /** A request came behind another. Closes the connection where there are too many of them. */
  behind(socket: Socket): void;
}

/** `isServing`: a response is in progress on the connection, so that what it brings is a body, or comes behind a request. */
export function limitUnserved(server: Server, isServing: (socket: Socket) => boolean): Unserved {
  const inputs = new Map<Socket, Input>();
  let behind = 0;
  server.on(server instanceof TlsServer ? 'secureConnection' : 'connection', (socket: Socket) => {
    inputs.set(socket, { served_bytes: 0, behind: 0 });
    socket.once('close', () => {
      behind -= inputs.get(socket)?.behind ?? 0;
      inputs.delete(socket);
    });
  });

  function served(socket: Socket): void {
    const input = inputs.get(socket);
    if (input !== undefined) input.served_bytes = socket.bytesRead;
  }

  /** Closes the connections with the longest heads until the others are within the limit. */
  function check(): void {
    const heads: [Socket, number][] = [];
    let bytes = 0;
    for (const [socket, { served_bytes }] of inputs) {
      if (isServing(socket)) served(socket);
      else if (socket.bytesRead > served_bytes) {
        heads.push([socket, socket.bytesRead - served_bytes]);
        bytes += socket.bytesRead - served_bytes;
      }
    }
    if (HEAD_COST * bytes <= MAX_UNSERVED_BYTES) return;
    heads.sort(([, a], [, b]) => b - a);
    for (const [socket, length] of heads) {
      socket.destroy();
      bytes -= length;
      if (HEAD_COST * bytes <= MAX_UNSERVED_BYTES) return;
    }
  }

  const timer = setInterval(check, CHECK_MS).unref();
  server.once('close', () => clearInterval(timer));
  return {
    served,
    behind(socket) {
      const input = inputs.get(socket);
      if (input === undefined) return;
      input.behind++;
      if (++behind * REQUEST_BYTES > MAX_UNSERVED_BYTES) socket.destroy();
    },
  };
}
