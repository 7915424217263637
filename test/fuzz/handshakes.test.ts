import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { writeCertificate } from '../support/certificate.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { type Ending, type Stranger, speak } from '../support/handshakes.ts';
import { healthOn } from '../support/refusals.ts';
import { useService } from '../support/service.ts';
import { everyCut, fuzzHandshake } from './handshakes.ts';

/** `npm run fuzz gateway` makes 1,400. */
const HANDSHAKES = Number(process.env.FUZZ_HANDSHAKES ?? 200);
const AT_ONCE = 40;
const SEED = process.env.FUZZ_SEED === undefined ? undefined : Number(process.env.FUZZ_SEED);
/** The gateway gives a handshake 200 ms. On a busy machine it takes longer. */
const ENDS_WITHIN_MS = 10_000;

const service = useService();
let gateway: GatewayProcess;

beforeAll(async () => {
  const { certFile, keyFile } = writeCertificate(service.folder.path);
  gateway = await startGatewayProcess({
    BACKEND_URL: service.backend.url,
    SIDECAR_SOCKET: service.sidecar.socket,
    TLS_CERT_FILE: certFile,
    TLS_KEY_FILE: keyFile,
    limits: { headers_timeout_ms: 200 },
  });
});
afterAll(() => gateway.stop());

/** How many had a ServerHello, an alert, or nothing. */
const responses = { hello: 0, alert: 0, nothing: 0 };
const kindOf = (response: Buffer) => (response[0] === 22 ? 'hello' : response[0] === 21 ? 'alert' : 'nothing');

/** All at once, each of which must be ended. Then a good request is served on a new connection, by the process that was attacked. */
async function attack(strangers: readonly Stranger[]): Promise<void> {
  const spoken = await Promise.allSettled(strangers.map((stranger) => speak(gateway.url, stranger, ENDS_WITHIN_MS)));
  expect(await healthOn(gateway.url)).toBe(200);
  expect(gateway.child.exitCode).toBeNull();
  for (const one of spoken) {
    if (one.status === 'rejected') throw one.reason;
    responses[kindOf(one.value)]++;
  }
}

describe('the gateway with TLS', () => {
  it(
    `ends each of ${HANDSHAKES} fuzzed handshakes, and serves on as the same process`,
    async () => {
      const batch = fc.array(fuzzHandshake, { minLength: AT_ONCE, maxLength: AT_ONCE });
      await fc.assert(fc.asyncProperty(batch, attack), {
        numRuns: Math.ceil(HANDSHAKES / AT_ONCE),
        ...(SEED === undefined ? {} : { seed: SEED }),
        endOnFailure: true,
      });
      console.log(`fuzzed handshakes by response: ${JSON.stringify(responses)}`);
      for (const count of Object.values(responses)) expect(count).toBeGreaterThan(HANDSHAKES / 20);
    },
    30_000 + HANDSHAKES * 200,
  );

  it.each<Ending>(['waits', 'ends', 'resets'])(
    'ends a handshake that is cut after any byte of the ClientHello, whose client %s',
    { timeout: 60_000 },
    async (ending) => {
      for (let from = 0; from < everyCut.length; from += AT_ONCE)
        await attack(everyCut.slice(from, from + AT_ONCE).map((sends) => ({ sends, ending })));
    },
  );
});
