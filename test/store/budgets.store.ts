// Rates and budgets over a store that is killed, stopped, slow or read-only: they bind, and nobody waits.
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { expectError } from '../gateway/expect-error.ts';
import { bearer, holdResponses, type Stage, startStage } from '../gateway/limits/limits-stage.ts';
import { chatAnswer } from '../support/backend.ts';
import { ask, CHAT, chat } from '../support/client.ts';
import { eventually } from '../support/harness.ts';
import { PASSWORD, type StoreServer, serverProgram, startStoreServer } from './server.ts';

const program = serverProgram();
const LIMITED = 'tokens-per-day=1000 rps=1000 concurrent=0';
let server: StoreServer;
let stage: Stage;
let keys = 0;

beforeAll(async () => {
  if (program !== null) server = await startStoreServer(program);
}, 240_000);
beforeEach(async () => {
  stage = await startStage();
  stage.service.backend.script = chatAnswer('Hello.');
});
afterEach(async () => stage?.close());
afterAll(async () => server?.close());

/** Two gateways, and a key of this test's own with a rate and a budget. */
async function gateways(url = server.url): Promise<{ one: string; two: string; key: string }> {
  const key = `budget-${keys++}`;
  const env = { ATTESTATION_STORE_URL: url, limits: { attestation_store_timeout_ms: 1000 } };
  const one = await stage.gateway(env, [`${key} ${LIMITED}`]);
  const two = await stage.gateway(env, [`${key} ${LIMITED}`]);
  for (const gateway of [one, two])
    await eventually(async () => (await health(gateway)).store.status === 'connected', 10_000);
  return { one, two, key };
}

const health = async (url: string) => (await ask(`${url}/health`, { method: 'GET' })).json();
const spent = async (url: string, key: string): Promise<number> =>
  (await ask(`${url}/usage`, { method: 'GET', headers: bearer(key) })).json().tokens_today;

/** The median time of a request, in milliseconds. */
async function median(url: string, key: string, count = 21): Promise<number> {
  const times: number[] = [];
  for (let i = 0; i < count; i++) {
    const began_ms = performance.now();
    expect((await chat(url, { ...CHAT, max_tokens: 1 }, bearer(key))).status).toBe(200);
    times.push(performance.now() - began_ms);
  }
  return times.sort((a, b) => a - b)[count >> 1] as number;
}

/** The store behind a wire on which each answer takes `delay_ms`. */
async function slowWire(): Promise<{ url: string; delay_ms: number }> {
  const wire = { url: '', delay_ms: 0 };
  const sockets = new Set<Socket>();
  const listener = createServer((near) => {
    const far = connect(Number(new URL(server.url).port), '127.0.0.1');
    sockets.add(near).add(far);
    near.on('error', () => far.destroy()).on('close', () => far.destroy());
    far.on('error', () => near.destroy()).on('close', () => near.destroy());
    near.pipe(far);
    far.on('data', (bytes) => setTimeout(() => near.write(bytes), wire.delay_ms));
  }).listen(0, '127.0.0.1');
  await once(listener, 'listening');
  wire.url = `redis://:${PASSWORD}@127.0.0.1:${(listener.address() as AddressInfo).port}`;
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    listener.close();
  });
  return wire;
}

describe.skipIf(program === null)('a budget that gateways share', () => {
  it('binds for requests at once at all of them', async () => {
    const { one, two, key } = await gateways();
    const held = holdResponses(stage.service);
    const asked = Array.from({ length: 200 }, (_, i) =>
      chat(i % 2 === 0 ? one : two, { ...CHAT, max_tokens: 499 }, bearer(key)),
    );
    await eventually(() => held.count === 2);
    await sleep(500);
    held.release();
    const statuses = (await Promise.all(asked)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(2);
    await eventually(async () => (await spent(one, key)) === 10);
    // What was not used is free again.
    await eventually(async () => (await chat(two, { ...CHAT, max_tokens: 900 }, bearer(key))).status === 200);
  });

  it('is not forgotten by a store that was killed and lost all it had', async () => {
    const { one, two, key } = await gateways();
    for (let i = 0; i < 20; i++) expect((await chat(one, { ...CHAT, max_tokens: 1 }, bearer(key))).status).toBe(200);
    await eventually(async () => (await spent(two, key)) === 100);
    expect((await chat(two, { ...CHAT, max_tokens: 1 }, bearer(key))).status).toBe(200);
    await server.stop();
    await server.start();
    for (const url of [one, two])
      await eventually(async () => (await health(url)).store.status === 'connected', 20_000);
    const refused = await chat(one, { ...CHAT, max_tokens: 905 }, bearer(key));
    expectError(refused, 429, 'insufficient_quota');
    expect((await chat(two, { ...CHAT, max_tokens: 1 }, bearer(key))).status).toBe(200);
  });
});

describe.skipIf(program === null)('a store that is', () => {
  it('slow is not felt: requests with a rate and a budget do not wait for it', async () => {
    const wire = await slowWire();
    const { one, key } = await gateways(wire.url);
    const quick = await median(one, key);
    wire.delay_ms = 330;
    const slow = await median(one, key);
    console.log(
      `p50 without tee, with a rate and a budget: ${quick.toFixed(1)} ms, with a slow store ${slow.toFixed(1)} ms`,
    );
    expect(slow).toBeLessThan(quick + 20);
    wire.delay_ms = 0;
    // Once it is quick again, the store counts.
    await eventually(async () => {
      await chat(one, { ...CHAT, max_tokens: 1 }, bearer(key));
      return (await spent(one, key)) > 200;
    }, 40_000);
  });

  it('stopped is not felt, and the budget binds by what each gateway knows', async () => {
    const { one, key } = await gateways();
    expect((await chat(one, { ...CHAT, max_tokens: 1 }, bearer(key))).status).toBe(200);
    server.signal('SIGSTOP');
    try {
      expect(await median(one, key)).toBeLessThan(100);
      expectError(await chat(one, { ...CHAT, max_tokens: 990 }, bearer(key)), 429, 'insufficient_quota');
    } finally {
      server.signal('SIGCONT');
    }
    await eventually(async () => (await spent(one, key)) === 110, 30_000);
  });

  it('read-only is not felt, and what could not be written is written later', async () => {
    const { one, two, key } = await gateways();
    expect((await chat(one, { ...CHAT, max_tokens: 1 }, bearer(key))).status).toBe(200);
    await eventually(async () => (await spent(two, key)) === 5);
    await server.ask('REPLICAOF', '127.0.0.1', '1');
    try {
      expect(await median(one, key)).toBeLessThan(100);
      expectError(await chat(one, { ...CHAT, max_tokens: 990 }, bearer(key)), 429, 'insufficient_quota');
    } finally {
      await server.ask('REPLICAOF', 'NO', 'ONE');
    }
    await eventually(async () => (await spent(two, key)) === 110, 30_000);
    expect((await chat(two, { ...CHAT, max_tokens: 1 }, bearer(key))).status).toBe(200);
  });
});
