// The gateway process: configuration in, a listening server out, a clean end.

import type { Server } from 'node:http';
import { createAdaptorServer } from '@hono/node-server';
import { pino } from 'pino';
import { buildApp } from './build.ts';
import { ConfigError, loadConfig } from './config.ts';
import { refuseBadRequests, serverOptions } from './http.ts';
import { type Fetch, takeConnections } from './wire/server.ts';

const DRAIN_MS = 25_000;

try {
  const config = loadConfig(process.env);
  // Lines leave together, at the latest after a fifth of a second and when the process ends.
  const log = pino(
    { name: 'gateway', level: config.log_level },
    pino.destination({ dest: 1, sync: false, minLength: 8192, periodicFlush: 200 }),
  );
  const { app, close } = buildApp(config, log);
  const server = createAdaptorServer({ fetch: app.fetch, serverOptions }) as Server;
  refuseBadRequests(server);
  const wire = takeConnections(server, app.fetch as Fetch);
  server.once('error', (error: NodeJS.ErrnoException) => {
    console.error(`gateway: cannot listen on ${config.host}:${config.port}: ${error.code}`);
    process.exit(1);
  });
  server.listen(config.port, config.host, () => {
    log.info({ address: server.address(), backend: new URL(config.backend_url).origin }, 'listening');
  });
  const stop = (signal: string) => {
    log.info({ signal }, 'draining');
    const end = () => void close().then(() => process.exit(0));
    server.close(end);
    server.closeIdleConnections();
    wire.stop();
    setTimeout(end, DRAIN_MS).unref();
  };
  process.once('SIGTERM', stop).once('SIGINT', stop);
  // Started by the launcher: when that is gone, so is the reason to run.
  process.once('disconnect', () => stop('disconnect'));
} catch (error) {
  if (!(error instanceof ConfigError)) throw error;
  console.error(`gateway: ${error.message}`);
  process.exit(1);
}
