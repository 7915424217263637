import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { answer, chatStream, DONE, delta, event, finish, role, stream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually, startGateway } from '../../support/harness.ts';
import { expectRefusal, get, post, raw } from '../../support/raw.ts';
import { useService } from '../../support/service.ts';

const service = useService({
  BACKEND_TIMEOUT_MS: '3000',
  limits: { headers_timeout_ms: 400, request_timeout_ms: 900 },
});

const BODY = JSON.stringify(CHAT);

describe('a client that is slow on purpose', () => {
  it.each([
    ['headers one byte at a time', get('/health', [`x-a: ${'a'.repeat(200)}`]), 30],
    [
      'a body one byte at a time, with an upgrade',
      post('/v1/models', ' '.repeat(200), ['upgrade: x', 'connection: upgrade']),
      12,
    ],
    ['a body one byte at a time', post('/v1/chat/completions', `${BODY}${' '.repeat(200)}`), 12],
  ])('is told 408 and let go: %s', async (_name, text, drip_ms) => {
    const got = await raw(service.url, text, { drip_ms, linger_ms: 2_000, timeout_ms: 8_000 });
    expectRefusal(got.answers[0], 408, 'request_timeout');
    expect(got.closed).toBe(true);
    expect(got.ms).toBeLessThan(4_000);
    expect(service.backend.seen).toHaveLength(0);
  });

  it('that never says anything is let go', async () => {
    const got = await raw(service.url, '', { timeout_ms: 8_000 });
    expect([got.closed, got.text]).toEqual([true, '']);
    expect(got.ms).toBeGreaterThan(300);
  });

  it('by two hundred connections holds up nobody else', async () => {
    const slow = Array.from({ length: 200 }, () =>
      raw(service.url, 'POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\n{', {
        timeout_ms: 15_000,
      }),
    );
    expect((await chat(service.url, CHAT)).status).toBe(200);
    for (const got of await Promise.all(slow)) expectRefusal(got.answers[0], 408, 'request_timeout');
  });
});

describe('a client that is refused while it still sends', () => {
  it.each([
    ['a body that is too large', post('/v1/chat/completions', 'x'.repeat(24 * 1024 * 1024)), 413, 'body_too_large'],
    ['a path that is nowhere', post('/v1/nothing/../x', 'x'.repeat(4 * 1024 * 1024)), 404, 'not_found'],
    ['no method', `\0${post('/v1/chat/completions', 'x'.repeat(4 * 1024 * 1024))}`, 400, 'invalid_request'],
    ['no host', post('/v1/models', 'x'.repeat(4 * 1024 * 1024)).replace('host: h\r\n', ''), 400, 'invalid_request'],
    ['an expectation', post('/v1/models', 'x'.repeat(4 * 1024 * 1024), ['expect: foo']), 417, 'expectation_failed'],
  ])('reads its answer all the same: %s', async (_name, text, status, code) => {
    for (let i = 0; i < 5; i++) expectRefusal((await raw(service.url, text)).answers[0], status, code);
  });
});

