import { createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { answer, chatAnswer, chatBody, chatStream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { startGateway } from '../../support/harness.ts';
import { get, post, raw } from '../../support/raw.ts';
import { useService } from '../../support/service.ts';

const service = useService();

const BODY = JSON.stringify(CHAT);

/** A gateway whose backend sends these bytes, whatever it is asked. */
async function behind<T>(bytes: string, use: (url: string) => Promise<T>): Promise<T> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => socket.write(Buffer.from(bytes, 'latin1')));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  const gateway = await startGateway({
    BACKEND_URL: `http://127.0.0.1:${port}/v1`,
    SIDECAR_SOCKET: service.sidecar.socket,
    BACKEND_TIMEOUT_MS: '1500',
  });
  try {
    return await use(gateway.url);
  } finally {
    await gateway.close();
    server.close();
  }
}

function backendBytes(headers: readonly string[], body = chatBody('Hello.')): string {
  return `${['HTTP/1.1 200 OK', 'content-type: application/json', `content-length: ${body.length}`, ...headers].join('\r\n')}\r\n\r\n${body}`;
}

/** Orders of a backend's to a proxy in front or to a browser, about more than its answer. */
const ORDERS = [
  'x-accel-charset',
  'x_accel_limit_rate',
  'x-sendfile-temporary',
  'x-lighttpd-send-file',
  'x-reproxy-url',
  'x-litespeed-location',
  'x-envoy-immediate-health-check-fail',
  'surrogate-control',
  'surrogate-key',
  'cdn-cache-control',
  'cloudflare-cdn-cache-control',
  'expires',
  'clear-site-data',
  'set-cookie2',
  'refresh',
  'link',
  'report-to',
  'reporting-endpoints',
  'nel',
  'service-worker-allowed',
  'sourcemap',
  'cross-origin-opener-policy',
  'permissions-policy',
  'accept-ch',
  'critical-ch',
  'expect-ct',
  'use-as-dictionary',
  'timing-allow-origin',
  'www-authenticate',
  'www_authenticate',
  'authentication-info',
  'proxy-authentication-info',
];

