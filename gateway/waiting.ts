// The gateway with SECRETS=sealed until its secrets have come: it serves /health, the session and the one route that takes them. It
// listens in the clear, because what comes is sealed to the session's key, and ends before the gateway itself begins.
import type { AddressInfo } from 'node:net';
import { Hono } from 'hono';
import type { Logger } from 'pino';
import { SECRETS_PATH } from '../proto/attestation/secrets.ts';
import { openSidecar } from './app.ts';
import { createChecker } from './attestation/sessions.ts';
import type { GatewayConfig, Secrets } from './base/config.ts';
import { pathOf } from './base/target.ts';
import type { Env, Handler, Middleware } from './http/context.ts';
import { authenticated, createExchangeMiddleware, limitedByAddress } from './http/middleware.ts';
import { createHttpServer } from './http/server.ts';
import { OPEN } from './keys/keys.ts';
import { connectionsWithin } from './limits/memory.ts';
import { attestationSession } from './routes/attestation.ts';
import { sealed, sealingKeys } from './routes/sealed.ts';
import { notTooLarge, takeSecrets, waiting, waitingHealth } from './routes/secrets.ts';
import { createSealingKeys } from './sealing/sealing-keys.ts';
import { createSecretsReceiver } from './sealing/secrets-receiver.ts';
import { createTelemetry } from './telemetry/telemetry.ts';

interface WaitingApp {
  readonly app: Hono<Env>;
  /** Resolves when they have come, and the response to their sender is out. */
  readonly secrets: Promise<Secrets>;
  close(): Promise<void>;
}

export function buildWaitingApp(config: GatewayConfig, log: Logger): WaitingApp {
  const { max_answer_bytes } = config;
  const telemetry = createTelemetry(log, null, { book: null, audit: null, max_answer_bytes }, () => false);
  const checker = createChecker();
  const sidecar = openSidecar(config, log, telemetry, checker, () => sealing);
  // No store knows these keys: what is sealed to them is for this process.
  const sealing = createSealingKeys(null, (keys) => sidecar.sendKeys(keys), log);
  const receiver = createSecretsReceiver(config, (statement) => sealing.published(statement) !== null);
  const { promise: secrets, resolve } = Promise.withResolvers<Secrets>();

  const app = new Hono<Env>({ getPath: pathOf });
  const deps = { config, telemetry, log, sidecar };
  const exchange = createExchangeMiddleware(deps);
  const on = (method: string, path: string, middleware: readonly Middleware[], handle: Handler) =>
    method === 'ALL'
      ? app.all(path, exchange(path, middleware, handle))
      : app.on(method, path, exchange(path, middleware, handle));
  const limited = limitedByAddress(deps, 'requests');
  const outer = sealed(deps, sealing, (request, bindings) => app.fetch(request, bindings));
  const inner = takeSecrets(sidecar, receiver, resolve);
  on('GET', '/health', [], waitingHealth(sidecar));
  const publishedKeys = sealingKeys({ sidecar, sealing });
  /** A session that names another process's key, such as that of the gateway before a restart, helps no sender. */
  const namesOwnKey: Middleware = (c) => void publishedKeys(c);
  on('GET', '/v1/attestation/session', [limited, authenticated({ keys: OPEN }), namesOwnKey], attestationSession(deps));
  on('POST', SECRETS_PATH, [(c) => (c.env.sealed ? undefined : limited(c)), notTooLarge], (c) =>
    c.env.sealed ? inner(c) : outer(c),
  );
  on('ALL', '/*', [], waiting);
  app.onError((error) => {
    throw error;
  });
  return {
    app,
    secrets,
    async close() {
      sidecar.close();
      await checker.close();
      await telemetry.close();
    },
  };
}

/** Listens until the secrets have come. @returns the configuration with them, and with the port that was listened on */
export async function waitForSecrets(config: GatewayConfig, log: Logger): Promise<GatewayConfig> {
  const { app, secrets, close } = buildWaitingApp(config, log);
  const { host, port } = config;
  const server = createHttpServer(
    app.fetch,
    { ...config, max_connections: connectionsWithin(config, log), tls: null },
    log,
  );
  const end = () => process.exit(0);
  for (const signal of ['SIGTERM', 'SIGINT', 'disconnect'] as const) process.once(signal as 'SIGTERM', end);
  server.once('error', (error: NodeJS.ErrnoException) => {
    console.error(`gateway: cannot listen on ${host}:${port}: ${error.code}`);
    process.exit(1);
  });
  server.listen({ host, port }, () =>
    log.info({ address: server.address(), tls: false, waiting: 'secrets' }, 'listening'),
  );
  const received = await secrets;
  const { port: bound } = server.address() as AddressInfo;
  await new Promise<void>((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
  await close();
  for (const signal of ['SIGTERM', 'SIGINT', 'disconnect'] as const) process.off(signal as 'SIGTERM', end);
  log.info('the secrets have come');
  return { ...config, port: bound, received, backend_api_key: received.backend_api_key };
}
