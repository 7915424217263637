// The gateway process: reads the configuration and starts a server.
import type { Server as TlsServer } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { where } from '../node/log.ts';
import { buildApp } from './app.ts';
import { ConfigError, type GatewayConfig, loadConfig, NO_ARGUMENTS } from './base/config.ts';
import { createDrain, createHttpServer } from './http/server.ts';
import { type Credentials, credentialsOf, readCredentials, watchCredentials } from './http/tls.ts';
import { checkMemory, connectionsWithin } from './limits/memory.ts';
import { openapiDocument } from './routes/status.ts';
import { createLog } from './telemetry/log.ts';
import { serveMetrics } from './telemetry/metrics-server.ts';
import { waitForSecrets } from './waiting.ts';

try {
  if (process.argv.length > 2) throw new ConfigError(NO_ARGUMENTS);
  const config = loadConfig(process.env);
  const log = createLog(config.log_level);
  endOnUncaught(log);
  checkMemory(config, log);
  // Without TLS there is nothing to reload, but Node would end a process that has no listener for this signal.
  process.on('SIGHUP', () => {});
  await serve(config.secrets === 'sealed' ? await waitForSecrets(config, log) : config, log);
} catch (error) {
  if (!(error instanceof ConfigError)) throw error;
  console.error(`gateway: ${error.message}`);
  process.exit(1);
}

/** Node would print the message of an uncaught error, and a message can quote a prompt. */
function endOnUncaught(log: Logger): void {
  process.on('uncaughtException', (error) => {
    log.fatal(where(error), 'uncaught error');
    process.exit(1);
  });
}

// The listening server, and its clean end.

/** Ctrl-C in a terminal reaches the launcher and this process, and the launcher sends its own signal right after: both count as one. */
const SAME_SIGNAL_MS = 500;
/** Time after the drain for responses that were cut to send their clients an error. */
const CUT_MS = 1_000;

/** @throws {ConfigError} */
async function serve(config: GatewayConfig, log: Logger): Promise<void> {
  if (config.reuse_port && Number.parseInt(process.versions.node, 10) < 22)
    throw new ConfigError('REUSE_PORT needs Node 22 or later');
  const credentials = credentialsIn(config);
  // OpenTelemetry is loaded only when tracing is on.
  const { tracing, backend_url, tls } = config;
  const tracer = tracing ? (await import('./telemetry/tracing.ts')).startTracing(backend_url, log) : null;
  const { app, close, telemetry, drain: announceDrain } = buildApp(config, log, tracer);
  const server = createHttpServer(
    app.fetch,
    { ...config, max_connections: connectionsWithin(config, log), tls: credentials },
    log,
  );
  const drain = createDrain(server);
  server.once('error', (error: NodeJS.ErrnoException) => {
    const hint = config.reuse_port && error.code === 'ENOTSUP' ? ' (this platform has no REUSE_PORT)' : '';
    console.error(`gateway: cannot listen on ${config.host}:${config.port}: ${error.code}${hint}`);
    process.exit(1);
  });
  const { host, port, reuse_port: reusePort } = config;
  server.listen({ host, port, reusePort }, () => {
    const backend = backend_url === null ? undefined : new URL(backend_url).origin;
    log.info({ address: server.address(), tls: credentials !== null, backend }, 'listening');
    // Read now, so that the first request for it does not delay others.
    openapiDocument();
  });
  if (tls !== null) renewCredentials(server as TlsServer, tls, log);
  serveMetrics(config, telemetry.registry, log);

  let stopped_ms: number | null = null;
  const stop = async (signal: string) => {
    if (stopped_ms !== null) {
      if (performance.now() - stopped_ms > SAME_SIGNAL_MS) process.exit(1);
      return;
    }
    stopped_ms = performance.now();
    log.info({ signal, running: drain.running }, 'draining');
    announceDrain();
    // Until balancers have seen /health, new connections are served.
    await sleep(config.drain_grace_ms);
    if (!(await drain.begin(config.drain_ms))) {
      log.warn({ running: drain.running }, 'cut what did not end in time');
      setTimeout(() => process.exit(0), CUT_MS);
    }
    await close();
    if (drain.running === 0) process.exit(0);
  };
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => void stop(signal));
  // The launcher that started this process has ended.
  process.once('disconnect', () => void stop('disconnect'));
}

/** null: plain HTTP. @throws {ConfigError} */
function credentialsIn({ tls, received }: GatewayConfig): Credentials | null {
  const sent = received?.tls ?? null;
  if (sent !== null) return credentialsOf(sent.cert, sent.key, ['tls.crt', 'tls.key']);
  return tls === null ? null : readCredentials(tls);
}

/** Loads new certificates on SIGHUP, or when the files change. An invalid pair leaves the old one in use. */
function renewCredentials(server: TlsServer, files: NonNullable<GatewayConfig['tls']>, log: Logger): void {
  const renew = () => {
    try {
      server.setSecureContext(readCredentials(files));
      log.info('certificate renewed');
    } catch (error) {
      log.error({ why: error instanceof ConfigError ? error.message : where(error) }, 'certificate not renewed');
    }
  };
  watchCredentials(files, renew);
  process.on('SIGHUP', renew);
}
