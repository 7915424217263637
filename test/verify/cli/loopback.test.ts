// The proxy's server by itself, before a gateway that fails: limits, and what a client sees of a failure.
import { afterEach, describe, expect, it } from 'vitest';
import { type Loopback, startLoopback } from '../../../verify/cli/loopback.ts';
import { UnprovenAnswerError } from '../../../verify/clients/fetch.ts';
import { ask } from '../../support/client.ts';

type LoopbackOptions = Parameters<typeof startLoopback>[0];

const TOKEN = 'cs-token-of-this-test';
const headers = { authorization: `Bearer ${TOKEN}` };
let server: Loopback | null = null;

async function start(serve: LoopbackOptions['serve']): Promise<string> {
  server = await startLoopback({ port: 0, token: TOKEN, origins: [], serve });
  return server.url;
}
afterEach(() => server?.close());

const bodyOf = (chunks: readonly string[], error: unknown): ReadableStream<Uint8Array> => {
  const waiting = [...chunks];
  return new ReadableStream({
    pull(controller) {
      const next = waiting.shift();
      if (next === undefined) controller.error(error);
      else controller.enqueue(Buffer.from(next));
    },
  });
};
const EVENTS = { 'content-type': 'text/event-stream; charset=utf-8' };

describe('the server of the proxy', () => {
  it('says that the gateway is away, and nothing of what the network said', async () => {
    const url = await start(async () => {
      throw Object.assign(new TypeError('fetch failed at secret.example'), { code: 'ECONNREFUSED' });
    });
    const { status, text, json } = await ask(`${url}/v1/models`, { method: 'GET', headers });
    expect([status, json().error.code, json().error.type]).toEqual([502, 'gateway_unreachable', 'server_error']);
    expect(text).not.toContain('secret');
  });

  it('hands on status, headers and body, except for those of a connection', async () => {
    const seen: [string, RequestInit & { headers: Headers }][] = [];
    const url = await start(async (path, init) => {
      seen.push([path, init]);
      return new Response('tea', {
        status: 418,
        headers: { 'x-a': 'b', 'content-encoding': 'gzip', 'content-length': '9' },
      });
    });
    const more = {
      cookie: 'c',
      'x-forwarded-for': '1.2.3.4',
      'sec-fetch-mode': 'cors',
      'user-agent': 'u',
      'x-tee': '1',
    };
    const got = await ask(`${url}/v1/x?y=%20z`, { headers: { ...headers, ...more }, body: '{}' });
    expect([got.status, got.text, got.headers['x-a'], got.headers['content-encoding']]).toEqual([
      418,
      'tea',
      'b',
      undefined,
    ]);
    expect(seen.map(([path]) => path)).toEqual(['/v1/x?y=%20z']);
    expect(Object.fromEntries(seen[0]?.[1].headers ?? [])).toEqual({
      'content-type': 'application/json',
      'user-agent': 'u',
      'x-tee': '1',
    });
  });

  it.each([
    ['/v1/chat/completions', /^data: 1\n\ndata: \{"error":\{.*"code":"stream_mismatch"\}\}\n\n$/],
    ['/v1/responses', /^data: 1\n\nevent: error\ndata: \{"type":"error","code":"stream_mismatch",.*\}\n\n$/],
  ])('ends a stream of %s that is not proven with an error event, and cuts the connection', async (path, expected) => {
    const error = new UnprovenAnswerError('stream_mismatch');
    const url = await start(async () => new Response(bodyOf(['data: 1\n\n'], error), { headers: EVENTS }));
    const { text, complete } = await ask(`${url}${path}`, { headers, body: '{}' });
    expect(text).toMatch(expected);
    expect(complete).toBe(false);
  });

  it('cuts the connection where another body breaks off', async () => {
    const url = await start(async () => new Response(bodyOf(['part'], new TypeError('terminated'))));
    const { text, complete } = await ask(`${url}/v1/files/f/content`, { method: 'GET', headers });
    expect(['part'.startsWith(text), complete]).toEqual([true, false]);
  });

  it('serves so many requests at once and no more', async () => {
    const gate = Promise.withResolvers<void>();
    const url = await start(async () => {
      await gate.promise;
      return Response.json({});
    });
    const waiting = Array.from({ length: 64 }, () => ask(`${url}/v1/models`, { method: 'GET', headers }));
    await expect
      .poll(
        async () =>
          (await ask(`${url}/v1/models`, { method: 'GET', headers, signal: AbortSignal.timeout(500) })).status,
      )
      .toBe(503);
    gate.resolve();
    expect(new Set((await Promise.all(waiting)).map(({ status }) => status))).toEqual(new Set([200]));
    expect((await ask(`${url}/v1/models`, { method: 'GET', headers })).status).toBe(200);
  });
});
