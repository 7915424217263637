// Ends a server without losing an answer: nothing new is accepted, each connection ends after the answer it is at.
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Wire } from './wire/server.ts';

export interface Drain {
  /** True from the moment it began: /health says so. */
  readonly draining: boolean;
  /** Answers that are not out yet. */
  readonly running: number;
  /** Resolves true when every answer is out, false when `drain_ms` were not enough; then what is left may be cut. */
  begin(drain_ms: number): Promise<boolean>;
}

/** Begin before the server listens: it must see every request. */
export function createDrain(server: Server, wire: Wire): Drain {
  const running = new Map<ServerResponse, IncomingMessage>();
  let draining = false;

  function last(outgoing: ServerResponse, incoming: IncomingMessage): void {
    outgoing.shouldKeepAlive = false;
    // Its headers may be out already, and they promised more.
    if (outgoing.headersSent) outgoing.once('finish', () => incoming.socket.end());
  }

  server.prependListener('request', (incoming: IncomingMessage, outgoing: ServerResponse) => {
    running.set(outgoing, incoming);
    outgoing.once('close', () => running.delete(outgoing));
    if (draining) last(outgoing, incoming);
  });

  return {
    get draining() {
      return draining;
    },
    get running() {
      return running.size + wire.running;
    },
    begin(drain_ms) {
      draining = true;
      return new Promise((resolve) => {
        const timer = setTimeout(() => resolve(false), drain_ms);
        server.close(() => {
          clearTimeout(timer);
          resolve(true);
        });
        for (const [outgoing, incoming] of running) last(outgoing, incoming);
        server.closeIdleConnections();
        // After it: what it hands to Node now has yet to be read, and would seem idle.
        wire.stop();
      });
    },
  };
}
