// Several backends of which one lists its models while its engine does not answer: when it is taken out, what never takes one out, and
// how it comes back.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { answer, type Backend, chatAnswer, delta, role, type Script, stream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { parseSamples } from '../../telemetry/samples.ts';
import { answeredBy, type BackendsStage, get, health, stageOf, turns } from './backends-stage.ts';

const TRIAL = '{"model":"m0","messages":[{"role":"user","content":"Hi"}],"max_tokens":1}';
const ERROR = answer('{"error":{"message":"EngineCore died"}}', 500);
const CLOSES: Script = (_request, response) => void response.socket?.destroy();
const HANGS: Script = () => {};

/** Answers requests whose body fits `condition` like `other`, and the rest like backend 0. */
const where =
  (condition: (body: string) => boolean, other: Script): Script =>
  (request, response) =>
    (condition(request.body) ? other : chatAnswer('from 0'))(request, response);
const whereGet =
  (list: Script): Script =>
  (request, response) =>
    (request.method === 'GET' ? list : chatAnswer('from 0'))(request, response);
const trials = ({ seen }: Backend) => seen.filter(({ body }) => body === TRIAL);
const isTrial = (body: string) => body === TRIAL;
const isPoison = (body: string) => body.includes('poison');
const POISON = { ...CHAT, user: 'poison' };

const stateOf = async (url: string) => (await health(url)).backend.backends[0].state;
const downs = ({ lines }: BackendsStage) => lines.filter(({ msg }) => msg === 'a backend is down');
const ups = ({ lines }: BackendsStage) => lines.filter(({ msg }) => msg === 'a backend is up again');
const samples = async (url: string) => parseSamples((await get(`${url}/metrics`)).text);
const failures = async (url: string, reason: string) =>
  (await samples(url)).value('countersign_backend_failures_total', { backend: '0', reason });

/** Sends requests until backend 0 is down. Returns how many failed. */
async function failUntilDown(url: string, body: object = CHAT): Promise<number> {
  let failed = 0;
  await eventually(async () => {
    const got = await chat(url, body);
    if (got.status !== 200 || !got.complete || got.text.includes('"error"')) failed++;
    return (await stateOf(url)) === 'down';
  });
  return failed;
}

