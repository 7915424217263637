// What openai, the AI SDK and LangChain read of streams, on each way to them. `npm run fuzz` gives them 20,000.
import { afterAll, beforeAll } from 'vitest';
import { type GatewayWay, gatewayWay } from './gateway-way.ts';
import { nodeDecoders } from './node-decoders.ts';
import { OFFLINE_WAYS, suite } from './suite.ts';

let gateway: GatewayWay;
beforeAll(async () => {
  gateway = await gatewayWay();
});
afterAll(() => gateway?.close());

suite(() => nodeDecoders, [...OFFLINE_WAYS, ['through a gateway with tee', () => gateway]]);
