// Every route of the gateway with its middleware and handler, and the construction of the gateway's parts. The app never listens, so
// that tests can call it.
import { setImmediate } from 'node:timers/promises';
import { Hono } from 'hono';
import type { Logger } from 'pino';
import { SECRETS_PATH } from '../proto/attestation/secrets.ts';
import { FAILURE_CODES } from '../verify/service.ts';
import { createAttestor } from './attestation/attest.ts';
import { type Attestor, REFUSAL_CODES, type Sidecar, type Store } from './attestation/interfaces.ts';
import { type Checker, createChecker } from './attestation/sessions.ts';
import { createSidecar } from './attestation/sidecar-client.ts';
import { createMemoryStore } from './attestation/store-memory.ts';
import { createSharedStore } from './attestation/store-shared.ts';
import type { Backend, Backends, Canary } from './backend/backend.ts';
import { createBackends } from './backend/backends.ts';
import { startCanary } from './backend/canary.ts';
import { createBackend } from './backend/client.ts';
import { createModelNames, createProbe } from './backend/probe.ts';
import { type GatewayConfig, hasKeys, VERSION } from './base/config.ts';
import { Problem } from './base/problem.ts';
import { createBreaker, openConnection } from './base/store-connection.ts';
import { pathOf, VERIFY_PATH } from './base/target.ts';
import { registerBackends, registerGauges } from './gauges.ts';
import type { Bindings, Env, Handler, Middleware } from './http/context.ts';
import {
  authenticated,
  createExchangeMiddleware,
  limitedByAddress,
  limitedByKey,
  limitedVerification,
  origins,
  preflight,
  withoutBody,
} from './http/middleware.ts';
import { withinBudget } from './http/token-budget.ts';
import type { Keys } from './keys/keys.ts';
import { loadKeys } from './keys/keys-file.ts';
import { type Concurrency, createConcurrency, createPermits } from './limits/concurrency.ts';
import { createRates, inMemory, inStore, type Rates } from './limits/rates.ts';
import { adminOnly, keyRoutes } from './routes/admin-keys.ts';
import { attestationBundle, attestationById, attestationSession } from './routes/attestation.ts';
import { generate } from './routes/generate.ts';
import { createPage, service } from './routes/page.ts';
import { passthrough } from './routes/passthrough.ts';
import { release } from './routes/release.ts';
import { sealed, sealedOnly, sealingKeys } from './routes/sealed.ts';
import { health, metrics, openapi, usage } from './routes/status.ts';
import { createCollateralRoutes, verify, verifyQuery } from './routes/verify.ts';
import { createSealingKeys, type SealingKeys } from './sealing/sealing-keys.ts';
import { refuseSecrets } from './sealing/secrets-receiver.ts';
import { type AdmitOnce, admitInStore } from './sealing/seeds.ts';
import { createTelemetry, type Telemetry } from './telemetry/telemetry.ts';
import type { Tracer } from './telemetry/watch.ts';
import { createOffload, type Offload } from './threads/offload.ts';
import { type AuditLog, auditLogOf } from './usage/audit-log.ts';
import { openFileBook } from './usage/book-file.ts';
import { createSharedBook } from './usage/book-shared.ts';
import { createMemoryBook, type UsageBook } from './usage/usage.ts';
import { createVerifier, type Verifier } from './verifier/verifier.ts';

/** The gateway's parts, from which the routes take theirs. */
interface Deps {
  readonly config: GatewayConfig;
  readonly backend: Backend;
  /** The same object as `backend` with BACKENDS_FILE; null without it. */
  readonly backends: Backends | null;
  readonly canary: Canary;
  readonly sidecar: Sidecar;
  readonly store: Store;
  readonly offload: Offload;
  readonly attestor: Attestor;
  readonly keys: Keys;
  readonly concurrency: Concurrency;
  readonly rates: Rates;
  readonly book: UsageBook;
  /** null: there is no audit log. */
  readonly audit: AuditLog | null;
  readonly verifier: Verifier;
  /** null: SEALED=off. */
  readonly sealing: SealingKeys | null;
  readonly log: Logger;
  readonly telemetry: Telemetry;
  readonly version: string;
  /** True from SIGTERM on. */
  readonly draining: () => boolean;
}