describe('headers that do not cross the gateway', () => {
  it('towards the backend: hop-by-hop ones, those that connection lists, keys, cookies, addresses of pages', async () => {
    await raw(
      service.url,
      post('/v1/chat/completions', BODY, [
        'connection: keep-alive, x-private, X-Also',
        'x-private: 1',
        'x-also: 1',
        'keep-alive: timeout=5',
        'te: trailers',
        'trailer: x',
        'proxy-authorization: Basic eA==',
        'proxy-connection: keep-alive',
        'authorization: Bearer client',
        'cookie: a=b',
        'origin: http://localhost',
        'referer: http://localhost/private',
        'x-tee: 0',
        'accept-encoding: gzip',
        'x-stays: yes',
      ]),
    );
    const headers = service.backend.seen[0]?.headers ?? {};
    expect(Object.keys(headers).sort()).toEqual([
      'accept-encoding',
      'connection',
      'content-length',
      'content-type',
      'host',
      'x-stays',
    ]);
    expect(headers['accept-encoding']).toBe('identity');
  });

  it.each(['plain', 'node'])(
    'towards the backend: nothing that can hold a credential, by whatever name: %s',
    async (way) => {
      const secrets = [
        'proxy-authorization',
        'x-api-key',
        'api-key',
        'apikey',
        'x-goog-api-key',
        'x-amz-security-token',
        'ocp-apim-subscription-key',
        'x-functions-key',
        'x-auth-token',
        'x-access-token',
        'private-token',
        'cf-access-client-secret',
        'helicone-auth',
        'x-original-authorization',
        'x_api_key',
        'x.api.key',
        'cookie2',
      ];
      const kept = [
        'idempotency-key',
        'openai-organization',
        'openai-beta',
        'user-agent',
        'x-stainless-lang',
        'session_id',
      ];
      const lines = [...secrets, ...kept].map((name, i) => `${name}: value-${i}-of-many`);
      await raw(service.url, post(`/v1/chat/completions${way === 'node' ? '?node' : ''}`, BODY, lines));
      const { headers } = service.backend.seen[0] ?? { headers: {} };
      expect(secrets.filter((name) => name in headers)).toEqual([]);
      expect(kept.filter((name) => !(name in headers))).toEqual([]);
    },
  );

  it.each(['plain', 'node'])("towards the backend: the client's own key under no name: %s", async (way) => {
    const key = 'sk-0123456789abcdef';
    const lines = [
      `authorization: Bearer ${key}`,
      `x-whatever: ${key}`,
      `x-note: it is ${key}, keep it`,
      'x-stays: sk',
    ];
    await raw(service.url, post(`/v1/chat/completions${way === 'node' ? '?node' : ''}`, BODY, lines));
    expect(JSON.stringify(service.backend.seen[0]?.headers)).not.toContain(key);
    expect(service.backend.seen[0]?.headers).toHaveProperty(['x-stays']);
  });

  it('towards the backend: no other target or method, no framing by another name, nobody who asks in place of this gateway', async () => {
    const names = [
      'x-original-url',
      'x-rewrite-url',
      'x-http-method-override',
      'x-method-override',
      'transfer_encoding',
      'content_length',
      'x-forwarded-for',
      'x-forwarded-host',
      'x_forwarded_proto',
      'forwarded',
      'x-real-ip',
      'x-remote-user',
      'proxy',
      'x-accel-mapping',
      'x-middleware-subrequest',
    ];
    await raw(
      service.url,
      get(
        '/v1/files',
        names.map((name) => `${name}: 1`),
      ),
    );
    const headers = Object.keys(service.backend.seen[0]?.headers ?? {});
    expect(names.filter((name) => headers.includes(name))).toEqual([]);
  });

  it('towards the backend: a GET has no body', async () => {
    const smuggled = 'GET /v1/private HTTP/1.1\r\nhost: h\r\n\r\n';
    await raw(service.url, get('/v1/files', [`content-length: ${smuggled.length}`]) + smuggled);
    expect(service.backend.seen).toMatchObject([{ url: '/v1/files', body: '' }]);
    expect(service.backend.seen[0]?.headers).not.toHaveProperty(['content-length']);
  });

  it('towards the backend: what would be answered by "not modified", and no other condition', async () => {
    const kept = ['if-match', 'if-range', 'if-unmodified-since', 'range'];
    const names = [...kept, 'if-none-match', 'if-modified-since'];
    await raw(
      service.url,
      get(
        '/v1/files/file-1/content',
        names.map((name) => `${name}: x`),
      ),
    );
    const headers = Object.keys(service.backend.seen[0]?.headers ?? {});
    expect(headers.filter((name) => names.includes(name)).sort()).toEqual(kept);
  });

  it.each(['plain', 'tee', 'stream', 'tee stream'])(
    "towards the client, the same, and what is the gateway's to say: %s",
    async (how) => {
      const stream = how.includes('stream');
      service.backend.script = (request, response) => {
        const hostile: Record<string, string> = {
          connection: 'keep-alive, x-private',
          'x-private': '1',
          'keep-alive': 'timeout=999',
          upgrade: 'h2c',
          'proxy-authenticate': 'Basic',
          'set-cookie': 'a=b',
          server: 'secret/1.2.3',
          'x-request-id': 'forged',
          'x-attestation-id': 'forged',
          'access-control-allow-origin': 'https://evil.example',
          'access-control-allow-credentials': 'true',
          'cache-control': 'public, max-age=1000',
          'content-security-policy': 'default-src *',
          'x-content-type-options': 'sniff',
          'strict-transport-security': 'max-age=1',
          'alt-svc': 'h3=":443"',
          'x-accel-redirect': '/etc/passwd',
          'x-sendfile': '/etc/passwd',
          ...Object.fromEntries(ORDERS.map((name) => [name, '1'])),
          'x-ratelimit-remaining-tokens': '7',
          'openai-processing-ms': '8',
          'x-stays': 'yes',
        };
        for (const [name, value] of Object.entries(hostile)) response.setHeader(name, value);
        return (stream ? chatStream(['a']) : chatAnswer('a'))(request, response);
      };
      const got = await chat(service.url, { ...CHAT, stream, tee: how.includes('tee') });
      expect(got.status).toBe(200);
      const { headers } = got;
      for (const name of [
        'x-private',
        'upgrade',
        'proxy-authenticate',
        'set-cookie',
        'server',
        'alt-svc',
        'x-accel-redirect',
        'x-sendfile',
        ...ORDERS,
      ])
        expect(headers).not.toHaveProperty([name]);
      expect(headers).not.toHaveProperty(['access-control-allow-credentials']);
      expect(headers).not.toHaveProperty(['access-control-allow-origin']);
      expect(headers['x-request-id']).toMatch(/^req-/);
      expect(headers['x-attestation-id']).toBe(how.includes('tee') ? headers['x-request-id'] : undefined);
      expect(headers['cache-control']).toBe('no-store');
      expect(headers['x-content-type-options']).toBe('nosniff');
      expect(headers['content-security-policy']).toContain("default-src 'none'");
      expect(headers).toMatchObject({
        'x-stays': 'yes',
        'x-ratelimit-remaining-tokens': '7',
        'openai-processing-ms': '8',
      });
    },
  );
});

