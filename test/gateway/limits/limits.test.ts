import { Agent, request } from 'node:http';
import { connect } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { answer, chatAnswer, chatStream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually } from '../../support/harness.ts';
import { expectError } from '../expect-error.ts';
import { bearer, holdResponses, type Stage, startStage } from './limits-stage.ts';

vi.setConfig({ testTimeout: 60_000 });

let stage: Stage;

beforeAll(async () => {
  stage = await startStage();
});
beforeEach(() => {
  stage.service.backend.script = chatAnswer('Hello.');
  stage.service.backend.seen.length = 0;
});
afterAll(() => stage.close());

const STREAM = { ...CHAT, stream: true };
const TEE = { ...CHAT, tee: true };

describe('requests at once', () => {
  it('past the total are refused before their body is read, on a connection that stays usable', async () => {
    const url = await stage.gateway({ MAX_CONCURRENT_REQUESTS: '2', MAX_BODY_BYTES: '1024' });
    const held = holdResponses(stage.service);
    const accepted = [chat(url, CHAT), chat(url, CHAT)];
    await eventually(() => held.count === 2);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const send = (body: string) =>
      new Promise<{ status: number; retry: string | undefined; code: string; reused: boolean }>((resolve, reject) => {
        const outgoing = request(`${url}/v1/chat/completions`, { method: 'POST', agent }, async (incoming) => {
          let text = '';
          for await (const chunk of incoming) text += chunk;
          const { error } = JSON.parse(text);
          resolve({
            status: incoming.statusCode ?? 0,
            retry: incoming.headers['retry-after'],
            code: error?.code,
            reused: outgoing.reusedSocket,
          });
        });
        outgoing.on('error', reject).end(body);
      });
    // Neither JSON nor within its limit: nobody looked.
    expect(await send('x'.repeat(5_000))).toEqual({ status: 503, retry: '1', code: 'overloaded', reused: false });
    expect(await send('{')).toEqual({ status: 503, retry: '1', code: 'overloaded', reused: true });
    // Too long for the plain path: Node's parser has it.
    expect(await send('x'.repeat(300_000))).toEqual({ status: 503, retry: '1', code: 'overloaded', reused: true });
    expect(await send('{')).toEqual({ status: 503, retry: '1', code: 'overloaded', reused: true });
    held.release();
    for (const one of accepted) expect((await one).status).toBe(200);
    expect(await send(JSON.stringify(CHAT))).toMatchObject({ status: 200, reused: true });
    agent.destroy();
  });

  it('are bounded for each key, by its line or by the default, and no key takes the place of another', async () => {
    const url = await stage.gateway({}, ['a', 'b concurrent=2', 'c concurrent=0', '* concurrent=1']);
    const held = holdResponses(stage.service);
    const accepted = ['a', 'b', 'b', 'c', 'c', 'c'].map((name) => chat(url, CHAT, bearer(name)));
    await eventually(() => held.count === 6);
    for (const name of ['a', 'b']) {
      const got = await chat(url, CHAT, bearer(name));
      expectError(got, 429, 'rate_limit_exceeded');
      expect(got.headers['retry-after']).toBe('1');
      expect(got.json().error.type).toBe('rate_limit_error');
    }
    held.release();
    for (const one of accepted) expect((await one).status).toBe(200);
    for (const name of ['a', 'b', 'c']) expect((await chat(url, CHAT, bearer(name))).status).toBe(200);
  });

  it('count streams apart: past the total 503, past the key 429, while whole answers are served', async () => {
    const url = await stage.gateway({ limits: { max_streams: 2 } }, ['a streams=1', 'b']);
    const held = holdResponses(stage.service);
    const first = chat(url, STREAM, bearer('a'));
    await eventually(() => held.count === 1);
    expectError(await chat(url, STREAM, bearer('a')), 429, 'rate_limit_exceeded');
    const second = chat(url, STREAM, bearer('b'));
    await eventually(() => held.count === 2);
    const past = await chat(url, STREAM, bearer('b'));
    expectError(past, 503, 'overloaded');
    expect(past.headers['retry-after']).toBe('1');
    held.release();
    expect((await chat(url, CHAT, bearer('a'))).status).toBe(200);
    for (const one of await Promise.all([first, second])) expect(one.payloads().at(-1)).toBe('[DONE]');
    expect((await chat(url, STREAM, bearer('a'))).status).toBe(200);
  });

  it('count streams by whatever path they are asked for', async () => {
    const url = await stage.gateway({ limits: { max_streams: 1 } }, ['a']);
    const held = holdResponses(stage.service);
    const first = chat(url, STREAM, bearer('a'));
    await eventually(() => held.count === 1);
    const escaped = JSON.stringify(STREAM).replace('"stream"', '"str\\u0065am"');
    for (const path of ['/v1/responses', '/v1/chat%2fcompletions', '/v1//chat/completions', '/v1/chat/completions/'])
      for (const [type, body] of [
        ['application/json', JSON.stringify(STREAM)],
        ['application/json', escaped],
        ['text/plain', JSON.stringify(STREAM)],
      ] as const)
        expectError(
          await ask(url + path, { body, headers: { ...bearer('a'), 'content-type': type } }),
          503,
          'overloaded',
        );
    expect(held.count).toBe(1);
    held.release();
    expect((await first).status).toBe(200);
    const whole = { body: JSON.stringify({ ...CHAT, stop: 'stream' }), headers: bearer('a') };
    expect((await ask(`${url}/v1/responses`, whole)).status).toBe(200);
  });

  it('count tee apart: past it nothing is asked of the backend, and requests without tee are served', async () => {
    const url = await stage.gateway({}, ['* tee=1', 'a', 'b']);
    const held = holdResponses(stage.service);
    const first = chat(url, TEE, bearer('a'));
    await eventually(() => held.count === 1);
    expectError(await chat(url, TEE, bearer('a')), 429, 'rate_limit_exceeded');
    expect(held.count).toBe(1);
    const other = chat(url, TEE, bearer('b'));
    await eventually(() => held.count === 2);
    held.release();
    expect((await chat(url, CHAT, bearer('a'))).status).toBe(200);
    for (const one of [first, other]) expect((await one).json().attestation).toBeDefined();
    expect((await chat(url, TEE, bearer('a'))).status).toBe(200);
  });
});

