// How a client asks for an attestation, and answers that share a GPU signature because their clients allow it.
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { chatStream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import {
  type GatewaySettings,
  type Service,
  startGateway,
  startService,
  temporaryFolder,
} from '../../support/harness.ts';
import { nonceOfLeaf } from '../../support/tree.ts';
import { expectError } from '../expect-error.ts';

let service: Service | null = null;
afterEach(async () => {
  await service?.close();
  service = null;
});

const COLLECTION_MS = 60;
async function start(env: GatewaySettings = {}, collectionMs = COLLECTION_MS): Promise<string> {
  service = await startService(env, { collectionMs });
  return service.gateway.url;
}

interface Attestation {
  readonly raw: string;
  readonly nonce: string;
  readonly token: string;
  readonly batch?: { salt: string; leaf_index: number; tree_size: number; path: string[] };
}
const attestationOf = (text: string): Attestation => JSON.parse(text).attestation;
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const backendBody = () => JSON.parse(String(service?.backend.seen.at(-1)?.body));

describe('tee', () => {
  test.each([
    ['true', true, false],
    ['an empty object', {}, false],
    ['batch: false', { batch: false }, false],
    ['a challenge alone', { challenge: 'a challenge of mine' }, false],
    ['batch: true', { batch: true }, true],
    ['batch and challenge', { batch: true, challenge: 'x'.repeat(128) }, true],
  ])('%s asks for an attestation', async (_name, tee, shares) => {
    const url = await start();
    const body = { ...CHAT, tee };
    const { status, text, headers } = await chat(url, body);
    expect(status).toBe(200);
    const { raw, nonce, batch } = attestationOf(text);
    expect(raw).toContain(`"request":${JSON.stringify(body)}`);
    expect(backendBody()).not.toHaveProperty('tee');
    expect(batch === undefined ? sha256(raw) : nonceOfLeaf(raw, batch)).toBe(nonce);
    expect(batch !== undefined).toBe(shares);
    expect(headers['x-tee-batch']).toBe(shares ? '1' : undefined);
  });

  test.each([
    ['false', false],
    ['null', null],
  ])('%s asks for none, and is cut out all the same', async (_name, tee) => {
    const url = await start();
    const { text } = await chat(url, { ...CHAT, tee });
    expect(JSON.parse(text)).not.toHaveProperty('attestation');
    expect(backendBody()).not.toHaveProperty('tee');
  });

  test.each([
    ['a text', 'yes', 'tee', /^tee: must be true, false, null or an object/],
    ['a number', 1, 'tee', /^tee: must be true/],
    ['a list', [true], 'tee', /^tee: must be true/],
    ['an object with a member that is not known', { batch: true, size: 3 }, 'tee', /size/],
    ['a batch that is no boolean', { batch: 'yes' }, 'tee', /^tee: must be/],
    ['a challenge that is too short', { challenge: 'x'.repeat(15) }, 'tee.challenge', /16 to 128/],
    ['a challenge that is too long', { challenge: 'x'.repeat(129) }, 'tee.challenge', /16 to 128/],
    ['a challenge that cannot be printed', { challenge: 'x\n'.repeat(10) }, 'tee.challenge', /16 to 128/],
    ['a challenge that is no text', { challenge: 1e20 }, 'tee', /^tee: must be/],
  ])('%s is refused', async (_name, tee, param, message) => {
    const url = await start();
    const response = await chat(url, { ...CHAT, tee });
    expectError(response, 400, 'invalid_request', param);
    expect(response.json().error.message).toMatch(message);
    expect(service?.backend.seen).toHaveLength(0);
  });

  test('of a completion takes the same forms', async () => {
    const url = await start();
    const body = JSON.stringify({ model: 'm', prompt: 'p', tee: { batch: true } });
    expect(attestationOf((await ask(`${url}/v1/completions`, { body })).text).batch?.tree_size).toBe(1);
    expectError(
      await ask(`${url}/v1/completions`, { body: JSON.stringify({ model: 'm', prompt: 'p', tee: { x: 1 } }) }),
      400,
      'invalid_request',
      'tee',
    );
  });

  test.each([
    ['1', false],
    ['true', false],
    ['batch', true],
  ])('by the header x-tee: %s', async (value, shares) => {
    const url = await start();
    const headers = { 'x-tee': value };
    const { batch } = attestationOf((await chat(url, CHAT, headers)).text);
    expect(batch !== undefined).toBe(shares);
    // The body says more: it stands in raw.
    const strict = attestationOf((await chat(url, { ...CHAT, tee: true }, headers)).text);
    expect(strict.batch).toBeUndefined();
  });

  test('by a header of another value is refused', async () => {
    const url = await start();
    expectError(await chat(url, CHAT, { 'x-tee': 'batches' }), 400, 'invalid_request', 'x-tee');
  });
});

describe('answers whose clients allow it', () => {
  const many = (url: string, count: number, tee: unknown = { batch: true }) =>
    Promise.all(
      Array.from({ length: count }, (_, n) =>
        chat(url, { ...CHAT, messages: [{ role: 'user', content: `question ${n}` }], tee }),
      ),
    );

  test('share a signature, and each proves its own', async () => {
    const url = await start();
    const responses = await many(url, 40);
    const attestations = responses.map(({ text }) => attestationOf(text));
    for (const [n, { raw, nonce, batch }] of attestations.entries()) {
      expect(raw).toContain(`question ${n}"`);
      expect(batch && nonceOfLeaf(raw, batch)).toBe(nonce);
      expect(responses[n]?.headers['x-tee-batch']).toBe(String(batch?.tree_size));
    }
    const nonces = Map.groupBy(attestations, ({ nonce }) => nonce);
    expect(nonces.size).toBeLessThan(10);
    // Nothing of one stands in another.
    for (const [n, { text }] of responses.entries())
      expect(new Set([...text.matchAll(/question (\d+)/g)].map(([, of]) => of))).toEqual(new Set([String(n)]));
  });

  test('in streams too, in whole answers beside them, and beside those that are strict', async () => {
    const url = await start();
    const whole = many(url, 5);
    const strict = many(url, 2, true);
    await Promise.all([whole, strict]);
    if (service !== null) service.backend.script = chatStream(['Hel', 'lo']);
    const streamed = await Promise.all(
      Array.from({ length: 5 }, () => chat(url, { ...CHAT, stream: true, tee: { batch: true } })),
    );
    for (const response of streamed) {
      const chunk = response.payloads().find((payload) => payload.includes('"attestation"')) ?? '';
      const { raw, nonce, batch } = attestationOf(chunk);
      expect(batch && nonceOfLeaf(raw, batch)).toBe(nonce);
    }
    for (const { text } of await strict) {
      const { raw, nonce, batch } = attestationOf(text);
      expect(batch).toBeUndefined();
      expect(sha256(raw)).toBe(nonce);
    }
  });

  test('are found again by their ids, with what they share stored once', async () => {
    const url = await start();
    const responses = await many(url, 30);
    for (const { text, headers } of responses) {
      const kept = await ask(`${url}/v1/chat/completions/${headers['x-attestation-id']}/attestation`, {
        method: 'GET',
      });
      expect(kept.json()).toEqual(attestationOf(text));
    }
    const metrics = (await ask(`${url}/metrics`, { method: 'GET' })).text;
    const bytes = Number(/^countersign_store_bytes (\d+)$/m.exec(metrics)?.[1]);
    const whole = responses.reduce((sum, { text }) => sum + JSON.stringify(attestationOf(text)).length, 0);
    expect(bytes).toBeGreaterThan(0);
    expect(bytes).toBeLessThan(whole / 2);
  });

  test('have a signature each where the operator forbids sharing, without an error', async () => {
    const url = await start({ BATCH: 'off' }, 0);
    for (const { text, headers } of await many(url, 5)) {
      const { raw, nonce, batch } = attestationOf(text);
      expect(batch).toBeUndefined();
      expect(sha256(raw)).toBe(nonce);
      expect(headers['x-tee-batch']).toBeUndefined();
    }
  });

  test.each([0, 1, 7])('lose nothing where %i of their neighbours leave', async (leaving) => {
    const url = await start();
    const abort = new AbortController();
    const left = Array.from({ length: leaving }, () =>
      ask(`${url}/v1/chat/completions`, {
        body: JSON.stringify({ ...CHAT, tee: { batch: true } }),
        signal: abort.signal,
      }).catch(() => null),
    );
    const staying = many(url, 10);
    setTimeout(() => abort.abort(), COLLECTION_MS / 2);
    for (const { status, text } of await staying) {
      expect(status).toBe(200);
      const { raw, nonce, batch } = attestationOf(text);
      expect(batch && nonceOfLeaf(raw, batch)).toBe(nonce);
    }
    await Promise.all(left);
  });

  test('of two gateways stand in one tree, and each gateway has its own alone', async () => {
    const url = await start({}, 150);
    if (service === null) throw new Error('no service');
    const other = await startGateway({ BACKEND_URL: service.backend.url, SIDECAR_SOCKET: service.sidecar.socket });
    const [first, second] = await Promise.all([many(url, 10), many(other.url, 10)]);
    const nonces = [first, second].map((all) => new Set(all.map(({ text }) => attestationOf(text).nonce)));
    for (const { text } of [...first, ...second]) {
      const { raw, nonce, batch } = attestationOf(text);
      expect(batch && nonceOfLeaf(raw, batch)).toBe(nonce);
    }
    expect([...(nonces[0] ?? [])].some((nonce) => nonces[1]?.has(nonce))).toBe(true);
    await other.close();
  });

  test('more at once of one key than it may have: the rest is refused, and another key is served', async () => {
    const keys = temporaryFolder();
    const file = join(keys.path, 'keys');
    writeFileSync(file, ['greedy', 'modest'].map((name) => `${name}:sha256:${sha256(name)}\n`).join(''), {
      mode: 0o600,
    });
    const url = await start({ API_KEYS_FILE: file, limits: { max_attestations_waiting: 100 } }, 150);
    const of = (key: string) =>
      chat(url, { ...CHAT, tee: { batch: true } }, { authorization: `Bearer ${key}` }).then(({ status }) => status);
    const greedy = Array.from({ length: 300 }, () => of('greedy'));
    const modest = Array.from({ length: 10 }, () => of('modest'));
    expect(new Set(await Promise.all(modest))).toEqual(new Set([200]));
    const statuses = await Promise.all(greedy);
    expect(new Set(statuses)).toEqual(new Set([200, 429]));
    expect(statuses.filter((status) => status === 200).length).toBeGreaterThanOrEqual(50);
    keys.remove();
  });
});
