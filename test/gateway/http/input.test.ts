import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { ask, CHAT, chat } from '../../support/client.ts';
import { useService } from '../../support/service.ts';
import { expectError } from '../expect-error.ts';

const service = useService({ MAX_BODY_BYTES: '4096', BACKEND_TIMEOUT_MS: '400' });

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
    ['tee: 1', '{"messages":[{"role":"user"}],"tee":1}', 'invalid_request', 'tee'],
    ['tee given twice', '{"tee":true,"messages":[{"role":"user"}],"tee":true}', 'invalid_request', 'tee'],
    [
      'tee given twice, once escaped',
      '{"t\\u0065e":false,"messages":[{"role":"user"}],"tee":true}',
      'invalid_request',
      'tee',
    ],
  ])('is refused with the member named, and the backend is not asked: %s', async (_name, body, code, param) => {
    expectError(await chat(service.url, body), 400, code, param);
    expect(service.backend.seen).toHaveLength(0);
  });

  it('is refused when it is not UTF-8', async () => {
    const body = Buffer.concat([
      Buffer.from('{"messages":[{"role":"user","content":"'),
      Buffer.from([0xc3, 0x28]),
      Buffer.from('"}]}'),
    ]);
    expectError(await ask(`${service.url}/v1/chat/completions`, { body }), 400, 'invalid_json');
  });

  it('is refused when it is too large, whole or chunked', async () => {
    const body = JSON.stringify({ ...CHAT, pad: 'x'.repeat(5_000) });
    expectError(await chat(service.url, body), 413, 'body_too_large');
    expectError(await ask(`${service.url}/v1/chat/completions`, { body, chunked: true }), 413, 'body_too_large');
    expectError(await ask(`${service.url}/v1/embeddings`, { body }), 413, 'body_too_large');
    expect(service.backend.seen).toHaveLength(0);
  });

  it('is refused when it is compressed', async () => {
    expectError(await chat(service.url, CHAT, { 'content-encoding': 'gzip' }), 415, 'unsupported_encoding');
  });

  it('with a bad x-tee header is refused', async () => {
    expectError(await chat(service.url, CHAT, { 'x-tee': 'maybe' }), 400, 'invalid_request', 'x-tee');
  });

  it('that breaks off leaves the process alive and the backend unasked', async () => {
    const { hostname, port } = new URL(service.url);
    await new Promise<void>((resolve) => {
      const socket = connect(Number(port), hostname, () => {
        socket.write('POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"messages"');
        setTimeout(() => socket.destroy(), 50);
      });
      socket.on('close', () => resolve());
    });
    expect((await chat(service.url, CHAT)).status).toBe(200);
    expect(service.backend.seen).toHaveLength(1);
  });

  it("that is no HTTP gets OpenAI's shape too", async () => {
    const { hostname, port } = new URL(service.url);
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
    expectError(await ask(`${service.url}/nothing`, { method: 'GET' }), 404, 'not_found');
    for (const [path, method, allow] of [
      ['/v1/chat/completions', 'PUT', 'GET, POST, DELETE'],
      ['/health', 'POST', 'GET'],
      ['/', 'POST', 'GET'],
      ['/openapi.json', 'POST', 'GET'],
      ['/~sev_gpu@1.0/verify', 'DELETE', 'GET, POST'],
      ['/v1/models', 'PATCH', 'GET, POST, DELETE'],
    ] as const) {
      const got = await ask(service.url + path, { method });
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
      const { hostname, port } = new URL(service.url);
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
    expect(service.backend.seen).toHaveLength(0);
  });
});

describe('the rest of /v1', () => {
  it('is passed through: models, embeddings, queries, binary answers', async () => {
    service.backend.models = null;
    const audio = Buffer.from([0, 255, 1, 254]);
    service.backend.script = (request, response) => {
      if (request.url === '/v1/audio/speech') response.writeHead(200, { 'content-type': 'audio/mpeg' }).end(audio);
      else
        response
          .writeHead(200, { 'content-type': 'application/json' })
          .end(JSON.stringify({ url: request.url, body: request.body }));
    };
    expect((await ask(`${service.url}/v1/models`, { method: 'GET' })).json()).toEqual({ url: '/v1/models', body: '' });
    expect((await ask(`${service.url}/v1/models/a%2Fb?x=1`, { method: 'GET' })).json().url).toBe(
      '/v1/models/a%2Fb?x=1',
    );
    expect((await ask(`${service.url}/v1/embeddings`, { body: '{"input":"a", "n":1.0}' })).json().body).toBe(
      '{"input":"a", "n":1.0}',
    );
    expect((await ask(`${service.url}/v1/embeddings`, { body: '{"input":"a","tee":false}' })).json().body).toBe(
      '{"input":"a"}',
    );
    expect((await ask(`${service.url}/v1/audio/speech`, { body: '{"input":"a"}' })).body).toEqual(audio);
  });

  it('lists models to clients that send x-tee with everything', async () => {
    const got = await ask(`${service.url}/v1/models`, { method: 'GET', headers: { 'x-tee': '1' } });
    expect(got.status).toBe(200);
    expect(got.headers['x-tee']).toBe('unsupported');
    expect(service.backend.seen.at(-1)).toMatchObject({ method: 'GET', url: '/v1/models' });
    expect(service.backend.seen.at(-1)?.headers).not.toHaveProperty('x-tee');
  });

  it('has the stored completions, like what stands beside them', async () => {
    for (const [method, path] of [
      ['GET', '/v1/chat/completions?limit=2'],
      ['GET', '/v1/chat/completions/c-1'],
      ['DELETE', '/v1/chat/completions/c-1'],
    ] as const) {
      expect((await ask(service.url + path, { method })).status).toBe(200);
      expect(service.backend.seen.at(-1)).toMatchObject({ method, url: path });
    }
  });
});

describe('browsers', () => {
  it('may ask from this machine, send any header, and read the ids', async () => {
    const origin = 'http://localhost:3000';
    const preflight = await ask(`${service.url}/v1/chat/completions`, {
      method: 'OPTIONS',
      headers: { origin, 'access-control-request-headers': 'authorization,x-stainless-os' },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers['access-control-allow-headers']).toBe('authorization,x-stainless-os');
    const got = await chat(service.url, CHAT, { origin });
    expect(got.headers['access-control-allow-origin']).toBe(origin);
    expect(got.headers['access-control-expose-headers']).toContain('x-attestation-id');
    expect(got.headers['cache-control']).toBe('no-store');
  });
});