describe('JSON 100,000 deep', () => {
  const deep = (open: string, close: string) => `${open.repeat(100_000)}1${close.repeat(100_000)}`;
  const arrays = deep('[', ']');
  const objects = deep('{"a":', '}');

  it.each([
    ['as the body', arrays],
    ['as an object', objects],
    ['in a message', `{"messages":[{"role":"user","content":${arrays}}]}`],
    ['in an unknown member, with tee', `{"messages":[{"role":"user","content":"x"}],"a":${objects},"tee":true}`],
    ['never closed', '['.repeat(100_000)],
    ['objects never closed', '{"a":'.repeat(100_000)],
    ['after a member tee', `{"tee":true,"messages":[{"role":"user","content":"x"}],"x":${arrays}}`],
  ])('in a request never ends in a 5xx: %s', async (_name, body) => {
    for (const path of ['/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/~sev_gpu@1.0/verify']) {
      const got = await ask(service.url + path, { body });
      expect(got.status, path).toBeLessThan(500);
      if (got.status !== 200) expect(Object.keys(got.json().error)).toEqual(['message', 'type', 'param', 'code']);
    }
    expect((await ask(`${service.url}/health`, { method: 'GET' })).status).toBe(200);
  });

  it('in an attestation is refused by the verifier', async () => {
    for (const inner of [arrays, objects, JSON.stringify(arrays)])
      for (const body of [`{"raw":${inner},"nonce":"","token":"","evidence":[]}`, `{"attestation":${inner}}`]) {
        const got = await ask(`${service.url}/~sev_gpu@1.0/verify`, { body });
        expect([400, 422]).toContain(got.status);
      }
  });

  it.each([false, true])('in an answer is delivered, or refused in words: tee %s', async (tee) => {
    service.backend.script = answer(`{"id":"c","choices":[],"deep":${arrays}}`);
    const whole = await chat(service.url, { ...CHAT, tee });
    expect([200, 502]).toContain(whole.status);
    service.backend.script = stream([role(), event(`{"choices":[],"deep":${arrays}}`), delta('a'), finish(), DONE]);
    const streamed = await chat(service.url, { ...CHAT, stream: true, tee });
    expect(streamed.status).toBe(200);
    expect(streamed.payloads().at(-1)).toMatch(/^\[DONE\]$|"code":"backend_bad_response"/);
    expect((await ask(`${service.url}/health`, { method: 'GET' })).status).toBe(200);
  });
});

describe('members named like those of every object', () => {
  const EVIL = '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}';
  const clean = () => expect(({} as { polluted?: number }).polluted).toBeUndefined();

  it('in a request are members, and reach the backend as they were', async () => {
    const body = `{"messages":[{"role":"user","content":"x","__proto__":{"polluted":1}}],"__proto__":{"tee":true,"polluted":1},"a":${EVIL}}`;
    const got = await chat(service.url, body);
    expect([got.status, 'attestation' in got.json()]).toEqual([200, false]);
    expect(service.backend.seen[0]?.body).toBe(body);
    clean();
  });

  const NAMED = '"id":"c","object":"chat.completion.chunk"';

  it('in a stream are members, and one named __proto__ ends it', async () => {
    service.backend.script = stream([
      role(),
      event(`{${NAMED},"__proto__":{"polluted":1},"choices":[{"index":0,"delta":${EVIL}}]}`),
      event(`{${NAMED},"choices":[{"index":0,"delta":{"__proto__":{"polluted":2}}}]}`),
      finish(),
      DONE,
    ]);
    const got = await chat(service.url, { ...CHAT, stream: true, tee: true });
    expect(got.status).toBe(200);
    clean();
    expect(got.text).toContain('"code":"stream_not_foldable"');
    service.backend.script = chatStream(['fine']);
    expect((await chat(service.url, { ...CHAT, stream: true, tee: true })).text).toContain('"attestation"');
  });

  it('in an attestation are refused or passed over', async () => {
    for (const body of [EVIL, `{"attestation":${EVIL}}`, `[${EVIL}]`]) {
      const got = await ask(`${service.url}/~sev_gpu@1.0/verify`, { body });
      expect([400, 422]).toContain(got.status);
      clean();
    }
  });
});

describe('connections', () => {
  it('are bounded, idle ones too: another is closed as it comes, and has room when one has gone', async () => {
    const gateway = await startGateway({
      BACKEND_URL: service.backend.url,
      SIDECAR_SOCKET: service.sidecar.socket,
      MAX_CONCURRENT_REQUESTS: '1',
    });
    const { port } = new URL(gateway.url);
    const open = () => {
      const socket = connect(Number(port), '127.0.0.1');
      const state = { socket, closed: false };
      socket
        .on('error', () => {})
        .on('close', () => {
          state.closed = true;
        });
      return state;
    };
    const [one, two] = [open(), open()];
    await new Promise((resolve) => setTimeout(resolve, 50));
    const three = open();
    await eventually(() => three.closed);
    expect([one.closed, two.closed]).toEqual([false, false]);
    one.socket.destroy();
    await eventually(async () => (await chat(gateway.url, CHAT).catch(() => null))?.status === 200);
    two.socket.destroy();
    await gateway.close();
  });
});
