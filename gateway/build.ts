// Puts the gateway's parts together: from a configuration to an app that is ready to serve.
import { readFileSync } from 'node:fs';
import type { Hono } from 'hono';
import type { Logger } from 'pino';
import { createApp } from './app.ts';
import { createAttestor } from './attestor.ts';
import type { GatewayConfig } from './config.ts';
import type { Env } from './context.ts';
import { createEngine } from './engine/client.ts';
import { loadKeys } from './keys/load.ts';
import { boundAnswers } from './limits/answers.ts';
import { createSeats } from './limits/seats.ts';
import { createSidecar } from './sidecar/client.ts';
import { createStoreAndRates } from './store/create.ts';
import { createVerifier } from './verifier/verifier.ts';

export interface BuiltApp {
  readonly app: Hono<Env>;
  close(): Promise<void>;
}

/** @throws {ConfigError} */
export function buildApp(config: GatewayConfig, log: Logger): BuiltApp {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
    version: string;
  };
  const keys = loadKeys(config.api_keys_file, log);
  const engine = boundAnswers(createEngine(config), config);
  const { store, rates } = createStoreAndRates(config, log);
  const sidecar = createSidecar({
    socket_path: config.sidecar_socket,
    attest_timeout_ms: config.attest_timeout_ms,
    max_attestations_in_flight: config.max_attestations_in_flight,
    allow_simulated: config.allow_simulated,
    onState: (state, reason) => log[state === 'connected' ? 'info' : 'warn']({ state, reason }, 'sidecar'),
  });
  const attestor = createAttestor(sidecar, store, Date.now);
  const verifier = createVerifier(config);
  const app = createApp({
    config,
    engine,
    sidecar,
    store,
    attestor,
    keys,
    seats: createSeats(config),
    rates,
    verifier,
    log,
    version,
  });
  return {
    app,
    async close() {
      keys.close();
      sidecar.close();
      store.close();
      await verifier.close();
      await engine.close();
    },
  };
}
