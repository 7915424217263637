import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createSimulatedCpu } from '../../demo/twin/cpu.ts';
import { chatAnswer } from '../support/backend.ts';
import { CHAT } from '../support/client.ts';
import {
  eventually,
  type Folder,
  type RunningGateway,
  type Service,
  startGateway,
  startService,
  temporaryFolder,
} from '../support/harness.ts';
import { currentKey, messageOf, post, sealedAsk, sealMessage, textOf } from '../support/sealed-client.ts';
import { type StoreServer, serverProgram, startStoreServer } from './server.ts';

const BODY = JSON.stringify(CHAT);
const program = serverProgram();
let folder: Folder;
let server: StoreServer;
let service: Service;
let other: RunningGateway;
let urls: readonly [string, string];

beforeAll(async () => {
  if (program === null) return;
  folder = temporaryFolder();
  server = await startStoreServer(program);
  const env = { ATTESTATION_STORE_URL: server.url, limits: { attestation_store_timeout_ms: 300 } };
  const collector = await createSimulatedCpu({ type: 'SEV_SNP', rootDir: folder.path });
  service = await startService(env, { cpu: { collector, required: true } });
  service.backend.script = chatAnswer('Hello.');
  other = await startGateway({
    ...env,
    BACKEND_URL: service.backend.url,
    SIDECAR_SOCKET: service.sidecar.socket,
  });
  urls = [service.gateway.url, other.url];
}, 240_000);
afterAll(async () => {
  await other?.close();
  await service?.close();
  await server?.close();
  folder?.remove();
});

const sealed = async () => (await sealMessage(await currentKey(urls[0]), messageOf({ body: BODY }))).chunks;
async function postTo(url: string, chunks: readonly Uint8Array[]): Promise<{ status: number; text: string }> {
  const outer = await post(url, chunks);
  const { status } = outer;
  return { status, text: await textOf(outer) };
}

describe.skipIf(program === null)('sealed requests at two gateways that share a store', () => {
  it('open once, whichever of the gateways they come to, and the store knows it for as long as keys live', async () => {
    await eventually(async () => (await sealedAsk(urls[1], { body: BODY }, await currentKey(urls[0]))).status === 200);
    const chunks = await sealed();
    const asked = await Promise.all([0, 1, 0, 1].map((i) => postTo(urls[i] ?? '', chunks)));
    expect(asked.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409]);
    const names = (await server.ask('KEYS', 'countersign:sealed:*')).match(/countersign:sealed:\S+/g) ?? [];
    expect(names.length).toBeGreaterThanOrEqual(2);
    for (const name of names) {
      const ttl_ms = Number(/:(-?\d+)/.exec((await server.ask('PTTL', name)).replace('+OK\r\n', ''))?.[1]);
      expect(ttl_ms).toBeGreaterThan(2 * 3_600_000);
      expect(ttl_ms).toBeLessThanOrEqual(2 * 3_600_000 + 600_000);
    }
  });

  it('are refused in time while the store hangs, or has no room, and are served again after', async () => {
    const before = await sealed();
    expect((await postTo(urls[0], before)).status).toBe(200);
    for (const [away, back] of [
      [async () => server.signal('SIGSTOP'), async () => server.signal('SIGCONT')],
      [() => server.ask('CONFIG', 'SET', 'maxmemory', '1'), () => server.ask('CONFIG', 'SET', 'maxmemory', '0')],
    ] as const) {
      await away();
      for (const url of urls) {
        const began_ms = performance.now();
        const refused = await postTo(url, await sealed());
        expect([refused.status, JSON.parse(refused.text).error.code]).toEqual([503, 'store_unavailable']);
        expect(performance.now() - began_ms).toBeLessThan(2_000);
      }
      await back();
      for (const url of urls) await eventually(async () => (await postTo(url, await sealed())).status === 200, 10_000);
      for (const url of urls) expect((await postTo(url, before)).status).toBe(409);
    }
  });
});
