import { request } from 'node:http';
import { pino } from 'pino';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openConnection } from '../../gateway/base/store-connection.ts';
import { expectError } from '../gateway/expect-error.ts';
import { bearer, holdResponses, type Stage, startStage } from '../gateway/limits/limits-stage.ts';
import { chatAnswer, chatStream } from '../support/backend.ts';
import { ask, CHAT, chat } from '../support/client.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { eventually, startGateway } from '../support/harness.ts';
import { PASSWORD, type StoreServer, serverProgram, startStoreServer } from './server.ts';

const TEE = { ...CHAT, tee: true };
const KEYS = ['a', 'b'];
const program = serverProgram();
let server: StoreServer;
let stage: Stage;
let one: string;
let two: string;

beforeAll(async () => {
  if (program === null) return;
  server = await startStoreServer(program);
  stage = await startStage();
  const env = { ATTESTATION_STORE_URL: server.url, limits: { attestation_store_timeout_ms: 300 } };
  one = await stage.gateway(env, KEYS);
  two = await stage.gateway(env, KEYS);
  await connected();
}, 240_000);
beforeEach(() => {
  stage.service.backend.script = chatAnswer('Hello.');
});
afterAll(async () => {
  await stage?.close();
  await server?.close();
});

const find = (url: string, id: unknown, key = 'a', endpoint = 'chat/completions') =>
  ask(`${url}/v1/${endpoint}/${id}/attestation`, { method: 'GET', headers: bearer(key) });
/** Both gateways reach the server: neither knows the id, and both can say so. */
const connected = () =>
  eventually(async () => {
    const statuses = await Promise.all([one, two].map(async (url) => (await find(url, 'nobody')).status));
    return statuses.every((status) => status === 404);
  }, 10_000);

describe.skipIf(program === null)('gateways that share a store', () => {
  it('find what another made, by our id and by the completion’s, for the key that asked alone', async () => {
    stage.service.backend.script = chatAnswer('Hello.', 'chatcmpl-shared');
    const got = await chat(one, TEE, bearer('a'));
    const id = got.headers['x-attestation-id'];
    for (const url of [one, two])
      for (const name of [id, 'chatcmpl-shared']) {
        const found = await find(url, name);
        expect([found.status, found.json()]).toEqual([200, got.json().attestation]);
        expectError(await find(url, name, 'b'), 404, 'not_found', 'id');
      }
  });

  it('answer 425 for a stream that runs on another, and forget one that failed', async () => {
    const held = holdResponses(stage.service);
    const id = await new Promise<string>((resolve) => {
      request(
        `${one}/v1/chat/completions`,
        { method: 'POST', headers: { ...bearer('a'), 'content-type': 'application/json' } },
        (incoming) => {
          resolve(String(incoming.headers['x-attestation-id']));
          incoming.resume();
        },
      ).end(JSON.stringify({ ...TEE, stream: true }));
    });
    const running = await find(two, id);
    expectError(running, 425, 'attestation_pending', 'id');
    held.release();
    await eventually(async () => (await find(two, id)).status === 200);
    stage.service.backend.script = (_request, response) => void response.destroy();
    const failed = await chat(one, TEE, bearer('a'));
    expect(failed.status).toBe(502);
    await eventually(async () => (await find(two, failed.headers['x-request-id'])).status === 404);
  });

  it('leave nothing pending: not what was cut, nor what the store has no room for, nor for long what was killed', async () => {
    const { backend, sidecar } = stage.service;
    const env = { BACKEND_URL: backend.url, SIDECAR_SOCKET: sidecar.socket, ATTESTATION_STORE_URL: server.url };
    const other = await startGateway(env);
    const ending = await startGatewayProcess({ ...env, DRAIN_MS: '300' });
    backend.script = chatStream(Array(100).fill('word '), 100);
    const id = await new Promise<string>((resolve) => {
      request(
        `${ending.url}/v1/chat/completions`,
        { method: 'POST', headers: { 'content-type': 'application/json' } },
        (incoming) => {
          resolve(String(incoming.headers['x-attestation-id']));
          incoming.resume().on('error', () => {});
        },
      ).end(JSON.stringify({ ...TEE, stream: true }));
    });
    await eventually(async () => (await find(other.url, id)).status === 425);
    for (const name of (await server.ask('KEYS', '*')).match(/countersign:attestation:\S+/g) ?? [])
      if ((await server.ask('GET', name)).includes('pending'))
        expect(Number(/:(-?\d+)/.exec(await server.ask('PTTL', name))?.[1])).toBeLessThanOrEqual(60_000);
    await ending.kill('SIGTERM');
    expect((await find(other.url, id)).status).toBe(404);

    const used = Number(/used_memory:(\d+)/.exec(await server.ask('INFO', 'memory'))?.[1]);
    await server.ask('CONFIG', 'SET', 'maxmemory', `${used + 60_000}`);
    backend.script = chatAnswer('x'.repeat(200_000));
    const got = await chat(one, TEE, bearer('a'));
    await eventually(async () => (await find(two, got.headers['x-attestation-id'])).status === 404, 3_000);
    await server.ask('CONFIG', 'SET', 'maxmemory', '0');
    await other.close();
  });

  it('let nobody read keys, ids or owners from the names, and keep nothing for longer than its time', async () => {
    const got = await chat(one, TEE, bearer('a'));
    const names = (await server.ask('KEYS', '*')).match(/countersign:\S+/g) ?? [];
    expect(names.length).toBeGreaterThan(0);
    for (const name of names) {
      // Usage goes by the keys' names, which are no secret, and for 31 days and the rest of a month.
      const ofUsage =
        /^countersign:(usage:[ab]:\d{4}-\d\d|tokens:[ab]:\d{4}-\d\d-\d\d|usage-batch:[0-9a-f-]{36})$/.test(name);
      if (!ofUsage) expect(name).toMatch(/^countersign:(attestation:[\w-]{43}|rate:\d+:\S+)$/);
      expect(name).not.toContain(String(got.headers['x-attestation-id']));
      const ttl = Number(/:(-?\d+)/.exec((await server.ask('PTTL', name)).replace('+OK\r\n', ''))?.[1]);
      expect(ttl).toBeGreaterThan(0);
      expect(ttl).toBeLessThanOrEqual(ofUsage ? 93 * 86_400_000 : 3_660_000);
    }
  });

  it('count the rate of a key together', async () => {
    const env = { ATTESTATION_STORE_URL: server.url };
    const keys = [...KEYS, '* rps=4'];
    const urls = [await stage.gateway(env, keys), await stage.gateway(env, keys)];
    await eventually(async () => (await find(urls[0] ?? '', 'nobody', 'b')).status === 404);
    await eventually(async () => (await find(urls[1] ?? '', 'nobody', 'b')).status === 404);
    await new Promise((resolve) => setTimeout(resolve, 1_050));
    const got = await Promise.all([0, 1, 0, 1, 0, 1, 0, 1].map((i) => chat(urls[i] ?? '', CHAT, bearer('b'))));
    // A second may end among them, never more than once.
    const allowed = got.filter(({ status }) => status === 200).length;
    expect(allowed).toBeGreaterThanOrEqual(4);
    expect(allowed).toBeLessThan(8);
    for (const refused of got.filter(({ status }) => status !== 200)) {
      expectError(refused, 429, 'rate_limit_exceeded');
      expect(refused.headers['retry-after']).toBe('1');
    }
  });
});