describe('a backend that lists its models', () => {
  it.each([
    ['answers with errors', ERROR, 'http_5xx', 'trial_http_500', {}],
    ['closes connections', CLOSES, 'backend_unreachable', 'trial_backend_unreachable', {}],
    ['is silent', HANGS, 'backend_timeout', 'trial_backend_timeout', {}],
    [
      'answers with a page',
      answer('<html>', 200, { 'content-type': 'text/html' }),
      'backend_bad_response',
      'trial_no_answer',
      {},
    ],
    [
      'breaks off its streams',
      stream([role(), delta('a'), null]),
      'backend_bad_response',
      'trial_backend_bad_response',
      { stream: true },
    ],
  ] as const)('and %s gets no more requests, until it is well', async (_what, script, reason, trial, more) => {
    const stage = await stageOf(2, undefined, { BACKEND_TIMEOUT_MS: '300' });
    const { url, backends } = stage;
    const [first] = backends as [Backend];
    await health(url);
    first.script = script;
    const failed = await failUntilDown(url, { ...CHAT, ...more });
    expect(failed).toBeGreaterThanOrEqual(3);
    expect(failed).toBeLessThanOrEqual(6);
    expect(await failures(url, reason)).toBe(failed);
    expect(await turns(url, 6)).toEqual([1, 1, 1, 1, 1, 1]);
    expect(downs(stage)).toMatchObject([{ level: 40, backend: '0', reason: trial }]);
    expect((await samples(url)).value('countersign_backend_up', { backend: '0' })).toBe(0);
    expect((await health(url)).status).toBe('degraded');
    expect(trials(first).length).toBeGreaterThanOrEqual(1);
    first.script = chatAnswer('from 0');
    await eventually(async () => (await stateOf(url)) === 'up');
    expect(ups(stage)).toMatchObject([{ level: 30, backend: '0' }]);
    expect(new Set(await turns(url, 2))).toEqual(new Set([0, 1]));
  });

  it('is not back because it lists them', async () => {
    const { url, backends } = await stageOf(2);
    const [first] = backends as [Backend];
    first.script = ERROR;
    await failUntilDown(url);
    await eventually(() => trials(first).length === 3);
    expect(await stateOf(url)).toBe('down');
    expect(await turns(url, 2)).toEqual([1, 1]);
  });

  it('is tried with its own key, and the first model of its list that the file names', async () => {
    const { url, backends } = await stageOf(1, ([first], folder) => {
      (first as Backend).models = '{"data":[{"id":"unnamed"},{"id":"m0"},{"id":"scripted"}]}';
      const api_key_file = join(folder.path, 'key');
      writeFileSync(api_key_file, 'own-key');
      return [{ url: first?.url, models: ['scripted', 'm0'], api_key_file }];
    });
    const [first] = backends as [Backend];
    first.script = ERROR;
    await failUntilDown(url);
    const [trial] = trials(first);
    expect(trial).toMatchObject({ method: 'POST', url: '/v1/chat/completions' });
    expect(trial?.headers).toMatchObject({ authorization: 'Bearer own-key', 'content-type': 'application/json' });
  });

  it('is back at once when a request succeeds that it gets where there is no other', async () => {
    const stage = await stageOf(1);
    const { url, backends } = stage;
    const [first] = backends as [Backend];
    first.script = ERROR;
    await failUntilDown(url);
    expect((await get(`${url}/health`)).status).toBe(503);
    first.script = where(isTrial, ERROR);
    expect(await turns(url, 1)).toEqual([0]);
    expect(await stateOf(url)).toBe('up');
    expect(ups(stage)).toHaveLength(1);
  });

  describe('and sends no first token', () => {
    afterEach(() => vi.restoreAllMocks());

    /** So many clients that leave one after another, each after `waited_ms`. */
    async function leave(url: string, backend: Backend, count: number, waited_ms: number): Promise<void> {
      const now = performance.now.bind(performance);
      for (let i = 0; i < count; i++) {
        const client = new AbortController();
        const before = backend.seen.length;
        const left = ask(`${url}/v1/chat/completions`, { body: JSON.stringify(CHAT), signal: client.signal });
        await eventually(() => backend.seen.length > before);
        const clock = vi.spyOn(performance, 'now').mockImplementation(() => now() + waited_ms);
        client.abort();
        await expect(left).rejects.toThrow(/abort/);
        const request = backend.seen[before];
        await eventually(() => request?.aborted_ms !== null);
        clock.mockRestore();
      }
    }

    it('is taken out by clients that waited for it and left, and not by others', async () => {
      const stage = await stageOf(1, undefined, { BACKEND_TIMEOUT_MS: '2000' });
      const { url, backends } = stage;
      const [first] = backends as [Backend];
      await health(url);
      first.script = HANGS;
      await leave(url, first, 4, 0);
      expect(await failures(url, 'no_first_token')).toBe(0);
      await leave(url, first, 3, 31_000);
      expect(await failures(url, 'no_first_token')).toBe(3);
      await eventually(async () => (await stateOf(url)) === 'down');
      expect(downs(stage)).toMatchObject([{ reason: 'trial_backend_timeout' }]);
      expect(trials(first)).toHaveLength(1);
    });
  });
});

