// The store that the configuration asks for, and what counts requests beside it: in memory, or shared by several gateways.
import type { Logger } from 'pino';
import type { GatewayConfig } from '../config.ts';
import { createRates, type Rates } from '../limits/rates.ts';
import { inStore } from '../limits/shared.ts';
import { openConnection } from './connection.ts';
import { createMemoryStore } from './memory.ts';
import { createSharedStore } from './shared.ts';
import type { Store } from './store.ts';

export function createStoreAndRates(config: GatewayConfig, log: Logger): { store: Store; rates: Rates } {
  const memory = createMemoryStore(config);
  if (config.attestation_store_url === null) return { store: memory, rates: createRates() };
  const connection = openConnection({
    url: config.attestation_store_url,
    timeout_ms: config.attestation_store_timeout_ms,
    onState: (connected, reason) => log[connected ? 'info' : 'warn']({ connected, reason }, 'attestation store'),
  });
  return { store: createSharedStore(connection, memory, config), rates: createRates(inStore(connection)) };
}
