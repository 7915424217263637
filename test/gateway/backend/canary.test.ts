import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Canary } from '../../../gateway/backend/backend.ts';
import { startCanary } from '../../../gateway/backend/canary.ts';
import { createBackend } from '../../../gateway/backend/client.ts';
import { type GatewayConfig, loadConfig } from '../../../gateway/base/config.ts';
import { answer, type Backend, chatBody, type Script, startBackend } from '../../support/backend.ts';
import { ask } from '../../support/client.ts';
import { eventually, freePort, SILENT, startGateway, startService } from '../../support/harness.ts';

const MODELS = '{"object":"list","data":[{"id":"first"},{"id":"second"}]}';
let backend: Backend;
let canary: Canary;
afterEach(async () => {
  canary?.close();
  await backend?.close();
});

function start(config: GatewayConfig): Canary {
  const client = createBackend({ ...config, backend_url: config.backend_url as string });
  return startCanary(() => [{ name: null, call: (request, handler) => client.call(request, handler) }], config, SILENT);
}

interface Asked {
  readonly temperature: number;
  readonly seed?: number;
  readonly top_k?: number;
}

/** Answers to what is asked at temperature 0 that follow one another; the last one stays. Samples vary with their seed, except with top_k 1. */
function saying(...texts: readonly string[]): Script {
  let n = 0;
  return (request, response) => {
    const { temperature, seed, top_k }: Asked = JSON.parse(request.body);
    const greedy = texts[Math.min(temperature === 0 ? n++ : n - 1, texts.length - 1)] as string;
    const text = temperature === 0 || top_k === 1 ? greedy : `${seed} words`;
    return answer(chatBody(text))(request, response);
  };
}

/** A backend that finds Paris, and does with samples what `sample` says: a text, or null for a status 400. */
const sampling =
  (sample: (asked: Asked) => string | null): Script =>
  (request, response) => {
    const asked: Asked = JSON.parse(request.body);
    const text = asked.temperature === 0 ? 'Paris.' : sample(asked);
    const script = text === null ? answer('{"error":{"message":"unknown"}}', 400) : answer(chatBody(text));
    return script(request, response);
  };
const ownedBy = (engine: string) => JSON.stringify({ object: 'list', data: [{ id: 'first', owned_by: engine }] });

async function look(script: Script, env: Record<string, string> = {}, models = MODELS) {
  backend = await startBackend(script);
  backend.models = models;
  const config = loadConfig({
    BACKEND_URL: backend.url,
    BACKEND_API_KEY: 'secret',
    CANARY_INTERVAL_MS: '600000',
    ...env,
  });
  canary = start(config);
  await eventually(() => canary.result.state !== 'pending');
  return canary.result;
}

