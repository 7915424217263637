// The services that NVIDIA's SDK is given: what is kept, for how long, and what is passed on.
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { chainPem } from '../../../../demo/twin/pki.ts';
import { createStore } from '../../../../sidecar/attesters/native/kept-collateral.ts';
import { startKeptServices } from '../../../../sidecar/attesters/nvtrust/services.ts';
import { parsePem } from '../../../../verify/x509/certificate.ts';
import { makeCertId, ocspRequestOf, parseOcspResponse } from '../../../../verify/x509/ocsp.ts';
import { type Folder, temporaryFolder } from '../../../support/harness.ts';
import { RIM_IDS } from '../../../twin/rim.ts';
import { type EndorsementBench, startEndorsements } from '../native/native-bench.ts';

const DAY_MS = 86_400_000;

let bench: EndorsementBench;
let folder: Folder;
let services: Awaited<ReturnType<typeof startKeptServices>>;
let ahead_ms = 0;
let keys: (string | null)[] = [];

const begin = () =>
  startKeptServices({
    environment: {
      PATH: '/bin',
      https_proxy: 'http://proxy',
      NV_RIM_URL: `${bench.options.rim_url}/v1/rim/`,
      NV_OCSP_URL: `${bench.options.ocsp_url}/`,
    },
    store: createStore({ folder: join(folder.path, 'collateral') }),
    fetch: (url, init) => {
      keys.push(new Headers(init?.headers).get('authorization'));
      return fetch(url, init);
    },
    clock: () => new Date(Date.now() + ahead_ms),
  });

beforeEach(async () => {
  bench = await startEndorsements();
  folder = temporaryFolder();
  [ahead_ms, keys] = [0, []];
  services = await begin();
});
afterEach(async () => {
  await services.close();
  await bench.close();
  folder.remove();
});

/** Of the device's second certificate, as the SDK asks. */
async function request(nonce: Uint8Array | null = null): Promise<Uint8Array> {
  const [, certificate, issuer] = parsePem(chainPem(bench.device));
  if (certificate === undefined || issuer === undefined) throw new Error('the chain is too short');
  return ocspRequestOf(await makeCertId(certificate, issuer), nonce);
}
async function status(nonce: Uint8Array | null = null, headers = {}): Promise<Response> {
  return fetch(services.environment.NV_OCSP_URL ?? '', {
    method: 'POST',
    headers,
    body: Buffer.from(await request(nonce)),
  });
}
const rim = (id: string = RIM_IDS.driver) => fetch(`${services.environment.NV_RIM_URL}${id}`);

test('workers are given this server alone, without proxies', () => {
  const { NV_RIM_URL, NV_OCSP_URL, ...rest } = services.environment;
  expect(rest).toEqual({ PATH: '/bin' });
  expect([NV_RIM_URL, NV_OCSP_URL]).toEqual([
    expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+\/[\w-]{36}\/v1\/rim\/$/),
    expect.stringMatching(/\/[\w-]{36}\/ocsp\/$/),
  ]);
});

describe('reference values', () => {
  test('are fetched once a day, and again after a refusal; the service may be away meanwhile', async () => {
    const first = (await (await rim()).json()) as { id: string; rim: string };
    expect(first.id).toBe(RIM_IDS.driver);
    expect(Buffer.from(first.rim, 'base64').toString()).toContain('<');
    bench.faults.rim = 'cut';
    expect(await (await rim()).json()).toEqual(first);
    expect(bench.served().rim).toBe(1);
    ahead_ms = 2 * DAY_MS;
    expect(await (await rim()).json()).toEqual(first);
    expect(bench.served().rim).toBeGreaterThan(1);
    await services.forget();
    expect((await rim()).status).toBe(502);
    bench.faults.rim = null;
    expect(await (await rim()).json()).toEqual(first);
  });

  test('are there after a restart without the service', async () => {
    const first = await (await rim()).json();
    await services.close();
    services = await begin();
    bench.faults.rim = 'cut';
    expect(await (await rim()).json()).toEqual(first);
  });

  test.each([403, 404, 503])("the service's own %i is passed on, and not kept", async (code) => {
    bench.faults.rim = code;
    expect((await rim()).status).toBe(code);
    bench.faults.rim = null;
    expect((await rim()).status).toBe(200);
  });
});

describe('certificate status', () => {
  test('is asked for with a nonce of ours, and kept until it ends', async () => {
    const first = Buffer.from(await (await status(null, { authorization: 'Bearer k' })).arrayBuffer());
    expect(parseOcspResponse(first)).toMatchObject({ responses: [{ status: 'good' }], nonce: expect.any(Uint8Array) });
    expect(keys).toEqual(['Bearer k']);
    bench.faults.ocsp = 'cut';
    expect(Buffer.from(await (await status()).arrayBuffer())).toEqual(first);
    await services.close();
    services = await begin();
    expect(Buffer.from(await (await status()).arrayBuffer())).toEqual(first);
    expect(bench.served().ocsp).toBe(1);
    ahead_ms = 2 * DAY_MS;
    expect((await status()).status).toBe(502);
    [ahead_ms, bench.faults.ocsp] = [0, 'good'];
    expect((await status()).status).toBe(200);
  });

  test.each(['no_nonce', 'expired'] as const)('one that does not hold (%s) is refused', async (fault) => {
    bench.faults.ocsp = fault;
    expect((await status()).status).toBe(422);
    bench.faults.ocsp = 'good';
    expect((await status()).status).toBe(200);
  });

  test('one that is not good goes to the SDK, and is not kept', async () => {
    bench.faults.ocsp = { revokedAt: new Date(0), reason: 1 };
    const revoked = parseOcspResponse(new Uint8Array(await (await status()).arrayBuffer()));
    expect(revoked.responses[0]?.status).toMatchObject({ reason: 1 });
    bench.faults.ocsp = 'good';
    const good = parseOcspResponse(new Uint8Array(await (await status()).arrayBuffer()));
    expect(good.responses[0]?.status).toBe('good');
  });

  test('a request with a nonce is passed on each time, because a response that is kept has another', async () => {
    const nonce = randomBytes(32);
    await status();
    const answered = parseOcspResponse(new Uint8Array(await (await status(nonce)).arrayBuffer()));
    expect(Buffer.from(answered.nonce ?? [])).toEqual(nonce);
    expect(bench.served().ocsp).toBe(2);
  });

  test('what is no request, or too large, or elsewhere, is refused', async () => {
    const url = services.environment.NV_OCSP_URL ?? '';
    const post = (body: Buffer, to = url) => fetch(to, { method: 'POST', body });
    expect((await post(Buffer.from('nothing'))).status).toBe(502);
    expect((await post(Buffer.alloc(32 * 1024))).status).toBe(413);
    expect((await post(Buffer.from('x'), new URL('/ocsp/', url).href)).status).toBe(404);
    expect((await status()).status).toBe(200);
  });
});
