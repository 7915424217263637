// Ends a server without losing an answer: nothing new is accepted, each connection ends after the answer it is at.
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Wire } from './wire/server.ts';

export interface Drain {
  /** Answers that are not out yet. */
  readonly running: number;
  /** Resolves true when every answer is out, false when `drain_ms` were not enough; then what is left may be cut. */
  begin(drain_ms: number): Promise<boolean>;
}

/** Made before the server listens: it must see every request. */
export function createDrain(server: Server, wire: Wire): Drain {
  // By connection: an answer that waits behind another one's is not told when its connection ends.
  const running = new Map<Socket, Set<ServerResponse>>();
  let draining = false;

  function answersOn(socket: Socket): Set<ServerResponse> {
    const known = running.get(socket);
    if (known !== undefined) return known;
    const answers = new Set<ServerResponse>();
    running.set(socket, answers);
    socket.once('close', () => running.delete(socket));
    return answers;
  }

  function last(outgoing: ServerResponse, socket: Socket): void {
    outgoing.shouldKeepAlive = false;
    // Its headers may be out already, and they promised more.
    if (outgoing.headersSent) outgoing.once('finish', () => socket.end());
  }

  server.prependListener('request', (incoming: IncomingMessage, outgoing: ServerResponse) => {
    const { socket } = incoming;
    const answers = answersOn(socket);
    answers.add(outgoing);
    outgoing.once('close', () => answers.delete(outgoing));
    if (draining) last(outgoing, socket);
  });

  return {
    get running() {
      let total = wire.running;
      for (const answers of running.values()) total += answers.size;
      return total;
    },
    begin(drain_ms) {
      draining = true;
      return new Promise((resolve) => {
        const timer = setTimeout(() => resolve(false), drain_ms);
        server.close(() => {
          clearTimeout(timer);
          resolve(true);
        });
        for (const [socket, answers] of running) for (const outgoing of answers) last(outgoing, socket);
        server.closeIdleConnections();
        // After it: what it hands to Node now has yet to be read, and would seem idle.
        wire.stop();
      });
    },
  };
}
