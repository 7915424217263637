// What EventSource of a real Chromium reads of streams, on each way to it. `npm run fuzz` gives it 20,000.
import { afterAll, beforeAll, describe, inject } from 'vitest';
import { eventSource } from './event-source.ts';
import { type GatewayWay, gatewayWay } from './gateway-way.ts';
import type { Decoder } from './reading.ts';
import { OFFLINE_WAYS, suite } from './suite.ts';

const chromium = inject('chromium');
const missing = 'missing' in chromium ? `, SKIPPED without ${chromium.missing}` : '';

describe.skipIf(missing !== '')(`EventSource${missing}`, () => {
  let decoder: Decoder;
  let gateway: GatewayWay;
  beforeAll(async () => {
    [gateway, decoder] = await Promise.all([gatewayWay(), eventSource('path' in chromium ? chromium.path : '')]);
  });
  afterAll(async () => {
    await decoder?.close?.();
    await gateway?.close();
  });

  suite(() => [decoder], [...OFFLINE_WAYS, ['through a gateway with tee', () => gateway]]);
});
