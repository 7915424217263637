// What openai, the AI SDK and LangChain read of streams, on each way to them. `npm run fuzz` gives them 20,000.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { installNewest } from '../clients/newest.ts';
import { attest, EXCHANGE, RESPONSE } from '../verify/maker.ts';
import { attacks } from './attacks.ts';
import { cliWay } from './cli-way.ts';
import { type GatewayWay, gatewayWay } from './gateway-way.ts';
import { PROOF } from './grammar.ts';
import { nodeDecoders } from './node-decoders.ts';
import { BODY, throughFetch } from './stream.ts';
import { expectNoAttack, OFFLINE_WAYS, suite, TIMEOUT_MS } from './suite.ts';

const away = installNewest() === null ? ', SKIPPED: npm cannot be reached' : '';

describe.skipIf(away !== '')(`the newest clients for Node${away}`, () => {
  let gateway: GatewayWay;
  beforeAll(async () => {
    gateway = await gatewayWay();
  });
  afterAll(() => gateway?.close());

  suite(() => nodeDecoders, [...OFFLINE_WAYS, ['through a gateway with tee', () => gateway]]);

  test('what is read from a saved stream that the CLI finds valid was signed', { timeout: TIMEOUT_MS }, async () => {
    const way = cliWay();
    try {
      // It verifies as the library does, once it has seen from a file's first characters what the file is.
      const marked = attacks.filter(({ name, text }) => name.includes('byte order mark') && text.includes(PROOF));
      await expectNoAttack(nodeDecoders, way, marked);
    } finally {
      way.close();
    }
  });

  // A client that asked for a stream reads nothing of it, and some end without an error.
  test('a whole answer, proven, is refused where a stream was asked for', async () => {
    const attestation = JSON.stringify(await attest({ ...EXCHANGE, request: BODY }));
    const bytes = new TextEncoder().encode(RESPONSE.replace(/\}$/, `,"attestation":${attestation}}`));
    const answer = { status: 200, type: 'application/json', pieces: [bytes], broken: null };
    const { answer: delivered } = await throughFetch({ text: '', bytes, attestation, answer });
    const readings = await Promise.all(nodeDecoders.map((decoder) => decoder.read([delivered])));
    expect(readings.flat().map(({ threw }) => threw)).not.toContain(null);
  });
});
