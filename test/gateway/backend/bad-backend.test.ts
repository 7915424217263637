import { describe, expect, it } from 'vitest';
import { answer, chatAnswer, delta, startBackend } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { startGateway } from '../../support/harness.ts';
import { useService } from '../../support/service.ts';
import { expectError } from '../expect-error.ts';

const service = useService({ MAX_BODY_BYTES: '4096', BACKEND_TIMEOUT_MS: '400' });

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
    service.backend.script = script;
    for (const body of [CHAT, { ...CHAT, tee: true }]) {
      const got = await chat(service.url, body);
      expectError(got, status, code, param);
      expect(got.json().error.message).toBe(message);
    }
  });

  it('that limits the rate is passed on with an integer retry-after', async () => {
    for (const [given, expected] of [
      ['7', '7'],
      ['1.2', '2'],
      ['1e300', '86400'],
      [new Date(Date.now() + 5_000).toUTCString(), /^[3-6]$/],
      [undefined, '1'],
    ] as const) {
      service.backend.script = answer(
        '{"error":{"message":"slow down"}}',
        429,
        given === undefined ? {} : { 'retry-after': given },
      );
      const got = await chat(service.url, CHAT);
      expectError(got, 429, 'rate_limit_exceeded');
      expect(got.headers['retry-after']).toMatch(expected);
    }
  });

  it('that answers HTML, or redirects, is a 502', async () => {
    service.backend.script = answer('<html>', 200, { 'content-type': 'text/html' });
    expectError(await chat(service.url, CHAT), 502, 'backend_bad_response');
    service.backend.script = answer('', 302, { location: 'http://elsewhere/' });
    expectError(await chat(service.url, CHAT), 502, 'backend_bad_response');
  });

  it('that breaks off before its headers is a 502, in half an answer a broken connection or a 502', async () => {
    service.backend.script = (_request, response) => void response.socket?.destroy();
    expectError(await chat(service.url, CHAT), 502, 'backend_unreachable');
    service.backend.script = (_request, response) => {
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': 100 });
      response.write('{"half":');
      setTimeout(() => response.destroy(), 20);
    };
    expect((await chat(service.url, CHAT)).complete).toBe(false);
    expectError(await chat(service.url, { ...CHAT, tee: true }), 502, 'backend_bad_response');
  });

  it('that breaks off right behind its headers is a 502: nothing of the answer has been told', async () => {
    for (const headers of [{ 'content-length': 100 }, {}]) {
      service.backend.script = (_request, response) => {
        response.writeHead(200, { 'content-type': 'application/json', ...headers }).flushHeaders();
        setTimeout(() => response.destroy(), 20);
      };
      for (const query of ['', '?node']) {
        const got = await ask(`${service.url}/v1/chat/completions${query}`, { body: JSON.stringify(CHAT) });
        expectError(got, 502, 'backend_bad_response');
      }
    }
  });

  it('that breaks off in an event stream of known length breaks the connection: no word of ours fits into the length', async () => {
    const event = delta('x');
    for (const length of [10_000, event.length + 10]) {
      service.backend.script = (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream', 'content-length': length }).write(event);
        setTimeout(() => response.destroy(), 20);
      };
      for (const query of ['', '?node']) {
        const got = await ask(`${service.url}/v1/chat/completions${query}`, {
          body: JSON.stringify({ ...CHAT, stream: true }),
        });
        expect([got.text, got.complete]).toEqual([event, false]);
      }
    }
  });

  it.each([204, 205])('that has no content to answer with, by its status %i, is a 502', async (status) => {
    service.backend.script = (_request, response) =>
      void response.writeHead(status, { 'content-type': 'text/event-stream' }).end();
    for (const tee of [false, true])
      for (const query of ['', '?node'])
        expectError(
          await ask(`${service.url}/v1/chat/completions${query}`, { body: JSON.stringify({ ...CHAT, tee }) }),
          502,
          'backend_bad_response',
        );
  });

  it('that is slow is a 504', async () => {
    service.backend.script = () => {};
    expectError(await chat(service.url, CHAT), 504, 'backend_timeout');
  });

  it('that is down is a 502, and health says so', async () => {
    const dead = await startBackend();
    await dead.close();
    const alone = await startGateway({ BACKEND_URL: dead.url, SIDECAR_SOCKET: service.sidecar.socket });
    expectError(await chat(alone.url, CHAT), 502, 'backend_unreachable');
    const health = await ask(`${alone.url}/health`, { method: 'GET' });
    expect([health.status, health.json().status, health.json().backend]).toEqual([
      503,
      'down',
      { status: 'down', code: 'backend_unreachable', canary: { state: 'off' } },
    ]);
    await alone.close();
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
    const fresh = await startGateway({ BACKEND_URL: service.backend.url, SIDECAR_SOCKET: service.sidecar.socket });
    await chat(fresh.url, CHAT);
    await idle();
    let left = hangUps;
    service.backend.seen.length = 0;
    service.backend.script = (request, response) => {
      if (left-- > 0) response.socket?.destroy();
      else void chatAnswer('Here.')(request, response);
    };
    expect((await chat(fresh.url, CHAT)).status).toBe(status);
    expect(service.backend.seen).toHaveLength(asked);
    await fresh.close();
  });

  it('is not asked again for what may have been done', async () => {
    await chat(service.url, CHAT);
    service.backend.script = (_request, response) => void response.socket?.destroy();
    service.backend.seen.length = 0;
    expectError(await ask(`${service.url}/v1/batches`, { body: '{}' }), 502, 'backend_unreachable');
    expect(service.backend.seen).toHaveLength(1);
  });
});

describe('what the gateway itself says and passes on', () => {
  it('says what the gateway itself refused, in its own words', async () => {
    service.backend.script = answer('<html>', 200, { 'content-type': 'text/html' });
    expect((await chat(service.url, CHAT)).json().error.message).toContain('neither JSON nor an event stream');
  });

  it('passes queries on whole, on every route', async () => {
    service.backend.script = chatAnswer('x');
    await ask(`${service.url}/v1/files?a=b?c&d=e`, { method: 'GET' });
    await ask(`${service.url}/v1/chat/completions?api-version=1`, { body: JSON.stringify(CHAT) });
    expect(service.backend.seen.map(({ url }) => url)).toEqual([
      '/v1/files?a=b?c&d=e',
      '/v1/chat/completions?api-version=1',
    ]);
  });

  it('answers HEAD without breaking', async () => {
    const got = await ask(`${service.url}/v1/models`, { method: 'HEAD' });
    expect(got.status).toBe(405);
    expect((await chat(service.url, CHAT)).status).toBe(200);
  });

  it('refuses a query that the verify endpoint does not know before it reads the body', async () => {
    const got = await ask(`${service.url}/~sev_gpu@1.0/verify?report=2`, { body: '{}' });
    expectError(got, 400, 'invalid_request', 'report');
  });
});