describe('a place', () => {
  it('is never lost: after clients that left, broke off, pipelined and failed, all are there', async () => {
    const url = await stage.gateway({
      MAX_CONCURRENT_REQUESTS: '8',
      MAX_BODY_BYTES: '2097152',
      MAX_HELD_BYTES: '2097152',
      limits: { max_streams: 8 },
    });
    const { backend } = stage.service;
    backend.script = (request, response) => {
      const way = Number(/"user":"(\d+)"/.exec(request.body)?.[1]) % 5;
      if (way === 0) return void response.destroy();
      if (way === 1) return answer('{"error":"full"}', 503)(request, response);
      const stream = /"stream":true/.test(request.body);
      const script = stream ? chatStream(['Hello', ' there'], way) : chatAnswer('Hello.');
      return script(request, response);
    };
    const port = Number(new URL(url).port);
    const one = (i: number) =>
      new Promise<void>((resolve) => {
        const body = JSON.stringify({ ...CHAT, stream: i % 2 === 0, tee: i % 3 === 0, user: `${i}` });
        const length = i % 13 === 0 ? body.length + 10 : body.length;
        const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n`;
        const text = `${head}${i % 4 === 0 ? 'te: trailers\r\n' : ''}content-length: ${length}\r\n\r\n${body}`;
        const socket = connect(port, '127.0.0.1', () => socket.write(i % 7 === 0 ? text + text : text));
        socket.on('error', () => {}).on('close', () => resolve());
        socket.resume();
        setTimeout(() => socket.destroy(), i % 11 === 0 ? 200 : (i * 7) % 60);
      });
    for (let i = 0; i < 400; i += 20) await Promise.all(Array.from({ length: 20 }, (_, k) => one(i + k)));
    const held = holdResponses(stage.service);
    const hold = backend.script;
    // One of the storm's may still be on its way.
    backend.script = (request, response) =>
      request.body.includes('"final"') ? hold(request, response) : void response.destroy();
    let accepted: Promise<unknown>[] = [];
    await eventually(async () => {
      const missing = 8 - held.count;
      accepted = accepted.concat(
        Array.from({ length: missing }, () => chat(url, { ...CHAT, stream: true, tee: true, user: 'final' })),
      );
      await new Promise((resolve) => setTimeout(resolve, 100));
      return held.count === 8;
    }, 30_000);
    expectError(await chat(url, CHAT), 503, 'overloaded');
    held.release();
    await Promise.all(accepted);
    // Of the bytes that may be held, too, all are there.
    backend.script = chatAnswer('Hello.');
    expect((await chat(url, { ...CHAT, user: 'x'.repeat(2_000_000) })).status).toBe(200);
  });
});

describe('a client that sends several requests at once and leaves', () => {
  it('gives the places of all of them back, and nothing of theirs goes on', async () => {
    const url = await stage.gateway({ MAX_CONCURRENT_REQUESTS: '4' });
    const held = holdResponses(stage.service);
    const body = JSON.stringify(CHAT);
    const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nte: trailers\r\ncontent-length: ${body.length}\r\n\r\n`;
    const sockets = Array.from({ length: 4 }, () => {
      const socket = connect(Number(new URL(url).port), '127.0.0.1', () => socket.write((head + body).repeat(4)));
      return socket;
    });
    await eventually(() => held.count === 4);
    expectError(await chat(url, CHAT), 503, 'overloaded');
    for (const socket of sockets) socket.destroy();
    await eventually(() => stage.service.backend.seen.every(({ aborted_ms }) => aborted_ms !== null));
    const next = Array.from({ length: 4 }, () => chat(url, CHAT));
    await eventually(() => held.count === 8);
    held.release();
    for (const one of next) expect((await one).status).toBe(200);
  });
});

describe('bytes that are held', () => {
  it('are bounded for all requests together: past them a body is refused unread, or where its length was not told, cut', async () => {
    const url = await stage.gateway({ MAX_HELD_BYTES: '1048576', MAX_BODY_BYTES: '1048576' });
    const held = holdResponses(stage.service);
    const large = (bytes: number) => ({ ...CHAT, user: 'x'.repeat(bytes) });
    const accepted = chat(url, large(700_000));
    await eventually(() => held.count === 1);
    const refused = await chat(url, large(500_000));
    expectError(refused, 503, 'overloaded');
    expect(refused.headers['retry-after']).toBe('1');
    const cut = await ask(`${url}/v1/chat/completions`, { body: JSON.stringify(large(500_000)), chunked: true });
    expectError(cut, 503, 'overloaded');
    expect(held.count).toBe(1);
    const small = chat(url, CHAT);
    await eventually(() => held.count === 2);
    held.release();
    for (const one of [accepted, small]) expect((await one).status).toBe(200);
    expect((await chat(url, large(900_000))).status).toBe(200);
  });

  it('count the answers that wait to be attested, and none without tee', async () => {
    const url = await stage.gateway({ MAX_HELD_BYTES: '1048576', MAX_BODY_BYTES: '1048576' });
    const { backend } = stage.service;
    for (const stream of [false, true]) {
      backend.script = stream ? chatStream(Array(20).fill('x'.repeat(100_000))) : chatAnswer('x'.repeat(2_000_000));
      const plain = await chat(url, { ...CHAT, stream });
      expect([plain.status, plain.complete]).toEqual([200, true]);
      const tee = await chat(url, { ...CHAT, stream, tee: true });
      const error = stream ? JSON.parse(tee.payloads().at(-1) ?? '').error : tee.json().error;
      expect(error.code).toBe('overloaded');
      expect(tee.text).not.toContain('"finish_reason":"stop"');
    }
  });
});

describe('requests a second', () => {
  it('are bounded for each key, with the headers that OpenAI clients know, before the body is read', async () => {
    const url = await stage.gateway({}, ['* rps=2', 'a', 'b rps=1', 'c rps=0']);
    const got = await Promise.all(
      [1, 2, 3].map(() => chat(url, 'no JSON', { ...bearer('a'), origin: 'http://localhost' })),
    );
    expect(got.map(({ status }) => status).sort()).toEqual([400, 400, 429]);
    expect(got.map(({ headers }) => headers['x-ratelimit-remaining-requests']).sort()).toEqual(['0', '0', '1']);
    for (const { headers } of got) {
      expect(headers['x-ratelimit-limit-requests']).toBe('2');
      expect(headers['x-ratelimit-reset-requests']).toMatch(/^\d+ms$/);
      expect(headers['access-control-expose-headers']).toContain('x-ratelimit-remaining-requests');
    }
    for (const refused of got.filter(({ status }) => status === 429)) {
      expectError(refused, 429, 'rate_limit_exceeded');
      expect(refused.headers['retry-after']).toBe('1');
    }
    const other = await Promise.all([1, 2].map(() => chat(url, CHAT, bearer('b'))));
    expect(other.map(({ status }) => status).sort()).toEqual([200, 429]);
    for (let i = 0; i < 5; i++) {
      const free = await chat(url, CHAT, bearer('c'));
      expect([free.status, free.headers['x-ratelimit-limit-requests']]).toEqual([200, undefined]);
    }
    await new Promise((resolve) => setTimeout(resolve, 1_050));
    expect((await chat(url, CHAT, bearer('a'))).status).toBe(200);
  });
});

describe('the models of a key', () => {
  it('are all that it can ask for, list or see, on every endpoint', async () => {
    const { backend } = stage.service;
    const list = '{"object":"list","data":[{"id":"m/1"},{"id":"m:2","x":1.0},{"id":"secret"}],"more":1.0}';
    backend.models = null;
    backend.script = (seen, response) =>
      void response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(seen.url === '/v1/models' ? list : JSON.stringify({ url: seen.url }));
    const url = await stage.gateway({}, ['few models=m/1,m:2', 'all']);
    const few = (path: string, body?: string, type = 'application/json') =>
      ask(`${url}${path}`, {
        method: body === undefined ? 'GET' : 'POST',
        ...(body === undefined ? {} : { body }),
        headers: { ...bearer('few'), 'content-type': type },
      });
    const messages = '"messages":[{"role":"user","content":"Hi"}]';
    expect((await few('/v1/chat/completions', `{"model":"m/1",${messages}}`)).status).toBe(200);
    expect((await few('/v1/embeddings', '{"model":"m:2","input":"a"}')).status).toBe(200);
    expect((await few('/v1/models/m%2F1')).json().url).toBe('/v1/models/m%2F1');
    expect((await few('/v1/models')).json().data.map(({ id }: { id: string }) => id)).toEqual(['m/1', 'm:2']);
    expect((await ask(`${url}/v1/models`, { method: 'GET', headers: bearer('all') })).text).toBe(list);
    backend.seen.length = 0;
    for (const [path, body, status, code, param] of [
      ['/v1/chat/completions', `{"model":"secret",${messages}}`, 404, 'model_not_found', null],
      ['/v1/completions', '{"model":"secret","prompt":"a"}', 404, 'model_not_found', null],
      ['/v1/chat/completions', `{${messages}}`, 400, 'invalid_request', 'model'],
      ['/v1/chat/completions', `{"model":"secret",${messages},"model":"m/1"}`, 400, 'invalid_request', 'model'],
      ['/v1/chat/completions', `{"m\\u006fdel":"secret",${messages},"model":"m/1"}`, 400, 'invalid_request', 'model'],
      ['/v1/embeddings', '{"model":"secret","input":"a"}', 404, 'model_not_found', null],
      ['/v1/embeddings', '[]', 400, 'invalid_request', 'model'],
      ['/v1/models/secret', undefined, 404, 'model_not_found', null],
      ['/v1/files', undefined, 403, 'permission_denied', null],
    ] as const)
      expectError(await few(path, body), status, code, param);
    expectError(await few('/v1/audio/speech', 'model=secret', 'text/plain'), 403, 'permission_denied');
    expect((await few('/v1/models/secret')).json().error.message).toBe(
      'The model `secret` does not exist or you do not have access to it.',
    );
    expect(backend.seen).toHaveLength(0);
    backend.models = '{"object":"list","data":[]}';
  });

  it('are not told from a list that is too deep to be written again', async () => {
    const { backend } = stage.service;
    const deep = '['.repeat(100_000) + ']'.repeat(100_000);
    const url = await stage.gateway({}, ['few models=m']);
    for (const list of [`{"data":[{"id":"m","x":${deep}}]}`, deep]) {
      backend.models = list;
      const got = await ask(`${url}/v1/models`, { method: 'GET', headers: bearer('few') });
      expectError(got, 502, 'backend_bad_response');
    }
    backend.models = '{"object":"list","data":[]}';
  });
});