function createRoutes(deps: Deps): Hono<Env> {
  const app = new Hono<Env>({ getPath: pathOf });
  /** Serves requests that match no route of `app`. It is a separate router, so that a request to `app` matches a single route. */
  const rest = new Hono<Env>({ getPath: pathOf });
  const exchange = createExchangeMiddleware(deps);
  const on = (routes: Hono<Env>, methods: string, path: string, middleware: readonly Middleware[], handle: Handler) =>
    routes.on(methods.split(' '), path, exchange(path, middleware, handle));
  const open = [origins(deps)];
  const admitted = [...open, authenticated(deps), limitedByKey(deps)];
  const bodiless = [...admitted, withoutBody];
  /** Middleware of the API's routes, which reject unsealed requests with SEALED=required. */
  const api = deps.config.sealed === 'required' ? [...open, sealedOnly, ...admitted.slice(open.length)] : admitted;
  const budgeted = [...api, withinBudget(deps)];
  on(app, 'OPTIONS', '/*', open, preflight);

  const probe = createProbe(deps);
  on(app, 'GET', '/health', open, health(deps, probe));
  for (const path of ['/metrics', '/metrics/picker']) {
    on(app, 'GET', path, open, metrics(deps));
    on(rest, 'ALL', path, open, only('GET'));
  }
  on(app, 'GET', '/openapi.json', open, openapi);
  on(app, 'GET POST', VERIFY_PATH, [...open, limitedVerification(deps), verifyQuery], verify(deps));

  const page = createPage();
  const collateral = createCollateralRoutes(deps);
  on(app, 'GET', '/', open, page.document);
  on(app, 'GET', '/page/service', open, service(deps, probe));
  on(app, 'GET', '/page/collateral/v1/rim/:id', bodiless, collateral.rim);
  on(app, 'POST', '/page/collateral/ocsp', admitted, collateral.ocsp);
  on(app, 'GET', '/page/badge', open, page.badge);
  on(app, 'GET', '/page/assets/:asset', open, page.asset);

  on(app, 'POST', '/v1/chat/completions', budgeted, generate('chat', deps));
  on(app, 'POST', '/v1/completions', budgeted, generate('completion', deps));
  for (const path of ['/v1/chat/completions/:id/attestation', '/v1/completions/:id/attestation']) {
    on(app, 'GET', path, [...api, withoutBody], attestationById(deps));
    on(rest, 'ALL', path, api, only('GET'));
  }
  const admin = [...open, authenticated(deps), adminOnly, limitedByKey(deps)];
  const adminKeys = keyRoutes(deps);
  on(app, 'GET', '/admin/keys', [...admin, withoutBody], adminKeys.list);
  on(app, 'POST', '/admin/keys', admin, adminKeys.add);
  on(rest, 'ALL', '/admin/keys', open, only('GET, POST'));
  on(app, 'PATCH', '/admin/keys/:name', admin, adminKeys.change);
  on(app, 'DELETE', '/admin/keys/:name', [...admin, withoutBody], adminKeys.remove);
  on(rest, 'ALL', '/admin/keys/:name', open, only('PATCH, DELETE'));
  on(app, 'GET', '/usage', bodiless, usage(deps));
  on(rest, 'ALL', '/usage', admitted, only('GET'));
  on(
    app,
    'GET',
    '/v1/attestation/session',
    [...open, ...bodiless.slice(open.length).map(challenged)],
    attestationSession(deps),
  );
  on(rest, 'ALL', '/v1/attestation/session', admitted, only('GET'));
  on(
    app,
    'GET',
    '/v1/attestation/bundles/:sha256',
    [...open, limitedByAddress(deps, 'bundles')],
    attestationBundle(deps),
  );
  on(rest, 'ALL', '/v1/attestation/bundles/:sha256', admitted, only('GET'));
  on(app, 'POST', SECRETS_PATH, open, refuseSecrets);
  on(rest, 'ALL', SECRETS_PATH, open, only('POST'));
  on(rest, 'ALL', '/v1/*', budgeted, passthrough(deps, attestationById(deps)));

  on(app, 'GET', '/.well-known/countersign/release', open, release(deps));
  on(rest, 'ALL', '/.well-known/countersign/release', open, only('GET'));
  on(rest, 'ALL', '/', open, only('GET'));
  if (deps.sealing !== null) {
    on(app, 'GET', '/.well-known/ohttp-keys', open, sealingKeys(deps));
    on(rest, 'ALL', '/.well-known/ohttp-keys', open, only('GET'));
    on(
      app,
      'POST',
      '/ohttp',
      [...open, limitedByAddress(deps, 'sealed requests')],
      sealed(deps, deps.sealing, (request, bindings: Bindings) => app.fetch(request, bindings)),
    );
    on(rest, 'ALL', '/ohttp', open, only('POST'));
  }

  on(rest, 'ALL', '/health', open, only('GET'));
  on(rest, 'ALL', '/openapi.json', open, only('GET'));
  on(rest, 'ALL', VERIFY_PATH, open, only('GET, POST'));
  // This is a route, so that it is logged like the others.
  on(rest, 'ALL', '/*', open, () => {
    throw new Problem('not_found', 'There is nothing here. The API begins at /v1, the page is at /.');
  });
  app.notFound((c) => rest.fetch(c.req.raw, c.env));
  // The middleware handles errors. Its own errors go to the caller of the app: Hono would print them, with any content they quote.
  for (const routes of [app, rest])
    routes.onError((error) => {
      throw error;
    });
  return app;
}