describe('an engine that works', () => {
  it('is not taken out by requests that make it fail', async () => {
    const stage = await stageOf(2);
    const { url, backends } = stage;
    for (const [i, backend] of backends.entries())
      backend.script = (request, response) =>
        (isPoison(request.body) ? ERROR : chatAnswer(`from ${i}`))(request, response);
    for (let i = 0; i < 24; i++) expect((await chat(url, POISON)).status).toBe(500);
    await eventually(() => backends.every(({ seen }) => seen.some(({ body }) => body.includes('max_tokens'))));
    expect(new Set(await turns(url, 4))).toEqual(new Set([0, 1]));
    expect((await health(url)).status).toBe('degraded'); // Only for want of a sidecar.
    expect((await health(url)).backend.status).toBe('ok');
    expect(downs(stage)).toEqual([]);
    expect(await failures(url, 'http_5xx')).toBe(12);
  });

  it('is not taken out by a trial that comes late, while requests succeed', async () => {
    const stage = await stageOf(1, undefined, { BACKEND_TIMEOUT_MS: '500' });
    const { url, backends } = stage;
    const [first] = backends as [Backend];
    first.script = (request, response) =>
      isTrial(request.body) ? HANGS(request, response) : where(isPoison, ERROR)(request, response);
    for (let i = 0; i < 3; i++) await chat(url, POISON);
    await eventually(() => trials(first).length === 1);
    expect(await turns(url, 1)).toEqual([0]);
    await eventually(() => trials(first)[0]?.aborted_ms !== null);
    await chat(url, CHAT);
    expect(downs(stage)).toEqual([]);
  });

  it('has another chance after a wait, which grows, where it rejects the trial', async () => {
    const stage = await stageOf(2);
    const { url, backends } = stage;
    const [first] = backends as [Backend];
    const rejects = answer('{"error":{"message":"no chat here"}}', 404);
    first.script = (request, response) => (isTrial(request.body) ? rejects : ERROR)(request, response);
    const waits_ms: number[] = [];
    for (const times of [1, 2]) {
      await failUntilDown(url);
      const began = performance.now();
      expect(downs(stage).at(-1)).toMatchObject({ reason: 'trial_http_404' });
      await eventually(() => ups(stage).length === times);
      waits_ms.push(performance.now() - began);
    }
    expect(waits_ms[0]).toBeGreaterThan(900);
    expect(waits_ms[1]).toBeGreaterThan(1_900);
  });

  it('is not taken out by statuses that say nothing of it', async () => {
    const stage = await stageOf(1);
    const { url, backends } = stage;
    const [first] = backends as [Backend];
    for (const status of [400, 404, 429]) {
      first.script = answer('{"error":{"message":"no"}}', status);
      for (let i = 0; i < 4; i++) expect((await chat(url, CHAT)).status).toBe(status);
    }
    expect(trials(first)).toEqual([]);
    expect(downs(stage)).toEqual([]);
  });
});

describe('a backend whose /models is no list', () => {
  it.each([
    ['a page', answer('<html>', 200, { 'content-type': 'text/html' }), 'no_model_list'],
    ['another object', answer('{"status":"ok"}'), 'no_model_list'],
    ['a refusal', answer('{"detail":"no key"}', 401), 'http_401'],
    ['a redirect', answer('', 302, { location: '/login' }), 'http_302'],
  ] as const)('is down: %s', async (_what, list, reason) => {
    let models: string | null = null;
    const stage = await stageOf(2, ([first, second]) => {
      const { models: own } = first as Backend;
      Object.assign(first as Backend, { models: null, script: whereGet(list) });
      models = own;
      return [{ url: first?.url }, { url: second?.url }];
    });
    const { url, backends } = stage;
    expect(await stateOf(url)).toBe('down');
    expect(downs(stage)).toMatchObject([{ backend: '0', reason }]);
    expect(await turns(url, 3)).toEqual([1, 1, 1]);
    (backends[0] as Backend).models = models;
    await eventually(async () => (await stateOf(url)) === 'up');
    expect(new Set(await turns(url, 2))).toEqual(new Set([0, 1]));
  });

  it('serves where there is no other, and stays down', async () => {
    const stage = await stageOf(1);
    const { url, backends } = stage;
    const [first] = backends as [Backend];
    await health(url);
    first.models = '<html>';
    await eventually(async () => (await get(`${url}/v1/models`)).status === 502);
    expect(await turns(url, 2)).toEqual([0, 0]);
    expect(await stateOf(url)).toBe('down');
    expect(ups(stage)).toEqual([]);
  });
});

it('a request that is sent on counts as a failure of the backend that could not be reached', async () => {
  const { url, backends } = await stageOf(2);
  await health(url);
  await backends[0]?.stop();
  expect(answeredBy(await chat(url, CHAT))).toBe(1);
  const found = await samples(url);
  expect(found.value('countersign_backend_failures_total')).toBe(1);
  expect(await failures(url, 'backend_unreachable')).toBe(1);
});
