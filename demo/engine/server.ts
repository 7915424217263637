// The demo engine, listening.
import type { Server } from 'node:http';
import { createAdaptorServer } from '@hono/node-server';
import { createEngineApp } from './app.ts';
import { createEngine, type Engine } from './engine.ts';

export interface RunningEngine {
  /** `http://HOST:PORT`, without `/v1`. */
  readonly url: string;
  /** Ends running answers too. */
  close(): Promise<void>;
}

/** @param options port 0, the default: any that is free; host: 127.0.0.1 */
export async function startEngine(
  options: { host?: string; port?: number; engines?: readonly Engine[] } = {},
): Promise<RunningEngine> {
  const { host = '127.0.0.1', port = 0, engines = [createEngine()] } = options;
  const server = createAdaptorServer({ fetch: createEngineApp(engines).fetch }) as Server;
  // Behind a gateway that keeps connections, an idle one must not be closed under a request.
  server.keepAliveTimeout = 75_000;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, resolve);
  });
  const address = server.address();
  const bound = address !== null && typeof address === 'object' ? address.port : port;
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}`,
    async close() {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
