import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openConnection } from '../../gateway/base/store-connection.ts';
import { createSharedBook } from '../../gateway/usage/book-shared.ts';
import { expectError } from '../gateway/expect-error.ts';
import { bearer, type Stage, startStage } from '../gateway/limits/limits-stage.ts';
import { chatAnswer } from '../support/backend.ts';
import { ask, CHAT, chat } from '../support/client.ts';
import { eventually } from '../support/harness.ts';
import { type StoreServer, serverProgram, startStoreServer } from './server.ts';

const program = serverProgram();
const KEYS = ['a', 'b tokens-per-day=8'];
const AMOUNTS = { requests: 1, attested: 1, input_tokens: 3, output_tokens: 2, gpu_us: 700 };
let server: StoreServer;
let stage: Stage;
let one: string;
let two: string;

beforeAll(async () => {
  if (program === null) return;
  server = await startStoreServer(program);
  stage = await startStage();
  stage.service.backend.script = chatAnswer('Hello.');
  const env = { ATTESTATION_STORE_URL: server.url, limits: { attestation_store_timeout_ms: 300 } };
  one = await stage.gateway(env, KEYS);
  two = await stage.gateway(env, KEYS);
}, 240_000);
afterAll(async () => {
  await stage?.close();
  await server?.close();
});

const usage = (url: string, name = 'a') => ask(`${url}/usage`, { method: 'GET', headers: bearer(name) });
const totalOf = async (url: string) => (await usage(url)).json().total?.requests;

describe.skipIf(program === null)('gateways that share a store', () => {
  it('count a key’s usage together, and its budget', async () => {
    await chat(one, CHAT, bearer('a'));
    await chat(two, { ...CHAT, tee: true }, bearer('a'));
    for (const url of [one, two]) await eventually(async () => (await totalOf(url)) === 2);
    expect((await usage(one)).json()).toMatchObject({
      tokens_today: 10,
      total: { requests: 2, attested: 1, input_tokens: 6, output_tokens: 4 },
    });
    // The first request reserves all that is left, until what it did cost is written.
    for (const url of [one, two]) await eventually(async () => (await chat(url, CHAT, bearer('b'))).status === 200);
    await eventually(async () => (await usage(one, 'b')).json().tokens_today === 10);
    for (const url of [one, two]) expectError(await chat(url, CHAT, bearer('b')), 429, 'insufficient_quota');
  });

  it('keep it by day and month, and forget what is older than 31 days', async () => {
    let now = Date.UTC(2030, 0, 31, 12);
    const connection = openConnection({ url: server.url, timeout_ms: 2_000 });
    const book = createSharedBook(
      connection,
      connection,
      () => {},
      () => now,
    );
    await eventually(() => connection.isReady);
    book.add('dated', 'a model', AMOUNTS);
    book.add('dated', 'a model', AMOUNTS);
    expect(await book.tokensToday('dated')).toBe(10);
    const day = 86_400_000;
    now += day;
    expect(await book.tokensToday('dated')).toBe(0);
    book.add('dated', 'other', AMOUNTS);
    const twice = { requests: 2, attested: 2, input_tokens: 6, output_tokens: 4, gpu_us: 1_400 };
    expect(await book.records('dated')).toEqual([
      { day: '2030-01-31', model: 'a model', amounts: twice },
      { day: '2030-02-01', model: 'other', amounts: AMOUNTS },
    ]);
    now += 30 * day;
    expect(await book.records('dated')).toEqual([{ day: '2030-02-01', model: 'other', amounts: AMOUNTS }]);
    await book.close();
    await connection.close();
  });

  it('lose nothing while the store is away, count by themselves meanwhile, and say so', async () => {
    const before = Number(await totalOf(one));
    server.signal('SIGSTOP');
    try {
      const health = async () => (await ask(`${one}/health`, { method: 'GET' })).json().store;
      expect((await chat(one, CHAT, bearer('a'))).status).toBe(200);
      await eventually(async () => (await health()).status === 'away');
      // What was read before still counts: the budget of this key is spent.
      expectError(await chat(one, CHAT, bearer('b')), 429, 'insufficient_quota');
      expectError(await usage(one), 503, 'store_unavailable');
    } finally {
      server.signal('SIGCONT');
    }
    await eventually(async () => (await totalOf(two)) === before + 1, 30_000);
    // What hung was carried out later, and again when it was sent anew: it counts once.
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    expect(await totalOf(two)).toBe(before + 1);
    await eventually(async () => (await ask(`${one}/health`, { method: 'GET' })).json().store.status === 'connected');
  });
});
