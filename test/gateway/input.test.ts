import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ConfigError, loadConfig } from '../../gateway/config.ts';
import { answer, type Backend, chatAnswer, startBackend } from '../backend.ts';
import { type Answer, ask, CHAT, chat } from '../client.ts';
import {
  type Folder,
  type RunningGateway,
  type RunningSidecar,
  startGateway,
  startSidecar,
  temporaryFolder,
} from '../harness.ts';

let folder: Folder;
let backend: Backend;
let sidecar: RunningSidecar;
let gateway: RunningGateway;

beforeAll(async () => {
  folder = temporaryFolder();
  backend = await startBackend();
  sidecar = await startSidecar(folder);
  gateway = await startGateway({
    BACKEND_URL: backend.url,
    SIDECAR_SOCKET: sidecar.socket,
    MAX_BODY_BYTES: '4096',
    BACKEND_TIMEOUT_MS: '400',
  });
});
beforeEach(() => {
  backend.script = chatAnswer('Hello.');
  backend.seen.length = 0;
});
afterAll(async () => {
  await gateway.close();
  await sidecar.close();
  await backend.close();
  folder.remove();
});

/** OpenAI's shape, always: four members, no more. */
function expectError(got: Answer, status: number, code: string, param: string | null = null): void {
  expect(got.headers['content-type']).toMatch(/^application\/json/);
  expect([got.status, got.json().error.code, got.json().error.param]).toEqual([status, code, param]);
  expect(Object.keys(got.json().error)).toEqual(['message', 'type', 'param', 'code']);
  expect(typeof got.json().error.message).toBe('string');
  expect(got.headers['x-request-id']).toMatch(/^req-/);
}

