// Sealed requests through the gateway: every route inside, streams chunk by chunk, refusals in the clear before and sealed after opening.
import { Agent, request as httpRequest } from 'node:http';
import { pino } from 'pino';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { KEYS_MEDIA_TYPE, RESPONSE_MEDIA_TYPE, readResponse } from '../../../sealed/index.ts';
import { appraiseAttestation } from '../../../verify/index.ts';
import { codeOf } from '../../sealed/chunks.ts';
import { chatAnswer, chatStream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import {
  eventually,
  type Service,
  startGateway,
  startService,
  startServiceWithProcessor,
} from '../../support/harness.ts';
import {
  currentKey,
  currentKeys,
  FROM_ANYWHERE,
  messageOf,
  open,
  post,
  sealedAsk,
  sealMessage,
  textOf,
} from '../../support/sealed-client.ts';
import { parseSamples } from '../../telemetry/samples.ts';
import { expectError } from '../expect-error.ts';

const BODY = JSON.stringify(CHAT);
let service: Service;
let url: string;
let simulatedRoot: string;

async function start(env: Record<string, string> = {}): Promise<void> {
  const started = await startServiceWithProcessor(env);
  service = started;
  url = started.gateway.url;
  simulatedRoot = started.root;
}
beforeEach(() => {
  service.backend.script = chatAnswer('Hello.');
  service.backend.seen.length = 0;
});
const stop = () => service.close();

/** The code of an error in the clear. */
async function refusalOf(chunks: readonly Uint8Array[], headers?: Record<string, string>) {
  const outer = await post(url, chunks, headers);
  const text = await textOf(outer);
  expect(outer.headers['content-type']).toBe('application/json');
  return { status: outer.status, code: JSON.parse(text).error.code };
}

describe('a gateway', () => {
  beforeAll(() => start(FROM_ANYWHERE));
  afterAll(stop);

  it('publishes the keys that the current session names', async () => {
    const { document } = await currentKeys(url);
    const response = await fetch(`${url}/.well-known/ohttp-keys`);
    expect(response.headers.get('content-type')).toBe(KEYS_MEDIA_TYPE);
    expect(Buffer.from(await response.arrayBuffer()).equals(document)).toBe(true);
  });

  it('serves a sealed request as it serves the same in the clear, exact bytes to the backend', async () => {
    const plain = await chat(url, CHAT);
    const got = await sealedAsk(url, { body: BODY });
    expect(got.outer.headers).toMatchObject({ 'content-type': RESPONSE_MEDIA_TYPE, incremental: '?1' });
    expect(got.status).toBe(200);
    expect(got.text).toBe(plain.text);
    expect(got.headers['content-type']).toBe('application/json');
    expect(got.headers['x-request-id']).toMatch(/^req-[0-9a-f]{32}$/);
    const [one, two] = service.backend.seen;
    expect(two?.body).toEqual(one?.body);
    expect(two?.url).toBe(one?.url);
  });

  it('attests a sealed answer: raw holds the opened request', async () => {
    const body = JSON.stringify({ ...CHAT, tee: true });
    const got = await sealedAsk(url, { body });
    const report = await appraiseAttestation(got.text, { simulatedRoot });
    expect(report.checks.filter(({ status }) => status === 'fail')).toEqual([]);
    const id = got.headers['x-attestation-id'] as string;
    const again = await sealedAsk(url, { method: 'GET', path: `/v1/chat/completions/${id}/attestation` });
    expect(again.json()).toEqual(got.json().attestation);
    const verified = await sealedAsk(url, {
      path: '/~sev_gpu@1.0/verify',
      body: JSON.stringify(got.json().attestation),
    });
    expect(verified.status).toBe(200);
  });

  it('attests a sealed body that asks for it, whatever its content-type, and refuses one that cannot be read', async () => {
    const headers = { 'content-type': 'text/plain' };
    const refused = await sealedAsk(url, { path: '/v1/embeddings', headers, body: '{"input":"x","tee":true' });
    expect([refused.status, refused.json().error.code]).toEqual([400, 'invalid_json']);
    expect(service.backend.seen).toHaveLength(0);
    const got = await sealedAsk(url, { path: '/v1/embeddings', headers, body: '{"input":"x","tee":true}' });
    expect((await appraiseAttestation(got.text, { simulatedRoot })).claims.nonce).toBe(got.json().attestation.nonce);
    expect(service.backend.seen[0]?.body).toBe('{"input":"x"}');
  });

  it('serves every other route under /v1 inside', async () => {
    const { statement } = await currentKeys(url);
    const session = await sealedAsk(url, { method: 'GET', path: '/v1/attestation/session' });
    expect(session.json().statement).toBe(statement);
    const models = await sealedAsk(url, { method: 'GET', path: '/v1/models?x=1' });
    expect(models.status).toBe(200);
    expect(service.backend.seen.at(-1)).toMatchObject({ method: 'GET', url: '/v1/models?x=1' });
    expect((await sealedAsk(url, { path: '/v1/embeddings', body: '{"model":"m","input":"x"}' })).status).toBe(200);
    expect((await sealedAsk(url, { method: 'HEAD', path: '/v1/attestation/session' })).text).toBe('');
  });

  it('sends a stream on as it comes, one sealed chunk for each write of the backend', async () => {
    const body = JSON.stringify({ ...CHAT, stream: true });
    const events = ['one', 'two', 'three'].map((word) => `data: {"choices":[{"delta":{"content":"${word}"}}]}\n\n`);
    let next = () => {};
    service.backend.script = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      const waiting = [...events, 'data: [DONE]\n\n'];
      next = () => {
        response.write(waiting.shift() ?? '');
        if (waiting.length === 0) response.end();
      };
      next();
    };
    const { request, chunks } = await sealMessage(await currentKey(url), messageOf({ body }));
    const outer = await post(url, chunks);
    const { head, content } = await readResponse(request.openResponse(outer.body));
    expect(head.status).toBe(200);
    let text = '';
    for await (const piece of content) {
      text += Buffer.from(piece).toString();
      // Each event is here before the backend writes the next one.
      if (text.endsWith('\n\n')) next();
    }
    expect(text).toBe(`${events.join('')}data: [DONE]\n\n`);
    service.backend.script = chatStream(['one', 'two']);
    const plain = await chat(url, { ...CHAT, stream: true });
    expect((await sealedAsk(url, { body })).text).toBe(plain.text);
  });

  it('takes a body of many chunks, and padding behind it', async () => {
    const large = JSON.stringify({ ...CHAT, messages: [{ role: 'user', content: 'x'.repeat(600_000) }] });
    const got = await sealedAsk(url, { body: large, padding: 10_000 });
    expect(got.status).toBe(200);
    expect(service.backend.seen[0]?.body.toString()).toBe(large);
  });

  it('says sealed what is wrong with what it opened', async () => {
    const errors: [Parameters<typeof sealedAsk>[1], number, string][] = [
      [{ body: '{' }, 400, 'invalid_json'],
      [{ body: BODY, path: '/ohttp' }, 404, 'not_found'],
      [{ method: 'GET', path: '/health' }, 404, 'not_found'],
      [{ method: 'GET', path: '/metrics' }, 404, 'not_found'],
      [{ body: BODY, path: 'v1/models' }, 400, 'invalid_request'],
      [{ body: BODY, path: '/v1/a b' }, 400, 'invalid_request'],
      [{ body: BODY, method: 'TRACE' }, 405, 'method_not_allowed'],
      [{ body: BODY, method: 'PUT' }, 405, 'method_not_allowed'],
      [{ body: BODY, authority: '' }, 400, 'invalid_request'],
      [{ body: BODY, authority: 'a/b' }, 400, 'invalid_request'],
      [{ body: BODY, authority: 'evil.example' }, 403, 'origin_not_allowed'],
      [{ body: BODY, headers: { 'x-a': 'a\x01b' } }, 400, 'invalid_request'],
      [
        {
          body: BODY,
          headers: [
            ['authorization', 'a'],
            ['authorization', 'b'],
          ],
        },
        400,
        'invalid_request',
      ],
      [{ body: BODY, headers: { 'content-length': '3' } }, 400, 'invalid_request'],
      [{ body: BODY, headers: { 'content-length': '3000' } }, 400, 'invalid_request'],
      [{ body: BODY, headers: { 'content-length': 'x' } }, 400, 'invalid_request'],
      [{ body: BODY, headers: { 'content-encoding': 'gzip' } }, 415, 'unsupported_encoding'],
      [{ body: BODY, date: null }, 400, 'sealed_stale'],
      [{ body: BODY, date: new Date(Date.now() - 6 * 60_000) }, 400, 'sealed_stale'],
      [{ body: BODY, date: new Date(Date.now() + 6 * 60_000) }, 400, 'sealed_stale'],
      [{ body: BODY, headers: { date: 'yesterday' } }, 400, 'sealed_stale'],
      [{ method: 'GET', path: '/v1/attestation/session', body: 'x'.repeat(70_000) }, 413, 'body_too_large'],
      [{ body: 'x'.repeat(17 * 1024 * 1024) }, 413, 'body_too_large'],
    ];
    for (const [inner, status, code] of errors) {
      const got = await sealedAsk(url, inner);
      expect({ inner: { ...inner, body: '' }, status: got.status, code: got.json().error.code }).toEqual({
        inner: { ...inner, body: '' },
        status,
        code,
      });
    }
    expect(service.backend.seen).toHaveLength(0);
  });

  it('says in the clear what is wrong before opening, and nothing more', async () => {
    const key = await currentKey(url);
    const { chunks } = await sealMessage(key, messageOf({ body: BODY }));
    const [whole = new Uint8Array()] = chunks;
    const with_ = (at: number, value: number) => {
      const bytes = whole.slice();
      bytes[at] = value;
      return [bytes];
    };
    expect(await refusalOf([])).toEqual({ status: 400, code: 'sealed_malformed' });
    expect(await refusalOf(chunks, { 'content-type': 'application/json' })).toEqual({
      status: 400,
      code: 'sealed_malformed',
    });
    const unknown = { status: 422, code: 'sealed_key_unknown' };
    expect(await refusalOf(with_(0, (whole[0] as number) ^ 0x40))).toEqual(unknown);
    expect(await refusalOf(with_(2, 0x11))).toEqual(unknown);
    expect(await refusalOf(with_(4, 2))).toEqual(unknown);
    expect(await refusalOf(with_(6, 3))).toEqual(unknown);
    // The encapsulated key, or the chunk, is changed: as if to another key.
    expect(await refusalOf(with_(50, (whole[50] as number) ^ 1))).toEqual(unknown);
    expect(await refusalOf(with_(whole.length - 1, (whole.at(-1) as number) ^ 1))).toEqual(unknown);
    expect(service.backend.seen).toHaveLength(0);
  });

  it('refuses a request that is cut at any byte, and one whose chunks are moved, doubled or dropped', async () => {
    const key = await currentKey(url);
    const small = await sealMessage(key, messageOf({ body: '{}', headers: { 'x-a': 'b' } }));
    const [bytes = new Uint8Array()] = small.chunks;
    const header = 7 + 1120;
    const lengths = [
      0,
      1,
      6,
      7,
      500,
      header - 1,
      ...Array.from({ length: bytes.length - header }, (_, i) => header + i),
    ];
    for (const length of lengths) {
      const { status } = await refusalOf([bytes.subarray(0, length)]);
      expect({ length, refused: status === 400 || status === 422 }).toEqual({ length, refused: true });
    }
    const large = JSON.stringify({ ...CHAT, messages: [{ role: 'user', content: 'x'.repeat(50_000) }] });
    for (const order of [
      [0, 2, 1, 3],
      [0, 1, 1, 2, 3],
      [0, 2, 3],
      [0, 1, 2],
      [0, 3],
    ]) {
      const { request, chunks } = await sealMessage(key, messageOf({ body: large }));
      expect(chunks).toHaveLength(4);
      const outer = await post(
        url,
        order.map((i) => chunks[i] as Uint8Array),
      );
      const got = await open(request, outer.body);
      expect({ order, status: got.status, code: got.json().error.code }).toEqual({
        order,
        status: 400,
        code: 'sealed_malformed',
      });
    }
    expect(service.backend.seen).toHaveLength(0);
  });

  it('never lets a cut response look whole', async () => {
    const key = await currentKey(url);
    const { request, chunks } = await sealMessage(key, messageOf({ body: BODY }));
    const outer = await post(url, chunks);
    const parts: Buffer[] = [];
    for await (const part of outer.body) parts.push(part as Buffer);
    const response = Buffer.concat(parts);
    async function* cutAt(length: number) {
      yield response.subarray(0, length);
    }
    expect(await codeOf(open(request, cutAt(response.length)))).toBeNull();
    for (let length = 0; length < response.length; length++)
      expect({ length, code: await codeOf(open(request, cutAt(length))) }).not.toMatchObject({ code: null });
    async function* plain() {
      yield Buffer.from('{"choices":[]}'.repeat(20));
    }
    expect(await codeOf(open(request, plain()))).not.toBeNull();
  });

  it('serves a sealed request once', async () => {
    const key = await currentKey(url);
    const { request, chunks } = await sealMessage(key, messageOf({ body: BODY }));
    expect((await open(request, (await post(url, chunks)).body)).status).toBe(200);
    expect(await refusalOf(chunks)).toEqual({ status: 409, code: 'sealed_replayed' });
    expect(service.backend.seen).toHaveLength(1);
  });

  it('cancels the backend request when the client leaves', async () => {
    let gone = false;
    service.backend.script = (_request, response) => {
      response.on('close', () => {
        gone = true;
      });
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {"choices":[]}\n\n');
    };
    const { chunks } = await sealMessage(
      await currentKey(url),
      messageOf({ body: JSON.stringify({ ...CHAT, stream: true }) }),
    );
    const outer = await post(url, chunks);
    await new Promise((resolve) => outer.body.once('data', resolve));
    outer.body.destroy();
    await eventually(() => gone);
  });

  it('holds the backend back while the client takes nothing, and goes on when it does', async () => {
    const total = 96 * 1024 * 1024;
    const piece = Buffer.alloc(256 * 1024, 'x');
    let sent = 0;
    service.backend.script = (_request, response) => {
      response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': total });
      const more = () => {
        while (sent < total) {
          sent += piece.length;
          if (!response.write(piece)) return void response.once('drain', more);
        }
        response.end();
      };
      more();
    };
    const { request, chunks } = await sealMessage(
      await currentKey(url),
      messageOf({ path: '/v1/files/f/content', method: 'GET' }),
    );
    const outer = await post(url, chunks);
    let before = -1;
    await eventually(async () => {
      before = sent;
      await new Promise((resolve) => setTimeout(resolve, 300));
      return sent > 0 && sent === before;
    });
    expect(sent).toBeLessThan(total / 2);
    const { content } = await readResponse(request.openResponse(outer.body));
    let received = 0;
    for await (const part of content) received += part.length;
    expect(received).toBe(total);
  });

  it('cuts the response where the backend breaks off, and the client sees it', async () => {
    service.backend.script = (_request, response) => {
      response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': '100000' });
      response.write('x'.repeat(1_000), () => response.destroy());
    };
    const { request, chunks } = await sealMessage(
      await currentKey(url),
      messageOf({ path: '/v1/files/f/content', method: 'GET' }),
    );
    const outer = await post(url, chunks);
    await expect(open(request, outer.body)).rejects.toThrow('aborted');
  });

  it('keeps the connection after a refusal, whatever is left of the body', async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const key = await currentKey(url);
    const { chunks, request } = await sealMessage(
      key,
      messageOf({ body: 'x'.repeat(400_000), method: 'GET', path: '/health' }),
    );
    const outer = await post(url, chunks, {}, { agent });
    expect((await open(request, outer.body)).status).toBe(404);
    const next = await new Promise<number>((resolve, reject) => {
      const again = httpRequest(`${url}/health`, { agent }, (response) => {
        response.resume();
        resolve(response.statusCode ?? 0);
      });
      again.on('error', reject).end();
    });
    expect(next).toBe(200);
    agent.destroy();
  });

  it('counts opened requests and refusals by code', async () => {
    const samples = parseSamples((await ask(`${url}/metrics`, { method: 'GET' })).text);
    expect(samples.value('countersign_sealed_requests_total', {})).toBeGreaterThan(10);
    expect(samples.value('countersign_refusals_total', { code: 'sealed_replayed' })).toBe(1);
    expect(samples.value('countersign_refusals_total', { code: 'sealed_key_unknown' })).toBeGreaterThan(3);
  });

  it('has other methods refused', async () => {
    expectError(await ask(`${url}/ohttp`, { method: 'GET' }), 405, 'method_not_allowed');
    expectError(await ask(`${url}/.well-known/ohttp-keys`, { method: 'POST' }), 405, 'method_not_allowed');
  });
});