describe('the canary', () => {
  it('asks the first model twice at temperature 0 and three times with sampling, with the key of the backend', async () => {
    const result = await look(saying('The capital of France is **Paris**.'));
    expect(result).toMatchObject({ state: 'good', at: expect.stringMatching(/^\d{4}-.*Z$/) });
    expect(result.reason).toBeUndefined();
    const questions = backend.seen.filter(({ url }) => url.endsWith('/chat/completions'));
    const asked = questions.map(({ body }) => JSON.parse(body));
    const hot = { model: 'first', temperature: 2, max_tokens: 16 };
    expect(asked).toMatchObject([
      { model: 'first', temperature: 0, max_tokens: 256 },
      { model: 'first', temperature: 0, max_tokens: 256 },
      { ...hot, seed: 1 },
      { ...hot, seed: 2 },
      { ...hot, seed: 1, top_k: 1 },
      { model: 'first', temperature: 0, max_tokens: 1, return_token_ids: true },
    ]);
    expect(result.token_ids).toBe(false);
    expect(questions.every(({ headers }) => headers.authorization === 'Bearer secret')).toBe(true);
    expect(result.checks).toEqual({ sense: 'good', repeats: 'good', sampling: 'good', top_k: 'good' });
  });

  it('says whether the backend gives token ids', async () => {
    const seeded = sampling(({ seed }) => `${seed} words`);
    const giving: Script = (request, response) => {
      if (!request.body.includes('return_token_ids')) return seeded(request, response);
      return answer(chatBody('Paris.').replace('"finish_reason"', '"token_ids":[7],"finish_reason"'))(
        request,
        response,
      );
    };
    expect(await look(giving)).toMatchObject({ state: 'good', token_ids: true });
  });

  it('sees that the parameters of sampling are read as zeros: seeds make no difference', async () => {
    expect(await look(sampling(() => 'Paris.'))).toMatchObject({
      state: 'wrong',
      reason: 'same_samples',
      checks: { sense: 'good', repeats: 'good', sampling: 'wrong', top_k: 'unknown' },
    });
  });

  it('sees that top_k has no effect, where the engine knows it', async () => {
    const ignored = sampling(({ seed }) => `${seed} words`);
    const wrong = { state: 'wrong', reason: 'top_k_ignored', checks: { sampling: 'good', top_k: 'wrong' } };
    expect(await look(ignored, {}, ownedBy('vllm'))).toMatchObject(wrong);
    canary.close();
    await backend.close();
    expect(await look(ignored, {}, ownedBy('someone'))).toMatchObject({
      state: 'good',
      checks: { sampling: 'good', top_k: 'unknown' },
    });
  });

  it.each([
    ['seed and high temperatures', (): null => null, 'unknown', 'unknown'],
    ['top_k', ({ seed, top_k }: Asked) => (top_k === 1 ? null : `${seed} words`), 'good', 'unknown'],
  ])('does not call a backend wrong that refuses %s', async (_name, sample, seeds, top_k) => {
    expect(await look(sampling(sample), {}, ownedBy('vllm'))).toMatchObject({
      state: 'good',
      checks: { sense: 'good', repeats: 'good', sampling: seeds, top_k },
    });
  });

  it('asks again with other seeds before it calls samples the same', async () => {
    let n = 0;
    expect(await look(sampling(({ top_k }) => (top_k === 1 ? 'Paris.' : n++ < 2 ? 'same' : `${n}`)))).toMatchObject({
      state: 'good',
      checks: { sampling: 'good' },
    });
    expect(n).toBe(4);
  });

  it('is not good when a sample is never answered', async () => {
    const got = await look((request, response) => {
      const { temperature } = JSON.parse(request.body);
      return answer(chatBody('Paris'), temperature === 0 ? 200 : 503)(request, response);
    });
    expect(got).toMatchObject({ state: 'unavailable', reason: 'http_503' });
  });

  it.each([
    ['nothing', [''], 'empty'],
    ['spaces', ['  \n '], 'empty'],
    ['one character over and over', ['!'.repeat(64)], 'repetition'],
    ['almost one alone', [`Paris ${'!'.repeat(60)}`], 'repetition'],
    ['bytes that are no text', ['Paris \uFFFD\uFFFD'], 'not_text'],
    ['control characters', ['Paris \u0001'], 'not_text'],
    ['words without sense', ['obtener Fläche 的 return cuál über'], 'unexpected'],
    ['sense once', ['Paris', 'obtener Fläche'], 'unexpected'],
    ['something else at the second time', ['Paris is the capital', 'It is Paris, the capital'], 'changed'],
  ])('sees %s', async (_name, texts, reason) => {
    expect(await look(saying(...texts))).toMatchObject({ state: 'wrong', reason });
  });

  it('takes reasoning for an answer, and answers that differ far behind', async () => {
    const reasoning =
      (text: string): Script =>
      (request, response) => {
        const { temperature, seed }: Asked = JSON.parse(request.body);
        const message = { content: null, reasoning_content: temperature === 0 ? text : `${seed}` };
        return answer(JSON.stringify({ choices: [{ message }] }))(request, response);
      };
    expect(await look(reasoning('They ask for the capital of France: Paris'))).toMatchObject({ state: 'good' });
    canary.close();
    await backend.close();
    expect(
      await look(saying('The capital of France is Paris, a city', 'The capital of France is Paris, on the Seine')),
    ).toMatchObject({
      state: 'good',
    });
  });

  it('does not call reasoning wrong that was cut off before the name, but a repetition', async () => {
    const cut = (text: string | null) =>
      answer(JSON.stringify({ choices: [{ finish_reason: 'length', message: { content: null, reasoning: text } }] }));
    let n = 0;
    const thinking: Script = (request, response) => {
      const { temperature }: Asked = JSON.parse(request.body);
      return cut(temperature === 0 ? 'They ask for a capital. Let me think' : `${n++}`)(request, response);
    };
    expect(await look(thinking)).toMatchObject({
      state: 'unavailable',
      reason: 'cut',
      checks: { sense: 'unknown', repeats: 'good', sampling: 'good' },
    });
    canary.close();
    await backend.close();
    expect(await look(cut('!'.repeat(64)))).toMatchObject({ state: 'wrong', reason: 'repetition' });
  });

  it('stays wrong while nothing is learnt', async () => {
    await look(saying('!'.repeat(64)), { CANARY_INTERVAL_MS: '20' });
    const { at } = canary.result;
    backend.script = answer('{"error":{}}', 429);
    const asked = backend.seen.length;
    await eventually(() => backend.seen.length > asked + 3);
    expect(canary.result).toMatchObject({ state: 'wrong', reason: 'repetition' });
    expect((canary.result.at as string) >= (at as string)).toBe(true);
    backend.script = saying('Paris');
    await eventually(() => canary.result.state === 'good');
  });

  it('takes any text where none is expected, but not the same character', async () => {
    expect(await look(saying('the cat sat'), { CANARY_EXPECT: '*' })).toMatchObject({ state: 'good' });
    canary.close();
    await backend.close();
    expect(await look(saying('!'.repeat(64)), { CANARY_EXPECT: '*' })).toMatchObject({
      state: 'wrong',
      reason: 'repetition',
    });
  });

  it.each([
    ['a list that is none', answer('hello'), 'no_answer'],
    ['an answer of another form', answer(MODELS), 'no_answer'],
    ['an error', answer('{"error":{}}', 503), 'http_503'],
  ])('learns nothing from %s', async (_name, script, reason) => {
    expect(await look(script)).toMatchObject({ state: 'unavailable', reason });
  });

  it('learns nothing from a backend without models', async () => {
    expect(await look(saying('Paris'), {}, '{"data":[]}')).toMatchObject({ state: 'unavailable', reason: 'no_model' });
  });

  it('waits for a backend that is not there yet', async () => {
    const port = await freePort();
    const config = loadConfig({ BACKEND_URL: `http://127.0.0.1:${port}/v1`, CANARY_INTERVAL_MS: '20' });
    canary = start(config);
    await eventually(() => canary.result.state !== 'pending');
    expect(canary.result).toMatchObject({ state: 'unavailable', reason: 'backend_unreachable' });
  });

  it.each([
    ['asks one that refuses the question no sooner than others', 404, 60_000],
    ['asks one that is loading its model soon again', 503, 5_000],
  ])('%s', async (_name, status, wait_ms) => {
    const timers = vi.spyOn(globalThis, 'setTimeout');
    try {
      await look(answer('{"error":{}}', status), { CANARY_INTERVAL_MS: '60000' });
      expect(canary.result).toMatchObject({ state: 'unavailable', reason: `http_${status}` });
      // The client's own timers are of other lengths, and so is the wait of this test.
      expect(timers.mock.calls.filter(([callback]) => callback.name === 'test').map(([, ms]) => ms)).toEqual([
        0,
        wait_ms,
      ]);
    } finally {
      timers.mockRestore();
    }
  });

  it('sees a backend go wrong and well again', async () => {
    expect((await look(saying('Paris'), { CANARY_INTERVAL_MS: '20' })).state).toBe('good');
    backend.script = saying('!'.repeat(64));
    await eventually(() => canary.result.state === 'wrong');
    backend.script = saying('Paris');
    await eventually(() => canary.result.state === 'good');
  });

  it('shows in /health, where wrong is degraded and chat goes on, and in the metrics', async () => {
    const service = await startService();
    try {
      service.backend.script = saying('!'.repeat(64));
      const { url, close } = await startGateway({
        BACKEND_URL: service.backend.url,
        SIDECAR_SOCKET: service.sidecar.socket,
        CANARY_INTERVAL_MS: '600000',
      });
      try {
        const health = async () => (await ask(`${url}/health`, { method: 'GET' })).json();
        await eventually(async () => (await health()).backend.canary.state === 'wrong');
        await eventually(async () => (await health()).sidecar.status === 'connected');
        expect(await health()).toMatchObject({
          status: 'degraded',
          backend: { status: 'ok', canary: { reason: 'repetition' } },
        });
        expect((await ask(`${url}/health`, { method: 'GET' })).status).toBe(200);
        const { text } = await ask(`${url}/metrics`, { method: 'GET' });
        expect(text).toContain('countersign_canary{state="wrong"} 1');
        expect(text).toContain('countersign_canary{state="good"} 0');
        expect(text).toContain('countersign_canary_failed{check="sense"} 1');
        expect(text).toContain('countersign_canary_failed{check="top_k"} 0');
        // An answer's words are nowhere.
        expect(JSON.stringify(await health()) + text).not.toContain('!!!!');
      } finally {
        await close();
      }
    } finally {
      await service.close();
    }
  });

  it('asks each of several backends, and names the one that is wrong', async () => {
    backend = await startBackend(saying('Paris'));
    const second = await startBackend(saying('!'.repeat(64)));
    const config = loadConfig({ BACKEND_URL: backend.url, CANARY_INTERVAL_MS: '600000' });
    const clients = [backend, second].map(({ url }) => createBackend({ ...config, backend_url: url }));
    const [one, two] = clients.map(({ call }, i) => ({ name: `b${i}`, call }));
    const away = {
      name: 'b2',
      call: createBackend({ ...config, backend_url: `http://127.0.0.1:${await freePort()}/v1` }).call,
    };
    try {
      for (const [asked, result] of [
        [[one, two, away], { state: 'wrong', reason: 'repetition', backend: 'b1' }],
        [[one, away], { state: 'good' }],
        [[away, one], { state: 'good' }],
        [[away], { state: 'unavailable' }],
      ] as const) {
        canary = startCanary(() => asked as never, config, SILENT);
        await eventually(() => canary.result.state !== 'pending');
        expect(canary.result).toMatchObject(result);
        canary.close();
      }
    } finally {
      await second.close();
    }
  });

  it('asks for the first model that goes to that backend', async () => {
    backend = await startBackend(saying('Paris'));
    backend.models = MODELS;
    const config = loadConfig({ BACKEND_URL: backend.url, CANARY_INTERVAL_MS: '600000' });
    const { call } = createBackend({ ...config, backend_url: backend.url });
    canary = startCanary(() => [{ name: 'b', call, serves: (model) => model === 'second' }], config, SILENT);
    await eventually(() => canary.result.state !== 'pending');
    expect(canary.result.state).toBe('good');
    expect(new Set(backend.seen.map(({ body }) => JSON.parse(body).model))).toEqual(new Set(['second']));
  });

  it('is off with 0', async () => {
    backend = await startBackend();
    const config = loadConfig({ BACKEND_URL: backend.url, CANARY_INTERVAL_MS: '0' });
    canary = start(config);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(canary.result).toEqual({ state: 'off' });
    expect(backend.seen).toHaveLength(0);
  });
});
