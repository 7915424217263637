// Ends a server without losing an answer: nothing new is accepted, each connection ends after the answer it is at.
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Wire } from './wire/server.ts';

export interface Drain {
  /** Answers that are not out yet. */
  readonly running: number;
  /** Resolves true when every answer is out, false when `drain_ms` were not enough; then what is left may be cut. */
  begin(drain_ms: number): Promise<boolean>;
}

/** Made before the server listens: it must see every request. */
export function createDrain(server: Server, wire: Wire): Drain {
  const running = new Set<ServerResponse>();
  let draining = false;

  function last(outgoing: ServerResponse): void {
    outgoing.shouldKeepAlive = false;
    // Its headers may be out already, and they promised more.
    if (outgoing.headersSent) outgoing.once('finish', () => outgoing.req.socket.end());
  }

  server.prependListener('request', (_incoming: IncomingMessage, outgoing: ServerResponse) => {
    running.add(outgoing);
    outgoing.once('close', () => running.delete(outgoing));
    if (draining) last(outgoing);
  });

  return {
    get running() {
      return wire.running + running.size;
    },
    begin(drain_ms) {
      draining = true;
      return new Promise((resolve) => {
        const timer = setTimeout(() => resolve(false), drain_ms);
        server.close(() => {
          clearTimeout(timer);
          resolve(true);
        });
        for (const outgoing of running) last(outgoing);
        server.closeIdleConnections();
        // After it: what it hands to Node now has yet to be read, and would seem idle.
        wire.stop();
      });
    },
  };
}
