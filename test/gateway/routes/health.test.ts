// /health as probes ask it: what `require` names decides its status, and the gauges do not say idle where the sidecar is away.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { answer, chatAnswer, chatBody, type Script, startBackend } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually, type Service, startGateway, startService, startSidecar } from '../../support/harness.ts';
import { parseSamples } from '../../telemetry/samples.ts';
import { expectError } from '../expect-error.ts';

const TEE = { ...CHAT, tee: true };
const NONSENSE = chatAnswer('!'.repeat(64));
/** Paris at temperature 0, and samples that differ. */
const SENSE: Script = (request, response) => {
  const { temperature, seed, top_k } = JSON.parse(request.body);
  return answer(chatBody(temperature === 2 && top_k !== 1 ? `${seed}` : 'Paris'))(request, response);
};

let service: Service;
beforeEach(async () => {
  service = await startService();
});
afterEach(() => service.close());

const health = (url: string, query = '') => ask(`${url}/health${query}`, { method: 'GET' });
const statuses = async (url: string) => {
  const queries = ['', '?require=tee', '?require=canary', '?require=tee,canary', '?require=tee&require=canary'];
  return (await Promise.all(queries.map((query) => health(url, query)))).map(({ status }) => status);
};
const connected = (url: string) =>
  eventually(async () => (await health(url)).json().sidecar.status === 'connected', 5_000);

async function gatewayWith(env: Record<string, string>): Promise<string> {
  const gateway = await startGateway({
    BACKEND_URL: service.backend.url,
    SIDECAR_SOCKET: service.sidecar.socket,
    CANARY_INTERVAL_MS: '600000',
    ...env,
  });
  onTestFinished(() => gateway.close());
  await connected(gateway.url);
  await eventually(async () => (await health(gateway.url)).json().backend.canary.state !== 'pending');
  return gateway.url;
}

describe('/health', () => {
  it('answers 503 where tee is required and no sidecar is there, and 200 again with one', async () => {
    const { url } = service.gateway;
    await connected(url);
    expect(await statuses(url)).toEqual([200, 200, 200, 200, 200]);
    expect((await health(url)).json().ready).toEqual({ tee: true, canary: true });
    await service.sidecar.close();
    await eventually(async () => (await health(url, '?require=tee')).status === 503);
    expect(await statuses(url)).toEqual([200, 503, 200, 503, 503]);
    expect((await health(url, '?require=tee')).json()).toMatchObject({ status: 'degraded', ready: { tee: false } });
    (service as { sidecar: unknown }).sidecar = await startSidecar(service.folder);
    await eventually(async () => (await health(url, '?require=tee')).status === 200);
  });

  it.each(['gpu', 'tee,', '', 'tee,Canary', 'tee;canary'])('refuses require=%s', async (names) => {
    const { url } = service.gateway;
    expectError(await health(url, `?require=${names}`), 400, 'invalid_request', 'require');
    expect((await health(url, '?require=canary')).status).toBe(200);
  });
});

describe('a canary that is wrong', () => {
  beforeEach(() => {
    service.backend.script = NONSENSE;
  });

  it('stops requests with tee before the backend is asked, and no others', async () => {
    const url = await gatewayWith({});
    expect(await statuses(url)).toEqual([200, 503, 503, 503, 503]);
    const asked = service.backend.seen.length;
    const refused = await chat(url, TEE);
    expectError(refused, 503, 'attestation_unavailable');
    expect(refused.headers['retry-after']).toBe('5');
    expect(service.backend.seen).toHaveLength(asked);
    expect((await chat(url, CHAT)).status).toBe(200);
  });

  it('stops them until it is good again', async () => {
    const url = await gatewayWith({ CANARY_INTERVAL_MS: '20' });
    expectError(await chat(url, TEE), 503, 'attestation_unavailable');
    service.backend.script = SENSE;
    await eventually(async () => (await health(url, '?require=tee,canary')).status === 200);
    expect((await chat(url, TEE)).json().attestation.nonce).toMatch(/^[0-9a-f]{64}$/);
  });

  it('takes the node out with CANARY_STOPS=all, and stops nothing with none', async () => {
    const all = await gatewayWith({ CANARY_STOPS: 'all' });
    expect(await statuses(all)).toEqual([503, 503, 503, 503, 503]);
    expect((await health(all)).json().status).toBe('down');
    expect((await chat(all, CHAT)).status).toBe(200);
    const none = await gatewayWith({ CANARY_STOPS: 'none' });
    expect(await statuses(none)).toEqual([200, 200, 503, 503, 503]);
    expect((await chat(none, TEE)).status).toBe(200);
  });

  it('at one of several backends leaves tee to the others', async () => {
    const good = await startBackend(SENSE);
    onTestFinished(() => good.close());
    const file = join(service.folder.path, 'backends.json');
    const env = { BACKEND_URL: '', BACKENDS_FILE: file };
    const backends = (...urls: string[]) =>
      writeFileSync(file, JSON.stringify({ backends: urls.map((one, i) => ({ url: one, name: `b${i}` })) }));
    backends(service.backend.url, good.url);
    const url = await gatewayWith(env);
    expect((await health(url)).json().backend.canary).toMatchObject({ state: 'wrong', backend: 'b0' });
    expect(await statuses(url)).toEqual([200, 200, 200, 200, 200]);
    const asked = service.backend.seen.length;
    for (let i = 0; i < 4; i++) expect((await chat(url, TEE)).status).toBe(200);
    expect(service.backend.seen).toHaveLength(asked);
    for (let i = 0; i < 2; i++) expect((await chat(url, CHAT)).status).toBe(200);
    expect(service.backend.seen).toHaveLength(asked + 1);
    backends(service.backend.url);
    const alone = await gatewayWith(env);
    expect(await statuses(alone)).toEqual([200, 503, 503, 503, 503]);
    expectError(await chat(alone, TEE), 503, 'attestation_unavailable');
    expect((await chat(alone, CHAT)).status).toBe(200);
  });
});

it('the queue of signatures holds what waits for a sidecar that is away', async () => {
  const { url } = service.gateway;
  await connected(url);
  const gauges = async () => {
    const samples = parseSamples((await ask(`${url}/metrics`, { method: 'GET' })).text);
    return ['depth', 'age_seconds'].map((name) => samples.value(`countersign_signing_queue_${name}`) ?? -1);
  };
  expect(await gauges()).toEqual([0, 0]);
  await service.sidecar.close();
  await eventually(async () => (await health(url)).json().sidecar.status === 'connecting');
  const waiting = [chat(url, TEE), chat(url, { ...TEE, seed: 1 })];
  await eventually(async () => (await gauges())[0] === 2);
  await eventually(async () => ((await gauges())[1] ?? 0) > 0.2);
  (service as { sidecar: unknown }).sidecar = await startSidecar(service.folder);
  for (const { status } of await Promise.all(waiting)) expect(status).toBe(200);
  expect(await gauges()).toEqual([0, 0]);
});