it('nothing of a sealed request is in the log, and its edge learns one path', async () => {
  await start();
  const lines: string[] = [];
  const log = pino({ level: 'trace' }, { write: (line: string) => void lines.push(line) });
  const env = { BACKEND_URL: service.backend.url, SIDECAR_SOCKET: service.sidecar.socket };
  await service.gateway.close();
  const own = await startGateway(env, log);
  try {
    service.backend.script = chatAnswer('answer-canary');
    const body = JSON.stringify({ model: 'model-canary', messages: [{ role: 'user', content: 'prompt-canary' }] });
    const headers = { authorization: 'Bearer key-canary' };
    const { request, chunks } = await sealMessage(await currentKey(own.url), messageOf({ body, headers }));
    const outer = await post(own.url, chunks);
    const bytes: Buffer[] = [];
    for await (const part of outer.body) bytes.push(part as Buffer);
    const response = Buffer.concat(bytes);
    const opened = await open(
      request,
      (async function* () {
        yield response;
      })(),
    );
    expect(opened.text).toContain('answer-canary');
    expect((await sealedAsk(own.url, { body: '{"prompt-canary"', headers })).status).toBe(400);
    expect(lines.filter((line) => line.includes('"/ohttp"'))).toHaveLength(2);
    expect(lines.some((line) => line.includes('"/v1/chat/completions"'))).toBe(true);
    expect(lines.filter((line) => /(answer|prompt|key)-canary/.test(line))).toEqual([]);
    const seen = Buffer.concat([...chunks.map((chunk) => Buffer.from(chunk)), response]).toString('latin1');
    expect(seen).not.toMatch(/canary|chat|completions/);
  } finally {
    await own.close();
    await stop();
  }
});

