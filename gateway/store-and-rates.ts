// The store that the configuration asks for, and what counts requests beside it: in memory, or shared by several gateways.
import type { Logger } from 'pino';
import type { GatewayConfig } from './config.ts';
import { createRates, inMemory, type Rates } from './limits/rates.ts';
import { inStore } from './limits/shared.ts';
import { openConnection } from './store/connection.ts';
import { createMemoryStore } from './store/memory.ts';
import { createSharedStore } from './store/shared.ts';
import type { Store } from './store/store.ts';
import type { Member } from './workers/member.ts';

/** `member`: this process is one of several workers, and what they must share goes by their primary. */
export function createStoreAndRates(
  config: GatewayConfig,
  log: Logger,
  member: Member | null,
): { store: Store; rates: Rates } {
  const memory = createMemoryStore({
    ...config,
    attestation_store_bytes: Math.ceil(config.attestation_store_bytes / config.workers),
  });
  const own = member === null ? memory : member.store(memory);
  const limiter = member === null ? inMemory : member.limiter;
  if (config.attestation_store_url === null) return { store: own, rates: createRates(limiter) };
  const connection = openConnection({
    url: config.attestation_store_url,
    timeout_ms: config.attestation_store_timeout_ms,
    onState: (connected, reason) => log[connected ? 'info' : 'warn']({ connected, reason }, 'attestation store'),
  });
  return {
    store: createSharedStore(connection, memory, own, config),
    rates: createRates(inStore(connection, limiter)),
  };
}
