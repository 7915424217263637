// What openai and httpx-sse (PyPI) read of streams, on each way to them. `npm run fuzz` gives them 20,000.
import { afterAll, beforeAll, describe } from 'vitest';
import { makeVenv } from '../support/venv.ts';
import { type GatewayWay, gatewayWay } from './gateway-way.ts';
import { pythonDecoders } from './python-decoders.ts';
import type { Decoder } from './reading.ts';
import { OFFLINE_WAYS, suite } from './suite.ts';

/** Importing the clients takes a busy machine seconds. */
const START_TIMEOUT_MS = 60_000;

const python = makeVenv();
const skipped = python === null ? ' SKIPPED: PyPI cannot be reached' : '';
if (skipped !== '') console.warn(`\n!!! openai and httpx-sse (PyPI)${skipped} !!!\n`);

describe.skipIf(python === null)(`openai and httpx-sse (PyPI)${skipped}`, () => {
  let decoders: readonly Decoder[] = [];
  let gateway: GatewayWay;
  beforeAll(async () => {
    [gateway, decoders] = await Promise.all([gatewayWay(), pythonDecoders(python ?? '')]);
  }, START_TIMEOUT_MS);
  afterAll(async () => {
    for (const decoder of decoders) await decoder.close?.();
    await gateway?.close();
  });

  suite(() => decoders, [...OFFLINE_WAYS, ['through a gateway with tee', () => gateway]]);
});