describe('bad input', () => {
  it.each([
    ['not JSON', '{"messages":', 'invalid_json', null],
    ['nothing', '', 'invalid_json', null],
    ['an array', '[]', 'invalid_request', null],
    ['a byte order mark', '\ufeff{}', 'invalid_json', null],
    ['no messages', '{"model":"m"}', 'invalid_request', 'messages'],
    ['empty messages', '{"messages":[]}', 'invalid_request', 'messages'],
    ['messages of a wrong type', '{"messages":"hi"}', 'invalid_request', 'messages'],
    ['a message that is no object', '{"messages":["hi"]}', 'invalid_request', 'messages.0'],
    ['a message without a role', '{"messages":[{"content":"x"}]}', 'invalid_request', 'messages.0.role'],
    ['stream of a wrong type', '{"messages":[{"role":"user"}],"stream":"yes"}', 'invalid_request', 'stream'],
    ['tee: "yes"', '{"messages":[{"role":"user"}],"tee":"yes"}', 'invalid_request', 'tee'],
    ['tee: null', '{"messages":[{"role":"user"}],"tee":null}', 'invalid_request', 'tee'],
    ['tee given twice', '{"tee":true,"messages":[{"role":"user"}],"tee":true}', 'invalid_request', 'tee'],
    [
      'tee given twice, once escaped',
      '{"t\\u0065e":false,"messages":[{"role":"user"}],"tee":true}',
      'invalid_request',
      'tee',
    ],
  ])('is refused with the member named, and the backend is not asked: %s', async (_name, body, code, param) => {
    expectError(await chat(gateway.url, body), 400, code, param);
    expect(backend.seen).toHaveLength(0);
  });

  it('is refused when it is not UTF-8', async () => {
    const body = Buffer.concat([
      Buffer.from('{"messages":[{"role":"user","content":"'),
      Buffer.from([0xc3, 0x28]),
      Buffer.from('"}]}'),
    ]);
    expectError(await ask(`${gateway.url}/v1/chat/completions`, { body }), 400, 'invalid_json');
  });

  it('is refused when it is too large, whole or chunked', async () => {
    const body = JSON.stringify({ ...CHAT, pad: 'x'.repeat(5_000) });
    expectError(await chat(gateway.url, body), 413, 'body_too_large');
    expectError(await ask(`${gateway.url}/v1/chat/completions`, { body, chunked: true }), 413, 'body_too_large');
    expectError(await ask(`${gateway.url}/v1/embeddings`, { body }), 413, 'body_too_large');
    expect(backend.seen).toHaveLength(0);
  });

  it('is refused when it is compressed', async () => {
    expectError(await chat(gateway.url, CHAT, { 'content-encoding': 'gzip' }), 415, 'unsupported_encoding');
  });

  it('with a bad x-tee header is refused', async () => {
    expectError(await chat(gateway.url, CHAT, { 'x-tee': 'maybe' }), 400, 'invalid_request', 'x-tee');
  });

  it('that breaks off leaves the process alive and the backend unasked', async () => {
    const { hostname, port } = new URL(gateway.url);
    await new Promise<void>((resolve) => {
      const socket = connect(Number(port), hostname, () => {
        socket.write('POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"messages"');
        setTimeout(() => socket.destroy(), 50);
      });
      socket.on('close', () => resolve());
    });
    expect((await chat(gateway.url, CHAT)).status).toBe(200);
    expect(backend.seen).toHaveLength(1);
  });

  it("that is no HTTP gets OpenAI's shape too", async () => {
    const { hostname, port } = new URL(gateway.url);
    const text = await new Promise<string>((resolve) => {
      let all = '';
      const socket = connect(Number(port), hostname, () => socket.write('HELLO\r\n\r\n'));
      socket.on('data', (data) => {
        all += data;
      });
      socket.on('close', () => resolve(all));
    });
    expect(text).toMatch(/^HTTP\/1\.1 400 /);
    expect(JSON.parse(text.split('\r\n\r\n')[1] as string).error.code).toBe('invalid_request');
  });

  it('on an unknown path is 404, with an unknown method 405 and what is allowed', async () => {
    expectError(await ask(`${gateway.url}/nothing`, { method: 'GET' }), 404, 'not_found');
    for (const [path, method, allow] of [
      ['/v1/chat/completions', 'GET', 'POST'],
      ['/v1/completions', 'DELETE', 'POST'],
      ['/health', 'POST', 'GET'],
      ['/~sev_gpu@1.0/verify', 'DELETE', 'GET, POST'],
      ['/v1/models', 'PATCH', 'GET, POST, DELETE'],
    ] as const) {
      const got = await ask(gateway.url + path, { method });
      expectError(got, 405, 'method_not_allowed');
      expect(got.headers.allow).toBe(allow);
    }
  });

  it("cannot climb out of the backend's /v1", async () => {
    for (const path of [
      '/v1/../admin',
      '/v1/%2e%2e/admin',
      '/v1/x/..%2f..%2fadmin',
      '/v1/..%5cadmin',
      '/%761/models',
      '/v1/x%00',
    ]) {
      const { hostname, port } = new URL(gateway.url);
      const text = await new Promise<string>((resolve) => {
        let all = '';
        const socket = connect(Number(port), hostname, () =>
          socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`),
        );
        socket.on('data', (data) => {
          all += data;
        });
        socket.on('close', () => resolve(all));
      });
      expect(text).toMatch(/^HTTP\/1\.1 404 /);
    }
    expect(backend.seen).toHaveLength(0);
  });
});

describe('a bad backend', () => {
  it.each([
    [
      "FastAPI's detail",
      answer('{"detail":[{"loc":["body","messages",0],"msg":"Field required","input":"SECRET"}]}', 422),
      422,
      'invalid_request',
      'messages.0',
      'Field required',
    ],
    ["FastAPI's text", answer('{"detail":"Not Found"}', 404), 404, 'not_found', null, 'Not Found'],
    [
      "llama-server's integer code",
      answer('{"error":{"code":400,"message":"bad grammar","type":"invalid_request_error"}}', 400),
      400,
      'invalid_request',
      null,
      'bad grammar',
    ],
    [
      "vLLM's bare error",
      answer('{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}', 400),
      400,
      'invalid_request',
      null,
      'too long',
    ],
    ['a text as its error', answer('{"error":"no such model"}', 404), 404, 'not_found', null, 'no such model'],
    [
      'HTML from a proxy',
      answer('<html><h1>502 nginx</h1>', 502, { 'content-type': 'text/html' }),
      502,
      'backend_error',
      null,
      'The backend answered with status 502.',
    ],
    ["OpenAI's own", answer('{"error":{"message":"m","type":"t","param":"p","code":"c"}}', 400), 400, 'c', 'p', 'm'],
  ] as const)('has its error rewritten, status kept: %s', async (_name, script, status, code, param, message) => {
    backend.script = script;
    for (const body of [CHAT, { ...CHAT, tee: true }]) {
      const got = await chat(gateway.url, body);
      expectError(got, status, code, param);
      expect(got.json().error.message).toBe(message);
    }
  });

  it('that limits the rate is passed on with an integer retry-after', async () => {
    for (const [given, expected] of [
      ['7', '7'],
      ['1.2', '2'],
      [new Date(Date.now() + 5_000).toUTCString(), /^[3-6]$/],
      [undefined, '1'],
    ] as const) {
      backend.script = answer(
        '{"error":{"message":"slow down"}}',
        429,
        given === undefined ? {} : { 'retry-after': given },
      );
      const got = await chat(gateway.url, CHAT);
      expectError(got, 429, 'rate_limit_exceeded');
      expect(got.headers['retry-after']).toMatch(expected);
    }
  });

  it('that answers HTML, or redirects, is a 502', async () => {
    backend.script = answer('<html>', 200, { 'content-type': 'text/html' });
    expectError(await chat(gateway.url, CHAT), 502, 'backend_bad_response');
    backend.script = answer('', 302, { location: 'http://elsewhere/' });
    expectError(await chat(gateway.url, CHAT), 502, 'backend_bad_response');
  });

  it('that breaks off before its headers is a 502, in half an answer a broken connection or a 502', async () => {
    backend.script = (_request, response) => void response.socket?.destroy();
    expectError(await chat(gateway.url, CHAT), 502, 'backend_unreachable');
    backend.script = (_request, response) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': 100 });
      response.write('{"half":');
      setTimeout(() => response.destroy(), 20);
    };
    expect((await chat(gateway.url, CHAT)).complete).toBe(false);
    expectError(await chat(gateway.url, { ...CHAT, tee: true }), 502, 'backend_bad_response');
  });

  it('that is slow is a 504', async () => {
    backend.script = () => {};
    expectError(await chat(gateway.url, CHAT), 504, 'backend_timeout');
  });

  it('that is down is a 502, and health says so', async () => {
    const dead = await startBackend();
    await dead.close();
    const alone = await startGateway({ BACKEND_URL: dead.url, SIDECAR_SOCKET: sidecar.socket });
    expectError(await chat(alone.url, CHAT), 502, 'backend_unreachable');
    const health = await ask(`${alone.url}/health`, { method: 'GET' });
    expect([health.status, health.json().status, health.json().backend]).toEqual([
      503,
      'down',
      { status: 'down', code: 'backend_unreachable' },
    ]);
    await alone.close();
  });
});

describe('the rest of /v1', () => {
  it('is passed through: models, embeddings, queries, binary answers', async () => {
    backend.models = null;
    const audio = Buffer.from([0, 255, 1, 254]);
    backend.script = (request, response) => {
      if (request.url === '/v1/audio/speech') response.writeHead(200, { 'content-type': 'audio/mpeg' }).end(audio);
      else
        response
          .writeHead(200, { 'content-type': 'application/json' })
          .end(JSON.stringify({ url: request.url, body: request.body }));
    };
    expect((await ask(`${gateway.url}/v1/models`, { method: 'GET' })).json()).toEqual({ url: '/v1/models', body: '' });
    expect((await ask(`${gateway.url}/v1/models/a%2Fb?x=1`, { method: 'GET' })).json().url).toBe(
      '/v1/models/a%2Fb?x=1',
    );
    expect((await ask(`${gateway.url}/v1/embeddings`, { body: '{"input":"a", "n":1.0}' })).json().body).toBe(
      '{"input":"a", "n":1.0}',
    );
    expect((await ask(`${gateway.url}/v1/embeddings`, { body: '{"input":"a","tee":false}' })).json().body).toBe(
      '{"input":"a"}',
    );
    expect((await ask(`${gateway.url}/v1/audio/speech`, { body: '{"input":"a"}' })).body).toEqual(audio);
  });

  it('refuses tee and says where it works', async () => {
    for (const [body, headers] of [
      ['{"input":"a","tee":true}', {}],
      ['{"input":"a","t\\u0065e":true}', {}],
      ['{"input":"a"}', { 'x-tee': '1' }],
    ] as const) {
      const got = await ask(`${gateway.url}/v1/embeddings`, { body, headers });
      expect([got.status, got.json().error.code]).toEqual([400, 'invalid_request']);
      expect(got.json().error.message).toContain('/v1/chat/completions');
    }
    expect(backend.seen).toHaveLength(0);
  });
});

describe('who may ask', () => {
  it('is decided by a key from the file; an attestation is only for the key that asked', async () => {
    const file = join(folder.path, 'keys');
    writeFileSync(file, '# team\nkey-one\n\n  key-two \n');
    const locked = await startGateway({
      BACKEND_URL: backend.url,
      SIDECAR_SOCKET: sidecar.socket,
      API_KEYS_FILE: file,
    });
    for (const headers of [
      {},
      { authorization: 'Bearer nobody' },
      { authorization: 'Basic a2V5LW9uZQ==' },
      { authorization: 'Bearer # team' },
    ]) {
      const got = await chat(locked.url, CHAT, headers);
      expectError(got, 401, 'invalid_api_key');
      expect(got.headers['www-authenticate']).toBe('Bearer');
    }
    expect(backend.seen).toHaveLength(0);
    const mine = await chat(locked.url, { ...CHAT, tee: true }, { authorization: 'Bearer key-one' });
    expect(mine.status).toBe(200);
    const url = `${locked.url}/v1/chat/completions/${mine.headers['x-attestation-id']}/attestation`;
    expect((await ask(url, { method: 'GET', headers: { authorization: 'Bearer key-one' } })).status).toBe(200);
    expect((await ask(url, { method: 'GET', headers: { authorization: 'Bearer key-two' } })).status).toBe(404);
    expect((await ask(`${locked.url}/health`, { method: 'GET' })).status).toBe(200);
    await locked.close();
  });

  it('is everybody only on loopback', () => {
    const env = { BACKEND_URL: 'http://127.0.0.1:1/v1' };
    for (const HOST of ['127.0.0.1', 'localhost', '::1']) expect(loadConfig({ ...env, HOST }).host).toBe(HOST);
    for (const HOST of ['0.0.0.0', '::', '10.0.0.1', '127.0.0.1.example.com'])
      expect(() => loadConfig({ ...env, HOST })).toThrow(/API_KEYS_FILE/);
    expect(() => loadConfig({ ...env, HOST: '0.0.0.0', API_KEYS_FILE: '/etc/keys' })).not.toThrow();
  });

  it('is limited in number at once', async () => {
    const small = await startGateway({
      BACKEND_URL: backend.url,
      SIDECAR_SOCKET: sidecar.socket,
      MAX_CONCURRENT_REQUESTS: '1',
    });
    let release = () => {};
    backend.script = (_request, response) => {
      release = () => void response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    };
    const first = chat(small.url, CHAT);
    while (backend.seen.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    const second = await chat(small.url, CHAT);
    expectError(second, 503, 'overloaded');
    expect(second.headers['retry-after']).toBe('1');
    release();
    expect((await first).status).toBe(200);
    backend.script = chatAnswer('again');
    expect((await chat(small.url, CHAT)).status).toBe(200);
    await small.close();
  });
});

describe('browsers', () => {
  it('may ask from any origin, send any header, and read the ids', async () => {
    const preflight = await ask(`${gateway.url}/v1/chat/completions`, {
      method: 'OPTIONS',
      headers: { origin: 'https://a.example', 'access-control-request-headers': 'authorization,x-stainless-os' },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers['access-control-allow-headers']).toBe('authorization,x-stainless-os');
    const got = await chat(gateway.url, CHAT, { origin: 'https://a.example' });
    expect(got.headers['access-control-allow-origin']).toBe('*');
    expect(got.headers['access-control-expose-headers']).toContain('x-attestation-id');
    expect(got.headers['cache-control']).toBe('no-store');
  });
});

describe('the configuration', () => {
  it.each([
    [{}, /^BACKEND_URL is required$/],
    [{ BACKEND_URL: 'ftp://x' }, /^BACKEND_URL must be an http/],
    [{ BACKEND_URL: 'http://x/v1', PORT: '70000' }, /^PORT /],
    [{ BACKEND_URL: 'http://x/v1', MAX_BODY_BYTES: 'lots' }, /^MAX_BODY_BYTES /],
    [{ BACKEND_URL: 'http://x/v1', ALLOW_SIMULATED: 'yes' }, /^ALLOW_SIMULATED /],
    [{ BACKEND_URL: 'http://x/v1', SIDECAR_SOCKET: `/${'x'.repeat(200)}` }, /^SIDECAR_SOCKET /],
  ])('stops the start with one line that names the variable: %j', (env, message) => {
    expect(() => loadConfig(env)).toThrow(ConfigError);
    expect(() => loadConfig(env)).toThrow(message);
    try {
      loadConfig(env);
    } catch (error) {
      expect((error as Error).message).not.toContain('\n');
    }
  });
});

/** Until the gateway's connection to the backend lies idle and is taken for the next request. */
const idle = () => new Promise((resolve) => setTimeout(resolve, 50));

describe('a backend that hangs up on idle connections', () => {
  it.each([
    ['is asked once more on another connection', 1, 200, 2],
    ['is not asked a third time', 10, 502, 2],
  ])('%s', async (_name, hangUps, status, asked) => {
    // Its own gateway: which connection is taken is known only where there is one.
    const fresh = await startGateway({ BACKEND_URL: backend.url, SIDECAR_SOCKET: sidecar.socket });
    await chat(fresh.url, CHAT);
    await idle();
    let left = hangUps;
    backend.seen.length = 0;
    backend.script = (request, response) => {
      if (left-- > 0) response.socket?.destroy();
      else void chatAnswer('Here.')(request, response);
    };
    expect((await chat(fresh.url, CHAT)).status).toBe(status);
    expect(backend.seen).toHaveLength(asked);
    await fresh.close();
  });

  it('is not asked again for what may have been done', async () => {
    await chat(gateway.url, CHAT);
    backend.script = (_request, response) => void response.socket?.destroy();
    backend.seen.length = 0;
    expectError(await ask(`${gateway.url}/v1/batches`, { body: '{}' }), 502, 'backend_unreachable');
    expect(backend.seen).toHaveLength(1);
  });
});

describe('what a sceptic found', () => {
  it('says what the gateway itself refused, in its own words', async () => {
    backend.script = answer('<html>', 200, { 'content-type': 'text/html' });
    expect((await chat(gateway.url, CHAT)).json().error.message).toContain('neither JSON nor an event stream');
  });

  it('passes queries on whole, on every route', async () => {
    backend.script = chatAnswer('x');
    await ask(`${gateway.url}/v1/files?a=b?c&d=e`, { method: 'GET' });
    await ask(`${gateway.url}/v1/chat/completions?api-version=1`, { body: JSON.stringify(CHAT) });
    expect(backend.seen.map(({ url }) => url)).toEqual(['/v1/files?a=b?c&d=e', '/v1/chat/completions?api-version=1']);
  });

  it('answers HEAD without breaking', async () => {
    const got = await ask(`${gateway.url}/v1/models`, { method: 'HEAD' });
    expect(got.status).toBe(405);
    expect((await chat(gateway.url, CHAT)).status).toBe(200);
  });

  it('refuses a query that the verify endpoint does not know before it reads the body', async () => {
    const got = await ask(`${gateway.url}/~sev_gpu@1.0/verify?report=2`, { body: '{}' });
    expectError(got, 400, 'invalid_request', 'report');
  });

  it.each([
    [{ BACKEND_API_KEY: 'k\u0100' }, /^BACKEND_API_KEY /],
    [{ BACKEND_URL: 'http://user:pass@x/v1' }, /^BACKEND_URL /],
    [{ BACKEND_URL: 'http://x/v1?a=b' }, /^BACKEND_URL /],
  ])('stops the start for what could never work: %j', (env, message) => {
    expect(() => loadConfig({ BACKEND_URL: 'http://x/v1', ...env })).toThrow(message);
  });
});
