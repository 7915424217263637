// Puts the gateway's parts together: makes an app that is ready to serve from a configuration.
import { setImmediate } from 'node:timers/promises';
import type { Hono } from 'hono';
import type { Logger } from 'pino';
import { createApp } from './app.ts';
import { createAttestor } from './attestation/attest.ts';
import { createChecker, createSidecar } from './attestation/sidecar-client.ts';
import { createStoreAndRates } from './attestation/store-shared.ts';
import { createBackend } from './backend/client.ts';
import { isMember, joinPrimary } from './cluster/member.ts';
import { type GatewayConfig, VERSION } from './config.ts';
import type { Env } from './http/context.ts';
import { loadKeys } from './keys/keys-file.ts';
import { createConcurrency } from './limits/concurrency.ts';
import { createPermits } from './limits/permits.ts';
import { createOffload } from './offload/pool.ts';
import { registerGauges } from './telemetry/metrics.ts';
import { createTelemetry, type Telemetry, type Tracer } from './telemetry/telemetry.ts';
import { createVerifier, SLOW_PERMITS, slowPermits } from './verifier/verifier.ts';

export interface BuiltApp {
  readonly app: Hono<Env>;
  /** From now on /health reports `draining`. */
  drain(): void;
  readonly telemetry: Telemetry;
  close(): Promise<void>;
}

/** `tracer` null: tracing is off. @throws {ConfigError} */
export function buildApp(config: GatewayConfig, log: Logger, tracer: Tracer | null = null): BuiltApp {
  const keys = loadKeys(config.api_keys_file, log);
  const backend = createBackend(config);
  const member = isMember ? joinPrimary(config.workers) : null;
  const { store, rates } = createStoreAndRates(config, log, member);
  const telemetry = createTelemetry(log, tracer);
  member?.metrics(telemetry.registry);
  const checker = createChecker();
  const attestations = {
    max_permits: config.max_attestations_in_flight,
    max_waiting: config.max_attestations_waiting,
  };
  const sidecar = createSidecar({
    sidecar_socket: config.sidecar_socket,
    sidecar_uid: config.sidecar_uid,
    attest_timeout_ms: config.attest_timeout_ms,
    max_attestations_in_flight: config.max_attestations_in_flight,
    permits: member === null ? createPermits(attestations) : member.permits('attestations', attestations),
    allow_simulated: config.allow_simulated,
    checker,
    onState(state, reason, refused) {
      if (state === 'connected') telemetry.metrics.sidecarConnections.inc();
      if (refused === null) return log[state === 'connected' ? 'info' : 'warn']({ state, reason }, 'sidecar');
      telemetry.metrics.sidecarRefusals.inc({ code: refused.code });
      log.error({ state, reason, code: refused.code }, 'sidecar');
    },
    onRetry: () => telemetry.metrics.sidecarRetries.inc(),
  });
  const offload = createOffload();
  const attestor = createAttestor(offload, sidecar, store, config.attest_timeout_ms, Date.now);
  const verifier = createVerifier(config, member?.permits(SLOW_PERMITS, slowPermits(config)));
  let draining = false;
  const app = createApp({
    config,
    backend,
    sidecar,
    store,
    offload,
    attestor,
    keys,
    concurrency: member === null ? createConcurrency(config) : member.concurrency(createConcurrency, config),
    rates,
    verifier,
    log,
    telemetry,
    version: VERSION,
    draining: () => draining,
  });
  registerGauges(telemetry.registry, { sidecar, store, version: VERSION, running: () => telemetry.running });
  return {
    app,
    drain() {
      draining = true;
    },
    telemetry,
    async close() {
      keys.close();
      await backend.close();
      sidecar.close();
      await Promise.all([offload.close(), checker.close(), verifier.close()]);
      // A response that was cut drops the attestation that it had begun to keep. This turn lets it do so.
      await setImmediate();
      await store.close();
      await telemetry.close();
    },
  };
}
