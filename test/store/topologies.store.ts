// Gateways over a cluster, over a server that sentinels replace, and over TLS with a password in a file.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { openConnection } from '../../gateway/base/store-connection.ts';
import { expectError } from '../gateway/expect-error.ts';
import { bearer, type Stage, startStage } from '../gateway/limits/limits-stage.ts';
import { chatAnswer } from '../support/backend.ts';
import { writeCertificate } from '../support/certificate.ts';
import { ask, CHAT, chat } from '../support/client.ts';
import { eventually, type Folder, freePort, temporaryFolder } from '../support/harness.ts';
import { PASSWORD, type StoreServer, serverProgram, startStoreServer } from './server.ts';

const program = serverProgram() as string;
const SLOTS = 16_384;
const SHARDS = 3;
let stage: Stage;
let folder: Folder;
let keys = 0;

beforeAll(async () => {
  folder = temporaryFolder();
  stage = await startStage();
}, 240_000);
beforeEach(() => {
  stage.service.backend.script = chatAnswer('Hello.');
});
afterAll(async () => {
  await stage?.close();
  folder?.remove();
});

async function start(...args: Parameters<typeof startStoreServer> extends [string, ...infer Rest] ? Rest : never) {
  const server = await startStoreServer(program, ...args);
  onTestFinished(() => server.close());
  return server;
}

const health = async (url: string) => (await ask(`${url}/health`, { method: 'GET' })).json().store.status;
const find = (url: string, id: unknown, key: string) =>
  ask(`${url}/v1/chat/completions/${id}/attestation`, { method: 'GET', headers: bearer(key) });

/** Two gateways over the store, with a key of a rate and a budget. */
async function gateways(store: string): Promise<{ one: string; two: string; key: string }> {
  const key = `many-${keys++}`;
  const env = { ATTESTATION_STORE_URL: store, limits: { attestation_store_timeout_ms: 1000 } };
  const limits = [`${key} tokens-per-day=1000 rps=1000 concurrent=0`];
  const one = await stage.gateway(env, limits);
  const two = await stage.gateway(env, limits);
  for (const url of [one, two]) await eventually(async () => (await health(url)) === 'connected', 20_000);
  return { one, two, key };
}

/** What one gateway made another finds, and both count one budget. */
async function expectShared({ one, two, key }: { one: string; two: string; key: string }): Promise<void> {
  for (let i = 0; i < 6; i++) {
    const made = await chat(one, { ...CHAT, tee: i % 2 === 0 ? true : { batch: true }, max_tokens: 1 }, bearer(key));
    expect(made.status).toBe(200);
    const id = made.headers['x-attestation-id'];
    await eventually(async () => (await find(two, id, key)).status === 200, 5_000);
    expect((await find(two, id, key)).json()).toEqual(made.json().attestation);
  }
  const spent = async (url: string) =>
    (await ask(`${url}/usage`, { method: 'GET', headers: bearer(key) })).json().tokens_today;
  await eventually(async () => (await spent(two)) >= 30, 10_000);
  expectError(await chat(two, { ...CHAT, max_tokens: 990 }, bearer(key)), 429, 'insufficient_quota');
  expect((await chat(two, { ...CHAT, max_tokens: 1 }, bearer(key))).status).toBe(200);
}

/** Three servers that share the slots. */
async function startCluster(): Promise<readonly StoreServer[]> {
  const buses = await Promise.all(Array.from({ length: SHARDS }, freePort));
  const servers = await Promise.all(
    buses.map((bus) =>
      start([
        ...['--cluster-enabled', 'yes', '--cluster-port', `${bus}`, '--cluster-node-timeout', '2000'],
        ...['--cluster-require-full-coverage', 'no'],
      ]),
    ),
  );
  for (const [i, server] of servers.entries()) {
    const [from, to] = [i, i + 1].map((part) => Math.ceil((part * SLOTS) / SHARDS)) as [number, number];
    expect(await server.ask('CLUSTER', 'ADDSLOTSRANGE', `${from}`, `${to - 1}`)).toContain('+OK');
    await servers[0]?.ask('CLUSTER', 'MEET', '127.0.0.1', `${server.port}`, `${buses[i]}`);
  }
  for (const server of servers)
    await eventually(async () => {
      const info = await server.ask('CLUSTER', 'INFO');
      return info.includes('cluster_state:ok') && info.includes(`cluster_slots_ok:${SLOTS}`);
    }, 20_000);
  return servers;
}