describe.skipIf(program === null)('a store that is away', () => {
  it('costs no answer: attestations travel in them, and retrieval elsewhere is a 503 with retry-after', async () => {
    const lines: string[] = [];
    const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(line) });
    const watched = await startGateway(
      {
        BACKEND_URL: stage.service.backend.url,
        SIDECAR_SOCKET: stage.service.sidecar.socket,
        ATTESTATION_STORE_URL: server.url,
      },
      log,
    );
    for (const [away, back] of [
      [() => server.stop(), () => server.start()],
      [() => server.signal('SIGSTOP'), () => server.signal('SIGCONT')],
    ] as const) {
      await connected();
      await away();
      const started = performance.now();
      const got = await chat(one, TEE, bearer('a'));
      expect(got.json().attestation).toBeDefined();
      expect(performance.now() - started).toBeLessThan(1_000);
      const id = got.headers['x-attestation-id'];
      expect((await find(one, id)).status).toBe(200);
      for (let i = 0; i < 3; i++) {
        const asked = performance.now();
        const elsewhere = await find(two, id);
        expectError(elsewhere, 503, 'store_unavailable');
        expect(Number(elsewhere.headers['retry-after'])).toBeGreaterThan(0);
        expect(performance.now() - asked).toBeLessThan(1_000);
      }
      await back();
      await connected();
      const after = await chat(one, TEE, bearer('a'));
      await eventually(async () => (await find(two, after.headers['x-attestation-id'])).status === 200);
    }
    await eventually(() => lines.some((line) => line.includes('"connected":false')));
    expect(lines.join('')).not.toContain(PASSWORD);
    await watched.close();
  });

  it('leaves each gateway its own count of a rate', async () => {
    await server.stop();
    const url = await stage.gateway({ ATTESTATION_STORE_URL: server.url }, [...KEYS, '* rps=2']);
    const got = [];
    for (let i = 0; i < 4; i++) got.push((await chat(url, CHAT, bearer('b'))).status);
    expect(got.filter((status) => status === 429).length).toBeGreaterThan(0);
    expect(got.slice(0, 2)).toEqual([200, 200]);
    await server.start();
  });

  it('is asked nothing once a command took too long, until it is there again', async () => {
    const states: string[] = [];
    const connection = openConnection({
      url: server.url,
      timeout_ms: 200,
      onState: (_up, reason) => states.push(reason),
    });
    await eventually(() => connection.isReady);
    server.signal('SIGSTOP');
    await expect(connection.run((client) => client.get('x'))).rejects.toThrow('no answer in time');
    const started = performance.now();
    for (let i = 0; i < 1_000; i++) await connection.run((client) => client.get('x')).catch(() => {});
    expect(performance.now() - started).toBeLessThan(500);
    server.signal('SIGCONT');
    await eventually(() => connection.isReady);
    expect(await connection.run((client) => client.get('x'))).toBeNull();
    await connection.close();
    expect(states).toEqual(['ready', 'no answer in time', 'ready']);
  });
});