/** Applies `middleware` only to a challenge, which costs signatures. Clients need the current session before they can seal an API key. */
function challenged(middleware: Middleware): Middleware {
  return (c) => (c.req.query('challenge') === undefined ? undefined : middleware(c));
}

function only(allow: string) {
  return (): never => {
    throw new Problem('method_not_allowed', `Only ${allow} is allowed here.`, { headers: { allow } });
  };
}

// Builds the gateway from a configuration, ready to serve.

interface BuiltApp {
  readonly app: Hono<Env>;
  /** From now on /health reports `draining`. */
  drain(): void;
  readonly telemetry: Telemetry;
  close(): Promise<void>;
}

/** `tracer` null: tracing is off. @throws {ConfigError} */
export function buildApp(config: GatewayConfig, log: Logger, tracer: Tracer | null = null): BuiltApp {
  const keys = loadKeys(config, log);
  const backends =
    config.backends_file === null
      ? null
      : createBackends(
          config.backends_file,
          config,
          log,
          (name) => config.canary_stops !== 'none' && canary.isWrong(name),
        );
  // loadConfig requires BACKEND_URL where BACKENDS_FILE is not set.
  const backend = backends ?? createBackend({ ...config, backend_url: config.backend_url as string });
  const canary = startCanary(
    () => backends?.each ?? [{ name: null, call: (request, handler) => backend.call(request, handler) }],
    config,
    log,
  );
  const { store, rates, book, admitOnce } = createShared(config, log);
  const audit = auditLogOf(config, log);
  const modelNames = createModelNames({ backends, backend, backend_api_key: config.backend_api_key });
  const telemetry = createTelemetry(
    log,
    tracer,
    {
      book: hasKeys(config) ? book : null,
      audit,
      max_answer_bytes: config.max_answer_bytes,
    },
    modelNames.has,
  );
  // An alert on the first refusal needs a value before it.
  for (const code of [...REFUSAL_CODES, ...FAILURE_CODES]) telemetry.metrics.sidecarRefusals.inc({ code }, 0);
  const checker = createChecker();
  const sidecar = openSidecar(config, log, telemetry, checker, () => sealing);
  const sealing = config.sealed === 'off' ? null : createSealingKeys(admitOnce, (keys) => sidecar.sendKeys(keys), log);
  const offload = createOffload();
  const attestor = createAttestor(offload, sidecar, store, config.attest_timeout_ms);
  const verifier = createVerifier(config);
  let draining = false;
  const app = createRoutes({
    config,
    backend,
    canary,
    backends,
    sidecar,
    store,
    offload,
    attestor,
    keys,
    concurrency: createConcurrency(config),
    rates,
    book,
    audit,
    verifier,
    sealing,
    log,
    telemetry,
    version: VERSION,
    draining: () => draining,
  });
  if (backends !== null) registerBackends(telemetry.registry, backends);
  registerGauges(telemetry.registry, {
    sidecar,
    store,
    audit,
    canary,
    version: VERSION,
    running: () => telemetry.running,
  });
  return {
    app,
    drain() {
      draining = true;
    },
    telemetry,
    async close() {
      keys.close();
      canary.close();
      await backend.close();
      sidecar.close();
      await Promise.all([offload.close(), checker.close(), verifier.close()]);
      // In this turn of the event loop, a response that was cut removes its pending attestation from the store.
      await setImmediate();
      await book.close();
      await store.close();
      audit?.close();
      await telemetry.close();
    },
  };
}