describe.skipIf(program === null)('a store of several servers', () => {
  it('is a cluster: what a script counts together lies on one node, and a node that is away takes only its part', async () => {
    const servers = await startCluster();
    const hosts = servers.slice(0, 2).map(({ port }) => `127.0.0.1:${port}`);
    const url = `valkey://:${PASSWORD}@${hosts.join(',')}?cluster`;
    const shared = await gateways(url);
    await expectShared(shared);
    const sizes = await Promise.all(
      servers.map(async (server) => Number(/:(\d+)/.exec((await server.ask('DBSIZE')).replace('+OK', ''))?.[1])),
    );
    for (const size of sizes) expect(size).toBeGreaterThan(0);
    const away = servers[2] as StoreServer;
    await away.stop();
    for (const gateway of [shared.one, shared.two]) {
      await eventually(async () => (await health(gateway)) === 'away', 10_000);
      const began_ms = performance.now();
      expect((await chat(gateway, { ...CHAT, tee: true, max_tokens: 1 }, bearer(shared.key))).status).toBe(200);
      expect(performance.now() - began_ms).toBeLessThan(4_000);
    }
    await away.start();
    for (const gateway of [shared.one, shared.two])
      await eventually(async () => (await health(gateway)) === 'connected', 30_000);
  });

  it('is what sentinels name: another server takes the place of one that was killed', async () => {
    const master = await start(['--masterauth', PASSWORD]);
    const replica = await start(['--masterauth', PASSWORD, '--replicaof', '127.0.0.1', `${master.port}`]);
    await eventually(async () => /master_link_status:up/.test(await replica.ask('INFO', 'replication')), 20_000);
    const sentinels = await Promise.all(
      [0, 1, 2].map(() =>
        start(
          [],
          [
            `sentinel monitor mine 127.0.0.1 ${master.port} 2`,
            `sentinel auth-pass mine ${PASSWORD}`,
            'sentinel down-after-milliseconds mine 1000',
            'sentinel failover-timeout mine 5000',
            `sentinel sentinel-pass ${PASSWORD}`,
          ],
        ),
      ),
    );
    for (const sentinel of sentinels)
      await eventually(async () => {
        const text = await sentinel.ask('SENTINEL', 'MASTER', 'mine');
        return /num-slaves\r\n\$1\r\n1\r\n/.test(text) && /num-other-sentinels\r\n\$1\r\n2\r\n/.test(text);
      }, 20_000);
    const file = join(folder.path, 'sentinel-password');
    writeFileSync(file, `${PASSWORD}\n`);
    const hosts = sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',');
    const url = `redis://:${PASSWORD}@${hosts}?sentinel=mine&sentinel_password_file=${file}`;
    const shared = await gateways(url);
    await expectShared(shared);
    await master.stop();
    for (const gateway of [shared.one, shared.two])
      expect((await chat(gateway, { ...CHAT, tee: true, max_tokens: 1 }, bearer(shared.key))).status).toBe(200);
    await eventually(async () => /role:master/.test(await replica.ask('INFO', 'replication')), 30_000);
    for (const gateway of [shared.one, shared.two])
      await eventually(async () => (await health(gateway)) === 'connected', 30_000);
    const made = await chat(shared.one, { ...CHAT, tee: true, max_tokens: 1 }, bearer(shared.key));
    await eventually(
      async () => (await find(shared.two, made.headers['x-attestation-id'], shared.key)).status === 200,
      10_000,
    );
  });
});

describe.skipIf(program === null)('a store over TLS', () => {
  it('is trusted by its authority’s file, and its password is in a file that may change', async () => {
    const { certFile, keyFile } = writeCertificate(folder.path);
    const tls = await freePort();
    const server = await start([
      ...['--tls-port', `${tls}`, '--tls-cert-file', certFile, '--tls-key-file', keyFile, '--tls-auth-clients', 'no'],
    ]);
    const file = join(folder.path, 'password');
    writeFileSync(file, `${PASSWORD}\n`);
    const url = `rediss://127.0.0.1:${tls}?ca_file=${certFile}&password_file=${file}`;
    await expectShared(await gateways(url));

    const states: string[] = [];
    const connection = openConnection({ url, timeout_ms: 500, onState: (_up, reason) => states.push(reason) });
    onTestFinished(() => connection.close());
    await eventually(() => connection.isReady);
    await server.ask('CONFIG', 'SET', 'requirepass', 'changed');
    writeFileSync(file, 'changed\n');
    server.signal('SIGSTOP');
    await expect(connection.run((client) => client.ping())).rejects.toThrow('no answer in time');
    server.signal('SIGCONT');
    await eventually(() => connection.isReady);
    expect(await connection.run((client) => client.ping())).toBe('PONG');
    expect(states).toEqual(['ready', 'no answer in time', 'ready']);

    // Without the authority's file the certificate is a stranger's, and a wrong password opens nothing.
    writeFileSync(join(folder.path, 'wrong'), 'wrong\n');
    for (const refused of [
      `rediss://127.0.0.1:${tls}?password_file=${file}`,
      `rediss://127.0.0.1:${tls}?ca_file=${certFile}&password_file=${join(folder.path, 'wrong')}`,
    ]) {
      const reasons: string[] = [];
      const other = openConnection({ url: refused, timeout_ms: 500, onState: (_up, reason) => reasons.push(reason) });
      await eventually(() => reasons.length > 0);
      await sleep(200);
      expect(other.isReady).toBe(false);
      expect(reasons.join()).not.toContain('wrong');
      await other.close();
    }
    const again = openConnection({ url, timeout_ms: 500 });
    await eventually(() => again.isReady);
    await again.close();
  });

  it('does not start without a file that it names', () => {
    const url = `rediss://127.0.0.1:1?ca_file=${join(folder.path, 'none')}`;
    expect(() => openConnection({ url, timeout_ms: 500 })).toThrow(/ATTESTATION_STORE_URL: .*ENOENT/);
  });
});