describe('with SEALED=required', () => {
  beforeAll(() => start({ SEALED: 'required' }));
  afterAll(stop);

  it('serves nothing of /v1 in the clear but the session', async () => {
    await currentKeys(url);
    expectError(await chat(url, CHAT), 421, 'sealed_required');
    for (const path of ['/v1/models', '/v1/chat/completions/x/attestation', '/v1/whatever'])
      expectError(await ask(`${url}${path}`, { method: 'GET' }), 421, 'sealed_required');
    expect(service.backend.seen).toHaveLength(0);
    for (const path of ['/health', '/metrics', '/v1/attestation/session', '/.well-known/ohttp-keys'])
      expect((await ask(`${url}${path}`, { method: 'GET' })).status).toBe(200);
    expect((await sealedAsk(url, { body: BODY })).status).toBe(200);
  });
});

describe('without a processor, or with SEALED=off', () => {
  it.each([
    ['off', { SEALED: 'off' }, true],
    ['allowed', {}, false],
  ])('there are no keys: %s', async (_what, env, withCpu) => {
    const running = await (withCpu ? startServiceWithProcessor(env, 'SEV_SNP') : startService(env));
    try {
      const at = running.gateway.url;
      expect((await chat(at, { ...CHAT, tee: true })).status).toBe(200);
      expectError(await ask(`${at}/.well-known/ohttp-keys`, { method: 'GET' }), 404, 'not_found');
      const body = Buffer.concat([Buffer.from('01002000010001', 'hex'), Buffer.alloc(60)]);
      const outer = await post(at, [body]);
      expect(outer.status).toBe(withCpu ? 404 : 422);
      outer.body.resume();
      if (withCpu) {
        const session = (await ask(`${at}/v1/attestation/session`, { method: 'GET' })).json();
        expect(JSON.parse(session.statement).hpke).toBeNull();
      }
    } finally {
      await running.close();
    }
  });
});