/** `sealing`: the keys for sealed requests. They are made after this sidecar, to which they are sent. */
export function openSidecar(
  config: GatewayConfig,
  log: Logger,
  telemetry: Telemetry,
  checker: Checker,
  sealing: () => SealingKeys | null,
): Sidecar {
  const sidecar: Sidecar = createSidecar({
    sidecar_socket: config.sidecar_socket,
    sidecar_uid: config.sidecar_uid,
    attest_timeout_ms: config.attest_timeout_ms,
    max_attestations_waiting: config.max_attestations_waiting,
    permits: createPermits({
      // A sidecar with several signers signs as many nonces at once.
      max_permits: () => config.max_attestations_in_flight + (sidecar.hello?.signers ?? 1) - 1,
      max_waiting: config.max_attestations_waiting,
    }),
    allow_simulated: config.allow_simulated,
    checker,
    onState(state, reason, refused) {
      if (state === 'connected') telemetry.metrics.sidecarConnections.inc();
      const expected = state === 'connected' || state === 'closed';
      if (refused === null) return log[expected ? 'info' : 'warn']({ state, reason }, 'sidecar');
      telemetry.metrics.sidecarRefusals.inc({ code: refused.code });
      log.error({ state, reason, code: refused.code }, 'sidecar');
    },
    onRetry: () => telemetry.metrics.sidecarRetries.inc(),
    onProcessor: () => sealing()?.connected(),
    onKeys: (keys) => sealing()?.received(keys),
    onSession: ({ statement }) => sealing()?.sessionNames(statement),
    onSigned: telemetry.signed,
    batches: config.batch !== 'off',
  });
  return sidecar;
}

/**
 * Creates what several gateways share through the server that ATTESTATION_STORE_URL names, and what one gateway keeps in its memory:
 * the store of attestations, the rate limits, the book of usage, and which sealed requests were admitted.
 */
function createShared(
  config: GatewayConfig,
  log: Logger,
): Pick<Deps, 'store' | 'rates' | 'book'> & { readonly admitOnce: AdmitOnce | null } {
  const memory = createMemoryStore(config);
  if (config.attestation_store_url === null)
    return { store: memory, rates: createRates(inMemory), book: bookOf(config, log), admitOnce: null };
  const connection = openConnection({
    url: config.attestation_store_url,
    timeout_ms: config.attestation_store_timeout_ms,
    onState: (connected, reason) => log[connected ? 'info' : 'warn']({ connected, reason }, 'attestation store'),
  });
  const admission = createBreaker(connection);
  return {
    store: createSharedStore(connection, memory, config),
    rates: createRates(inStore(admission)),
    admitOnce: admitInStore(connection),
    book: createSharedBook(connection, admission, () =>
      log.error('usage of keys is lost: the store was away for too long, or is away at the end'),
    ),
  };
}

/** Without a store, usage outlives the process in a file beside the audit log. */
function bookOf(config: GatewayConfig, log: Logger): UsageBook {
  const { audit_log } = config;
  return audit_log === null || !hasKeys(config) ? createMemoryBook() : openFileBook(`${audit_log}.usage`, log);
}
