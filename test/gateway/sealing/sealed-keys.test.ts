// The keys of sealed requests: changed with the session, told again to a sidecar that comes back; and each request once.
import { randomBytes } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createSeeds, type Seed } from '../../../gateway/sealing/seeds.ts';
import { chooseKey, type SealingKey } from '../../../sealed/index.ts';
import { createSimulatedCpu } from '../../../sidecar/cpu/simulated/simulated.ts';
import { chatAnswer } from '../../support/backend.ts';
import { CHAT } from '../../support/client.ts';
import { type GatewayProcess, startGatewayProcess } from '../../support/gateway-process.ts';
import {
  eventually,
  type Folder,
  type Service,
  startService,
  startSidecar,
  temporaryFolder,
} from '../../support/harness.ts';
import {
  currentKey,
  currentKeys,
  messageOf,
  open,
  post,
  sealedAsk,
  sealMessage,
  textOf,
} from '../../support/sealed-client.ts';

const BODY = JSON.stringify(CHAT);

describe('the seeds of keys', () => {
  const make = (max?: number) => {
    const lists: (readonly Seed[])[] = [];
    const seeds = createSeeds((list) => lists.push(list), max);
    return { seeds, lists, numbers: () => seeds.current.map(({ n }) => n) };
  };

  it('move on when a session names the newest, and keep those of the session before', () => {
    const { seeds, lists, numbers } = make();
    const [first = 0] = numbers();
    seeds.named(first);
    expect(numbers()).toEqual([first + 1, first]);
    seeds.named(first);
    seeds.named(12345);
    expect(lists).toHaveLength(1);
    seeds.named(first + 1);
    seeds.named(first + 2);
    expect(numbers()).toEqual([first + 3, first + 2, first + 1]);
    const ids = seeds.current.map(({ first_id }) => first_id);
    expect(new Set(ids).size).toBe(3);
    expect(ids.every((id) => id >= 0 && id < 256 && id % 2 === 0)).toBe(true);
    const secrets = seeds.current.flatMap((seed) => seed.secrets.map((one) => Buffer.from(one).toString('hex')));
    expect(new Set(secrets).size).toBe(6);
  });

  it('open each request once, and none whose keys have ended', () => {
    const { seeds, numbers } = make();
    const [first = 0] = numbers();
    const enc = randomBytes(32);
    expect([seeds.admit(first, enc), seeds.admit(first, enc)]).toEqual(['admitted', 'replayed']);
    seeds.named(first);
    expect(seeds.admit(first, enc)).toBe('replayed');
    expect(seeds.admit(first + 1, enc)).toBe('admitted');
    seeds.named(first + 1);
    seeds.named(first + 2);
    expect(seeds.admit(first, randomBytes(32))).toBe('ended');
    expect(seeds.admit(first + 1, enc)).toBe('replayed');
  });

  it('end early when their keys have opened as many requests as are remembered', () => {
    const { seeds, numbers, lists } = make(3);
    const [first = 0] = numbers();
    seeds.named(first);
    for (let i = 0; i < 3; i++) expect(seeds.admit(first, randomBytes(32))).toBe('admitted');
    expect(numbers()).toEqual([first + 1]);
    expect(lists.at(-1)).toEqual(seeds.current);
    expect(seeds.admit(first, randomBytes(32))).toBe('ended');
    // Those of a session to come, should somebody know them before.
    for (let i = 0; i < 3; i++) seeds.admit(first + 1, randomBytes(32));
    expect(numbers()).toEqual([first + 2]);
  });
});

/** Asks as clients do: on an unknown key they take the current session's, once. Counts how often. */
function client(url: string) {
  let key: SealingKey | null = null;
  const stats = { retries: 0, served: 0, failed: [] as string[] };
  async function once(): Promise<boolean> {
    key ??= await currentKey(url);
    const { request, chunks } = await sealMessage(key, messageOf({ body: BODY }));
    const outer = await post(url, chunks);
    if (outer.status === 422 && JSON.parse(await textOf(outer)).error.code === 'sealed_key_unknown') {
      key = null;
      return false;
    }
    if (outer.status !== 200) {
      stats.failed.push(`${outer.status} ${await textOf(outer)}`);
      return true;
    }
    const { status } = await open(request, outer.body);
    if (status === 200) stats.served++;
    else stats.failed.push(`inside ${status}`);
    return true;
  }
  return {
    stats,
    async ask(): Promise<void> {
      if (await once()) return;
      stats.retries++;
      if (!(await once())) stats.failed.push('the key is unknown twice');
    },
  };
}

