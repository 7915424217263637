import { describe, expect, it, onTestFinished } from 'vitest';
import { expectRefusal, get, post, raw } from '../../support/raw.ts';
import { useService } from '../../support/service.ts';

const service = useService();

describe('what is refused before a route is reached', () => {
  it.each([
    ['no host', 'GET /health HTTP/1.1\r\n\r\n', 400, 'invalid_request'],
    ['an empty host', 'GET /health HTTP/1.1\r\nhost:\r\n\r\n', 400, 'invalid_request'],
    ['a host with a space', 'GET /health HTTP/1.1\r\nhost: a b\r\n\r\n', 400, 'invalid_request'],
    ['a host with a path', 'GET /health HTTP/1.1\r\nhost: a/b\r\n\r\n', 400, 'invalid_request'],
    ['a host with a user', 'GET /health HTTP/1.1\r\nhost: a@b\r\n\r\n', 400, 'invalid_request'],
    ['two hosts', 'GET /health HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n', 400, 'invalid_request'],
    ['GET *', 'GET * HTTP/1.1\r\nhost: h\r\n\r\n', 400, 'invalid_request'],
    ['a target that is no path', 'GET v1/models HTTP/1.1\r\nhost: h\r\n\r\n', 400, 'invalid_request'],
    ['another scheme', 'GET ftp://h/v1/models HTTP/1.1\r\nhost: h\r\n\r\n', 400, 'invalid_request'],
    ['an absolute target without host', 'GET http:///v1/models HTTP/1.1\r\nhost: h\r\n\r\n', 400, 'invalid_request'],
    ['a user in the target', 'GET http://u:p@h/v1/models HTTP/1.1\r\nhost: h\r\n\r\n', 400, 'invalid_request'],
    ['an expectation', post('/v1/chat/completions', '{}', ['expect: foo']), 417, 'expectation_failed'],
    ['CONNECT', 'CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n\r\n', 405, 'method_not_allowed'],
    ['an unknown method', 'BREW /health HTTP/1.1\r\nhost: h\r\n\r\n', 400, 'invalid_request'],
    ['HTTP/2 from the start', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, 'invalid_request'],
    ['a TLS handshake', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', 400, 'invalid_request'],
    ['headers past 32 KiB', get('/health', [`x-a: ${'a'.repeat(40_000)}`]), 431, 'headers_too_large'],
    ['a path past 32 KiB', get(`/${'a'.repeat(40_000)}`), 431, 'headers_too_large'],
    ['more than 1,000 headers', get('/health', Array(1_001).fill('a:b')), 431, 'headers_too_large'],
    ['9,000 headers', get('/health', Array(9_000).fill('a:b')), 431, 'headers_too_large'],
  ])("is answered in OpenAI's shape, and the connection ends: %s", async (_name, request, status, code) => {
    const got = await raw(service.url, request, { linger_ms: 2_000 });
    expectRefusal(got.answers[0], status, code);
    expect([got.answers.length, got.closed]).toEqual([1, true]);
    expect(service.backend.seen).toHaveLength(0);
  });

  it.each([
    [
      'websocket',
      ['connection: upgrade', 'upgrade: websocket', 'sec-websocket-version: 13', 'sec-websocket-key: AA=='],
    ],
    ['h2c', ['connection: upgrade, http2-settings', 'upgrade: h2c', 'http2-settings: AAMAAABkAAQAAP__']],
  ])("an upgrade to %s is not taken up: the answer is HTTP's, and the connection's last", async (_name, headers) => {
    const nothing = await raw(service.url, get('/nothing', headers) + get('/health'), { linger_ms: 2_000 });
    expectRefusal(nothing.answers[0], 404, 'not_found');
    expect([nothing.answers.length, nothing.closed, nothing.answers[0]?.headers.connection]).toEqual([
      1,
      true,
      'close',
    ]);
    const body = '{"messages":[{"role":"user","content":"x"}]}';
    const chat = await raw(service.url, post('/v1/chat/completions', body, headers), { linger_ms: 2_000 });
    expect([chat.answers[0]?.status, chat.closed]).toEqual([200, true]);
    expect(service.backend.seen[0]?.body).toBe(body);
    expect(service.backend.seen[0]?.headers).not.toHaveProperty('upgrade');
  });

  it('an upgrade whose body is none is refused', async () => {
    const got = await raw(
      service.url,
      'POST /v1/models HTTP/1.1\r\nhost: h\r\nupgrade: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n',
    );
    expectRefusal(got.answers[0], 400, 'invalid_request');
  });
});

describe('the request target', () => {
  it('may be absolute: the host in it is of no account', async () => {
    const { models } = service.backend;
    onTestFinished(() => {
      service.backend.models = models;
    });
    service.backend.models = null;
    for (const target of [
      'http://h/v1/models?x=1',
      'HTTP://other.example:8080/v1/models?x=1',
      'https://169.254.169.254/v1/models?x=1',
    ]) {
      const got = await raw(service.url, `GET ${target} HTTP/1.1\r\nhost: h\r\n\r\n`);
      expect([got.answers[0]?.status, service.backend.seen.at(-1)?.url]).toEqual([200, '/v1/models?x=1']);
    }
    expect((await raw(service.url, 'GET http://h HTTP/1.1\r\nhost: h\r\n\r\n')).answers[0]?.status).not.toBe(400);
  });

  it('of HTTP/1.0 needs no host', async () => {
    expect((await raw(service.url, 'GET /health HTTP/1.0\r\n\r\n')).answers[0]?.status).toBe(200);
  });

  it('OPTIONS * asks about the server', async () => {
    expect((await raw(service.url, 'OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n')).answers[0]?.status).toBe(204);
  });

  it.each([
    '//evil.example/v1/models',
    '/v1//evil.example/../../admin',
    '/v1/../admin',
    '/v1/%2e%2e/admin',
    '/v1/%2E./admin',
    '/v1/x/..%2f..%2fadmin',
    '/v1/..%5cadmin',
    '/v1/..\\admin',
    '/v1/.',
    '/v1/x%00',
    '/v1/x%0d%0ahost:%20evil',
    '/%761/models',
    '/V1/models',
    '/v1',
    '/v1/%zz',
    '/v1/%c3%28',
  ])('that could lead out of the backend is refused: %s', async (target) => {
    const got = await raw(service.url, get(target));
    expect([400, 404]).toContain(got.answers[0]?.status);
    expect(JSON.parse(got.answers[0]?.body ?? '').error.code).toMatch(/^(not_found|invalid_request)$/);
    expect(service.backend.seen).toHaveLength(0);
  });

  it.each([
    '/v1/@evil.example/x',
    '/v1/http://evil.example/x',
    '/v1/x?url=http://evil.example',
    '/v1/x%40evil.example',
    '/v1//evil.example',
  ])('reaches the one backend, whatever it looks like: %s', async (target) => {
    await raw(service.url, get(target, ['x-forwarded-host: evil.example', 'forwarded: host=evil.example']));
    const [asked] = service.backend.seen;
    expect(asked?.url).toBe(target);
    expect(asked?.headers.host).toBe(new URL(service.backend.url).host);
  });

  it('a twice encoded path stays encoded', async () => {
    await raw(service.url, get('/v1/%252e%252e/x'));
    expect(service.backend.seen[0]?.url ?? '/v1/%252e%252e/x').toBe('/v1/%252e%252e/x');
  });
});

describe('a client that half-closes', () => {
  it('has left, as with nginx: the backend is let go, and nothing hangs', async () => {
    let aborted = false;
    service.backend.script = (_request, response) => {
      response.on('close', () => {
        aborted = true;
      });
    };
    const body = '{"messages":[{"role":"user","content":"x"}]}';
    const got = await raw(service.url, post('/v1/chat/completions', body), { halfClose: true });
    expect([got.closed, got.answers.length]).toEqual([true, 0]);
    await expect.poll(() => aborted || service.backend.seen.length === 0).toBe(true);
  });
});
