// The keys of sealed requests: changed with the session, told again to a sidecar that comes back; and each request once.
import { randomBytes } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createSimulatedCpu } from '../../../demo/twin/cpu.ts';
import { createSeeds, readSeeds, type Seed, writeSeeds } from '../../../gateway/sealing/seeds.ts';
import { chooseKey } from '../../../sealed/index.ts';
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
import { currentKeys, FROM_ANYWHERE, retryingClient, sealedAsk } from '../../support/sealed-client.ts';

const BODY = JSON.stringify(CHAT);

describe('the seeds of keys', () => {
  const make = (max?: number) => {
    const lists: (readonly Seed[])[] = [];
    const seeds = createSeeds((list) => {
      lists.push(list);
      seeds.set(list);
    }, max);
    const ids = () => seeds.current.map(({ id }) => id);
    return { seeds, lists, ids, newest: () => ids()[0] as number };
  };

  it('move on when a session names the newest, and keep those of the session before', () => {
    const { seeds, lists, ids, newest } = make();
    const first = newest();
    seeds.named(first);
    expect(ids()).toEqual([newest(), first]);
    seeds.named(first);
    seeds.named(12345);
    expect(lists).toHaveLength(1);
    const second = newest();
    seeds.named(second);
    const third = newest();
    seeds.named(third);
    expect(ids()).toEqual([newest(), third, second]);
    expect(new Set([first, ...ids()]).size).toBe(4);
    const firstIds = seeds.current.map(({ first_id }) => first_id);
    expect(new Set(firstIds).size).toBe(3);
    expect(firstIds.every((id) => id >= 0 && id < 256 && id % 2 === 0)).toBe(true);
    const secrets = seeds.current.flatMap((seed) => seed.secrets.map((one) => Buffer.from(one).toString('hex')));
    expect(new Set(secrets).size).toBe(6);
  });

  it('open each request once, and none whose keys have ended', () => {
    const { seeds, newest } = make();
    const first = newest();
    const enc = randomBytes(32);
    expect([seeds.admit(first, enc), seeds.admit(first, enc)]).toEqual(['admitted', 'replayed']);
    seeds.named(first);
    const second = newest();
    expect(seeds.admit(first, enc)).toBe('replayed');
    expect(seeds.admit(second, enc)).toBe('admitted');
    seeds.named(second);
    seeds.named(newest());
    expect(seeds.admit(first, randomBytes(32))).toBe('ended');
    expect(seeds.admit(second, enc)).toBe('replayed');
  });

  it('end early when their keys have opened as many requests as are remembered', () => {
    const { seeds, ids, lists, newest } = make(3);
    const first = newest();
    seeds.named(first);
    const second = newest();
    for (let i = 0; i < 3; i++) expect(seeds.admit(first, randomBytes(32))).toBe('admitted');
    expect(ids()).toEqual([second]);
    expect(lists.at(-1)).toEqual(seeds.current);
    expect(seeds.admit(first, randomBytes(32))).toBe('ended');
    // Those of a session to come, should somebody know them before.
    for (let i = 0; i < 3; i++) seeds.admit(second, randomBytes(32));
    expect(ids()).toEqual([expect.not.toSatisfy((id) => id === first || id === second)]);
  });

  it('open no more than are remembered, also while other gateways have not yet agreed to new ones', () => {
    const proposed: (readonly Seed[])[] = [];
    const seeds = createSeeds((list) => proposed.push(list), 2);
    const id = seeds.current[0]?.id as number;
    const admitted = Array.from({ length: 4 }, () => seeds.admit(id, randomBytes(32)));
    expect(admitted).toEqual(['admitted', 'admitted', 'ended', 'ended']);
    // Each proposal may have come too late.
    expect(proposed).toHaveLength(3);
  });

  it('come to another gateway as they are, and in no other form', () => {
    const { seeds, newest } = make();
    seeds.named(newest());
    const text = writeSeeds(seeds.current);
    expect(text.length).toBeLessThan(8 * 1024);
    expect(readSeeds(text)).toEqual(seeds.current.map((seed) => ({ ...seed, secrets: seed.secrets.map(Buffer.from) })));
    const other = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64');
    for (const wrong of ['', 'AAAA', other([]), other([{ id: 1, first_id: 0, secrets: ['c2VjcmV0'] }])])
      expect(() => readSeeds(wrong)).toThrow(/^the shared seeds have another form$/);
  });
});

describe('the keys of a gateway', () => {
  let folder: Folder;
  let service: Service;
  let gateway: GatewayProcess | null;

  /** Sessions of `life_s` are renewed at half of what is left of it after five minutes. */
  async function start(life_s?: number, env: Record<string, string> = {}): Promise<void> {
    folder = temporaryFolder();
    const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });
    service = await startService(
      { ...FROM_ANYWHERE, ...env },
      {
        cpu: { collector, required: true, ...(life_s === undefined ? {} : { life_s }) },
      },
    );
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
    const clients = Array.from({ length: 4 }, () => retryingClient(url, BODY));
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
