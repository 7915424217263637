// Sealed requests at two gateways with one store and one sidecar: the same keys, each request once, whichever of them it comes to.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createSimulatedCpu } from '../../../demo/twin/cpu.ts';
import { chatAnswer } from '../../support/backend.ts';
import { CHAT } from '../../support/client.ts';
import {
  eventually,
  type Folder,
  type RunningGateway,
  type Service,
  startGateway,
  startService,
  startSidecar,
  temporaryFolder,
} from '../../support/harness.ts';
import {
  currentKey,
  currentKeys,
  FROM_ANYWHERE,
  messageOf,
  open,
  post,
  retryingClient,
  sealedAsk,
  sealMessage,
  textOf,
} from '../../support/sealed-client.ts';
import { type FakeStore, startFakeStore } from '../../support/store.ts';

const BODY = JSON.stringify(CHAT);
let folder: Folder;
let store: FakeStore;
let service: Service;
let other: RunningGateway;
/** Of the two gateways. */
let urls: readonly [string, string];

/** Sessions of `life_s` are renewed at half of what is left of it after five minutes. */
async function start(life_s?: number): Promise<void> {
  const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });
  service = await startService(env(), {
    cpu: { collector, required: true, ...(life_s === undefined ? {} : { life_s }) },
  });
  service.backend.script = chatAnswer('Hello.');
  other = await startOther();
  urls = [service.gateway.url, other.url];
  for (const url of urls) await published(url);
}
const env = () => ({
  ...FROM_ANYWHERE,
  ATTESTATION_STORE_URL: store.url,
  limits: { attestation_store_timeout_ms: 300 },
});
const startOther = () =>
  startGateway({ ...env(), BACKEND_URL: service.backend.url, SIDECAR_SOCKET: service.sidecar.socket });
/** The keys that a gateway publishes, once it has some. */
async function published(url: string): Promise<string> {
  let document = '';
  await eventually(async () => {
    const response = await fetch(`${url}/.well-known/ohttp-keys`);
    document = Buffer.from(await response.arrayBuffer()).toString('hex');
    return response.status === 200;
  });
  return document;
}
const codeOf = async (outer: Awaited<ReturnType<typeof post>>) => JSON.parse(await textOf(outer)).error.code;

beforeEach(async () => {
  folder = temporaryFolder();
  store = await startFakeStore();
});
afterEach(async () => {
  await other.close();
  await service.close();
  await store.stop();
  folder.remove();
});

describe('two gateways at one sidecar', () => {
  it('open what is sealed to the key of either, and each request once', async () => {
    await start();
    const [one, two] = urls;
    expect(await published(two)).toBe(await published(one));
    const key = await currentKey(one);
    expect((await sealedAsk(two, { body: BODY }, key)).status).toBe(200);
    const { request, chunks } = await sealMessage(key, messageOf({ body: BODY }));
    const asked = await Promise.all([one, two, one, two, one, two].map((url) => post(url, chunks)));
    expect(asked.map(({ status }) => status).sort()).toEqual([200, ...Array(5).fill(409)]);
    for (const outer of asked)
      if (outer.status === 200) expect((await open(request, outer.body)).status).toBe(200);
      else expect(await codeOf(outer)).toBe('sealed_replayed');
    // The store knows neither key nor content.
    const names = [...store.kept.keys()].filter((name) => name.startsWith('countersign:sealed:'));
    expect(names).toHaveLength(2);
    for (const name of names) expect([name, store.kept.get(name)]).toEqual([expect.stringMatching(/:[\w-]{43}$/), '1']);
  });

  it('change their keys together under load, and nothing fails except for one retry', async () => {
    await start(304);
    const clients = urls.map((url) => retryingClient(url, BODY));
    const documents = new Set<string>();
    const end = performance.now() + 5_000;
    await Promise.all([
      ...clients.map(async (one) => {
        while (performance.now() < end) await one.ask();
      }),
      (async () => {
        while (performance.now() < end) {
          // A key that one publishes opens at the other too, also while they change.
          const [at, elsewhere] = documents.size % 2 === 0 ? urls : [urls[1], urls[0]];
          const { document } = await currentKeys(at);
          documents.add(Buffer.from(document).toString('hex'));
          expect((await sealedAsk(elsewhere, { body: BODY }, await currentKey(at))).status).toBe(200);
          await new Promise((resolve) => setTimeout(resolve, 100));
        }
      })(),
    ]);
    expect(clients.flatMap(({ stats }) => stats.failed)).toEqual([]);
    expect(documents.size).toBeGreaterThanOrEqual(2);
    for (const { stats } of clients) expect(stats.served).toBeGreaterThan(10);
  }, 40_000);

  it('keep the key of the session when one of them is restarted, and it opens what the other published', async () => {
    await start();
    const [one, two] = urls;
    const { document, statement } = await currentKeys(one);
    const key = await currentKey(one);
    await other.close();
    expect((await sealedAsk(one, { body: BODY }, key)).status).toBe(200);
    other = await startOther();
    expect(other.url).not.toBe(two);
    expect(await published(other.url)).toBe(Buffer.from(document).toString('hex'));
    expect((await sealedAsk(other.url, { body: BODY }, key)).status).toBe(200);
    expect((await currentKeys(other.url)).statement).toBe(statement);
  });

  it('keep their keys when the sidecar is restarted', async () => {
    await start();
    const before = await currentKey(urls[0]);
    await service.sidecar.close();
    const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });
    const again = await startSidecar(service.folder, { cpu: { collector, required: true } });
    try {
      await eventually(async () => (await published(urls[0])) === (await published(urls[1])));
      for (const url of urls) expect((await sealedAsk(url, { body: BODY }, before)).status).toBe(200);
      for (const url of urls) expect((await sealedAsk(url, { body: BODY })).status).toBe(200);
    } finally {
      await again.close();
    }
  });

  it('refuse sealed requests while their store is away, and never open one twice', async () => {
    await start();
    const [one, two] = urls;
    const key = await currentKey(one);
    const { chunks } = await sealMessage(key, messageOf({ body: BODY }));
    expect((await post(one, chunks)).status).toBe(200);
    await store.stop();
    const asked_ms = performance.now();
    for (const url of urls) {
      const refused = await post(url, (await sealMessage(key, messageOf({ body: BODY }))).chunks);
      expect([refused.status, Number(refused.headers['retry-after']) > 0]).toEqual([503, true]);
      expect(await codeOf(refused)).toBe('store_unavailable');
    }
    expect(performance.now() - asked_ms).toBeLessThan(2_000);
    // The one that opened it remembers it by itself; the other cannot know.
    expect((await post(one, chunks)).status).toBe(409);
    expect((await post(two, chunks)).status).toBe(503);
    const seen = service.backend.seen.length;
    await store.start();
    await eventually(async () => {
      const outer = await post(two, (await sealMessage(key, messageOf({ body: BODY }))).chunks);
      await textOf(outer);
      return outer.status === 200;
    });
    expect(service.backend.seen.length).toBeGreaterThan(seen);
    for (const url of urls) expect((await post(url, chunks)).status).toBe(409);
  });
});