describe('an error of the backend', () => {
  it('carries no login, cookie or order of its own, and what a client waits for', async () => {
    const orders = Object.fromEntries(
      [...ORDERS, 'set-cookie', 'proxy-authenticate', 'alt-svc'].map((name) => [name, '1']),
    );
    for (const [status, tee] of [
      [401, false],
      [429, false],
      [429, true],
    ] as const) {
      service.backend.script = answer('{"error":"no"}', status, { ...orders, 'retry-after': '7' });
      const got = await chat(service.url, { ...CHAT, tee });
      expect([got.status, got.headers['retry-after']]).toEqual([status, '7']);
      expect(Object.keys(orders).filter((name) => name in got.headers)).toEqual([]);
    }
    service.backend.script = answer('{"data":[]}', 200, { ...orders, 'x-stays': 'yes' });
    const got = await ask(`${service.url}/v1/files`, { method: 'GET' });
    expect([got.status, got.headers['x-stays']]).toEqual([200, 'yes']);
    expect(Object.keys(orders).filter((name) => name in got.headers)).toEqual([]);
  });
});

describe('bytes in headers', () => {
  it.each([
    ['Latin-1', 'caf\xe9'],
    ['UTF-8 past Latin-1', '\xe2\x82\xac'],
    ['bytes of no encoding', '\xff\xfe\x80'],
    ['a tab', 'a\tb'],
  ])("of the backend's never break an answer: %s", async (_name, value) => {
    for (const tee of [false, true]) {
      const got = await behind(backendBytes([`x-odd: ${value}`, 'x-after: 1']), (gateway) =>
        raw(gateway, post('/v1/chat/completions', JSON.stringify({ ...CHAT, tee }))),
      );
      expect([got.answers[0]?.status, got.answers[0]?.headers['x-after']]).toEqual([200, '1']);
      expect(JSON.parse(got.answers[0]?.body ?? '')).toHaveProperty('choices');
    }
  });

  it.each([
    ['a bare LF', 'a\nx-injected: 1'],
    ['a bare CR', 'a\rx-injected: 1'],
    ['a NUL', 'a\0b'],
  ])("of the backend's that could begin another header never reach the client: %s", async (_name, value) => {
    const got = await behind(backendBytes([`x-odd: ${value}`]), (gateway) =>
      raw(gateway, post('/v1/chat/completions', BODY)),
    );
    expect(got.answers[0]?.headers).not.toHaveProperty(['x-injected']);
    expect([200, 502]).toContain(got.answers[0]?.status);
    expect(got.text).not.toContain('\0');
  });

  it("a completion's id and model that hold line ends are text in a body, never a header or a second event", async () => {
    const id = 'x\r\nx-injected: 1\r\n\r\ndata: {"forged":1}\n\n';
    service.backend.script = answer(chatBody('a', id));
    const got = await raw(service.url, post('/v1/chat/completions', JSON.stringify({ ...CHAT, model: id, tee: true })));
    expect(got.answers[0]?.headers).not.toHaveProperty(['x-injected']);
    expect(JSON.parse(got.answers[0]?.body ?? '').id).toBe(id);
    const byId = await raw(service.url, get(`/v1/chat/completions/${encodeURIComponent(id)}/attestation`));
    expect([200, 404]).toContain(byId.answers[0]?.status);
    expect(byId.answers[0]?.headers).not.toHaveProperty(['x-injected']);
  });

  it('retry-after is an integer, whatever the backend wrote', async () => {
    for (const value of ['1.5', 'Wed, 21 Oct 2015 07:28:00 GMT', 'soon', '-3', '1e400', '0x10; a=b']) {
      service.backend.script = answer('{"error":"slow"}', 429, { 'retry-after': value });
      expect((await chat(service.url, CHAT)).headers['retry-after']).toMatch(/^[1-9]\d*$/);
    }
  });

  it.each(['__proto__', 'constructor', 'toString', 'hasownproperty'])(
    'a header named %s is a header like any other',
    async (name) => {
      const got = await raw(service.url, post('/v1/chat/completions', BODY, [`${name}: 1`]));
      expect(got.answers[0]?.status).toBe(200);
      expect(({} as Record<string, unknown>)['1']).toBeUndefined();
    },
  );

  it('a backend that sends 102 or 103 first is read past it', async () => {
    for (const interim of ['HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n', 'HTTP/1.1 102 Processing\r\n\r\n']) {
      const got = await behind(interim + backendBytes([]), (gateway) =>
        raw(gateway, post('/v1/chat/completions', BODY)),
      );
      expect(got.answers[0]?.status).toBe(200);
    }
  });
});