describe('the keys of a gateway', () => {
  let folder: Folder;
  let service: Service;
  let gateway: GatewayProcess | null;

  /** Sessions of `life_s` are renewed at half of what is left of it after five minutes. */
  async function start(life_s?: number, env: Record<string, string> = {}): Promise<void> {
    folder = temporaryFolder();
    const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });
    service = await startService(env, {
      cpu: { collector, required: true, ...(life_s === undefined ? {} : { life_s }) },
    });
    service.backend.script = chatAnswer('Hello.');
  }
  async function startProcess(): Promise<GatewayProcess> {
    const env = { BACKEND_URL: service.backend.url, SIDECAR_SOCKET: service.sidecar.socket };
    const started = await startGatewayProcess({ ...env, CANARY_INTERVAL_MS: '0' });
    gateway = started;
    return started;
  }
  /** Two gateways of one sidecar would end each other's keys. */
  const NOT_THIS_ONE = { SEALED: 'off' };
  beforeEach(() => {
    gateway = null;
  });
  afterEach(async () => {
    await gateway?.stop('SIGTERM');
    await service.close();
    folder.remove();
  });

  it('change under load, and nothing fails except for one retry', async () => {
    await start(302);
    const { url } = service.gateway;
    const clients = Array.from({ length: 4 }, () => client(url));
    const documents = new Set<string>();
    const end = performance.now() + 5_000;
    await Promise.all([
      ...clients.map(async (one) => {
        while (performance.now() < end) await one.ask();
      }),
      (async () => {
        while (performance.now() < end) {
          documents.add(Buffer.from((await currentKeys(url)).document).toString('base64'));
          await new Promise((resolve) => setTimeout(resolve, 200));
        }
      })(),
    ]);
    expect(clients.flatMap(({ stats }) => stats.failed)).toEqual([]);
    expect(documents.size).toBeGreaterThanOrEqual(4);
    for (const { stats } of clients) {
      expect(stats.served).toBeGreaterThan(20);
      expect(stats.retries).toBeGreaterThan(0);
      expect(stats.retries).toBeLessThanOrEqual(documents.size);
    }
  });

  it('of the session before still open, and those before it do not', async () => {
    await start(304);
    const { url } = service.gateway;
    const [one, two] = [await currentKeys(url), await currentKeys(url)];
    expect(two.document).toEqual(one.document);
    const key = await chooseKey(one.document);
    const changed = async (from: Uint8Array) => {
      await eventually(async () => !Buffer.from((await currentKeys(url)).document).equals(from));
      return (await currentKeys(url)).document;
    };
    const next = await changed(one.document);
    expect((await sealedAsk(url, { body: BODY }, key)).status).toBe(200);
    await changed(next);
    await expect(sealedAsk(url, { body: BODY }, key)).rejects.toThrow('sealed_key_unknown');
  });

  it('are told again to a sidecar that was restarted, which names them', async () => {
    await start();
    const { url } = service.gateway;
    const before = (await currentKeys(url)).document;
    await service.sidecar.close();
    const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });
    const again = await startSidecar(service.folder, { cpu: { collector, required: true } });
    try {
      await eventually(async () => (await fetch(`${url}/.well-known/ohttp-keys`)).status === 200);
      const after = await currentKeys(url);
      expect(after.document).not.toEqual(before);
      expect((await sealedAsk(url, { body: BODY }, await chooseKey(after.document))).status).toBe(200);
    } finally {
      await again.close();
    }
  });

  it('are made and open a request without a warning of Node among the log lines', async () => {
    await start(undefined, NOT_THIS_ONE);
    const running = await startProcess();
    await eventually(async () => (await fetch(`${running.url}/.well-known/ohttp-keys`)).status === 200);
    expect((await sealedAsk(running.url, { body: BODY })).status).toBe(200);
    const others = running.output().split('\n');
    expect(others.filter((line) => line !== '' && !line.startsWith('{'))).toEqual([]);
  });
});
