import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { MAX_MESSAGES } from '../../../proto/openai.ts';
import { chatAnswer } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';
import { bearer, holdResponses, type Stage, startStage } from './limits-stage.ts';

let stage: Stage;

beforeAll(async () => {
  stage = await startStage({ collectionMs: 150 });
});
afterAll(() => stage.close());

const TEE = { ...CHAT, tee: true };
const find = (url: string, id: unknown) => ask(`${url}/v1/chat/completions/${id}/attestation`, { method: 'GET' });

describe('attestations', () => {
  it('that wait past their time, for a turn or for the GPU, fail as what they are, and hold up nobody after', async () => {
    stage.service.backend.script = chatAnswer('Hello.');
    const url = await stage.gateway({ ATTEST_TIMEOUT_MS: '400', limits: { max_attestations_in_flight: 1 } });
    // The thread that checks what the sidecar answers starts with the first.
    await eventually(async () => (await chat(url, TEE)).status === 200, 15_000);
    const got = await Promise.all(Array.from({ length: 8 }, (_, i) => chat(url, { ...TEE, user: `${i}` })));
    const failed = got.filter(({ status }) => status !== 200);
    expect(failed.length).toBeGreaterThan(3);
    expect(failed.length).toBeLessThan(8);
    for (const one of failed) expectError(one, 503, 'attestation_unavailable');
    expect((await chat(url, TEE)).json().attestation).toBeDefined();
  });

  it('are refused after a time where no sidecar is, before the backend is asked', async () => {
    const url = await stage.gateway({
      SIDECAR_SOCKET: join(stage.service.folder.path, 'nobody.sock'),
      limits: { sidecar_wait_ms: 200 },
    });
    stage.service.backend.seen.length = 0;
    const started = performance.now();
    expectError(await chat(url, TEE), 503, 'attestation_unavailable');
    expect(performance.now() - started).toBeGreaterThan(150);
    expect(stage.service.backend.seen).toHaveLength(0);
  });

  it('are kept for a time, and while there is room: the oldest go first', async () => {
    stage.service.backend.script = chatAnswer('Hello.', '');
    const short = await stage.gateway({ ATTESTATION_TTL_MS: '1000' });
    const kept = (await chat(short, TEE)).headers['x-attestation-id'];
    expect((await find(short, kept)).status).toBe(200);
    await eventually(async () => (await find(short, kept)).status === 404);
    const small = await stage.gateway({ ATTESTATION_STORE_BYTES: String(1024 * 1024) });
    const ids: unknown[] = [];
    for (let i = 0; i < 8; i++)
      ids.push((await chat(small, { ...TEE, user: 'x'.repeat(200_000) })).headers['x-attestation-id']);
    expectError(await find(small, ids[0]), 404, 'not_found', 'id');
    expect((await find(small, ids.at(-1))).status).toBe(200);
  });
});

describe('a request', () => {
  it('has so many messages', async () => {
    const url = await stage.gateway({});
    stage.service.backend.script = chatAnswer('Hello.');
    const of = (n: number) => ({ ...CHAT, messages: Array.from({ length: n }, () => ({ role: 'user', content: '' })) });
    expect((await chat(url, of(MAX_MESSAGES))).status).toBe(200);
    expectError(await chat(url, of(MAX_MESSAGES + 1)), 400, 'invalid_request', 'messages');
  });

  it('has so many bytes of headers', async () => {
    const url = await stage.gateway({});
    const got = await chat(url, CHAT, { 'x-large': 'x'.repeat(40_000) });
    expect(got.status).toBeGreaterThanOrEqual(400);
    expect(got.status).toBeLessThan(500);
    expect(Object.keys(got.json().error)).toEqual(['message', 'type', 'param', 'code']);
  });
});

describe('the streams of a key', () => {
  it('are bounded by the line * where its own says nothing', async () => {
    const url = await stage.gateway({}, ['* streams=1', 'a', 'b streams=0']);
    const held = holdResponses(stage.service);
    const running = ['a', 'b', 'b'].map((name) => chat(url, { ...CHAT, stream: true }, bearer(name)));
    await eventually(() => held.count === 3);
    expectError(await chat(url, { ...CHAT, stream: true }, bearer('a')), 429, 'rate_limit_exceeded');
    held.release();
    for (const one of running) expect((await one).payloads().at(-1)).toBe('[DONE]');
  });
});
