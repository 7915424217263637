import { afterEach, describe, expect, it } from 'vitest';
import { createMemoryBook, DAYS } from '../../../gateway/usage/usage.ts';
import { answer, chatAnswer, chatStream, DONE, delta, finish, role, stream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { expectError } from '../expect-error.ts';
import { bearer, type Stage, startStage } from '../limits/limits-stage.ts';

let stage: Stage;
afterEach(async () => stage?.close());

const own = async (url: string, name: string) =>
  (await ask(`${url}/usage`, { method: 'GET', headers: bearer(name) })).json();
const TEE = { ...CHAT, tee: true };

describe('GET /usage', () => {
  it("says what a key has used, and nothing of another's", async () => {
    stage = await startStage({ collectionMs: 30 });
    const { backend } = stage.service;
    backend.models = '{"data":[{"id":"scripted"},{"id":"second"}]}';
    const url = await stage.gateway({}, ['a', 'b']);
    backend.script = chatAnswer('Hello.');
    await chat(url, CHAT, bearer('a'));
    await chat(url, TEE, bearer('a'));
    backend.script = chatStream(['Hel', 'lo']);
    await chat(url, { ...CHAT, stream: true }, bearer('a'));
    await chat(url, { ...TEE, stream: true }, bearer('a'));
    backend.script = chatAnswer('Hello.');
    await chat(url, { ...CHAT, model: 'second' }, bearer('b'));

    const a = await own(url, 'a');
    expect(a).toMatchObject({ key: 'a', tokens_per_day: null, tokens_today: 20, days: DAYS });
    expect(a.total).toMatchObject({ requests: 4, attested: 2, input_tokens: 12, output_tokens: 8 });
    // Two signatures of 30 ms each.
    expect(a.total.gpu_seconds).toBeGreaterThanOrEqual(0.06);
    expect(a.records).toEqual([{ day: new Date().toISOString().slice(0, 10), model: 'scripted', ...a.total }]);
    const b = await own(url, 'b');
    expect(b.total).toEqual({ requests: 1, attested: 0, input_tokens: 3, output_tokens: 2, gpu_seconds: 0 });
    expect(b.records[0].model).toBe('second');
  });

  it('counts a stream without usage by its events, and a refused request without tokens', async () => {
    stage = await startStage();
    const url = await stage.gateway({}, ['a']);
    const { backend } = stage.service;
    backend.script = stream([role(), delta('a'), delta('b'), finish(), DONE], 5);
    await chat(url, { ...CHAT, stream: true }, bearer('a'));
    const counted = await own(url, 'a');
    expect(counted.total).toMatchObject({ requests: 1, input_tokens: 0 });
    expect(counted.total.output_tokens).toBe(5);
    backend.script = answer('{"error":{"message":"no","usage":{"prompt_tokens":9}},"usage":{"prompt_tokens":9}}', 400);
    await chat(url, CHAT, bearer('a'));
    // Refused by the gateway itself: the backend had nothing to do.
    await chat(url, '{', bearer('a'));
    await ask(`${url}/v1/models`, { method: 'GET', headers: bearer('a') });
    expect((await own(url, 'a')).total).toEqual({ ...counted.total, requests: 2 });
  });

  it('needs a key, and keys at all', async () => {
    stage = await startStage();
    const url = await stage.gateway({}, ['a']);
    expectError(await ask(`${url}/usage`, { method: 'GET' }), 401, 'invalid_api_key');
    const open = await stage.gateway({});
    expectError(await ask(`${open}/usage`, { method: 'GET' }), 400, 'invalid_request');
    const post = await ask(`${url}/usage`, { method: 'POST', body: '', headers: bearer('a') });
    expectError(post, 405, 'method_not_allowed');
  });
});

describe('a budget of tokens a day', () => {
  it('refuses what would cost tokens once it is spent, before the backend is asked, and nothing else', async () => {
    stage = await startStage();
    const url = await stage.gateway({}, ['a tokens-per-day=9', 'b']);
    const { backend } = stage.service;
    backend.script = chatAnswer('Hello.');
    const first = await chat(url, CHAT, bearer('a'));
    expect(first.headers).toMatchObject({ 'x-ratelimit-limit-tokens': '9', 'x-ratelimit-remaining-tokens': '9' });
    // Five of nine are spent: the second begins, and goes past it.
    expect((await chat(url, CHAT, bearer('a'))).headers['x-ratelimit-remaining-tokens']).toBe('4');
    const before = backend.seen.length;
    for (const body of [CHAT, TEE, { ...CHAT, stream: true }]) {
      const refused = await chat(url, body, bearer('a'));
      expectError(refused, 429, 'insufficient_quota');
      expect(refused.json().error.type).toBe('insufficient_quota');
      expect(refused.headers['x-should-retry']).toBe('false');
      const seconds = Number(refused.headers['retry-after']);
      expect(seconds).toBeGreaterThan(0);
      expect(seconds).toBeLessThanOrEqual(86_400);
    }
    const embeddings = await ask(`${url}/v1/embeddings`, { body: '{}', headers: bearer('a') });
    expectError(embeddings, 429, 'insufficient_quota');
    expect(backend.seen.length).toBe(before);
    expect((await ask(`${url}/v1/models`, { method: 'GET', headers: bearer('a') })).status).toBe(200);
    expect(await own(url, 'a')).toMatchObject({ tokens_per_day: 9, tokens_today: 10 });
    const other = await chat(url, CHAT, bearer('b'));
    expect(other.status).toBe(200);
    expect(other.headers).not.toHaveProperty('x-ratelimit-limit-tokens');
  });

  it('is the same for every key by the line *, and a key’s own comes first', async () => {
    stage = await startStage();
    const url = await stage.gateway({}, ['* tokens-per-day=5', 'a', 'b tokens-per-day=0', 'c tokens-per-day=4']);
    for (const name of ['a', 'b', 'c']) expect((await chat(url, CHAT, bearer(name))).status).toBe(200);
    const statuses = await Promise.all(
      ['a', 'b', 'c'].map(async (name) => (await chat(url, CHAT, bearer(name))).status),
    );
    expect(statuses).toEqual([429, 200, 429]);
  });
});

describe('the book in memory', () => {
  const AMOUNTS = { requests: 1, attested: 0, input_tokens: 2, output_tokens: 3, gpu_us: 0 };

  it('turns at midnight UTC, keeps 31 days, and forgets', () => {
    let now = Date.UTC(2026, 0, 1, 23, 59, 59);
    const book = createMemoryBook(() => now);
    book.add('a', 'm', AMOUNTS);
    expect(book.tokensToday('a')).toBe(5);
    now += 1_000;
    expect(book.tokensToday('a')).toBe(0);
    book.add('a', 'm', AMOUNTS);
    book.add('a', 'n', AMOUNTS);
    expect(book.tokensToday('a')).toBe(10);
    expect(book.records('a')).toHaveLength(3);
    now += (DAYS - 2) * 86_400_000;
    expect(book.records('a')).toHaveLength(3);
    now += 86_400_000;
    expect(book.records('a')).toHaveLength(2);
    now += 86_400_000;
    expect(book.records('a')).toHaveLength(0);
    expect(book.records('nobody')).toEqual([]);
  });
});
