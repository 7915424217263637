// Requests that wait behind one another on a connection: each in its turn, and for a client that takes none of them, none.

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { answer, delta } from '../../support/backend.ts';
import { CHAT } from '../../support/client.ts';
import { startGatewayProcess } from '../../support/gateway-process.ts';
import { eventually } from '../../support/harness.ts';
import { expectRefusal, get, post, raw } from '../../support/raw.ts';
import { useService } from '../../support/service.ts';

const STALL_MS = 500;
const MANY_BYTES = 12 * 1024 * 1024;
const service = useService({ WRITE_STALL_MS: String(STALL_MS) });

const BODY = JSON.stringify(CHAT);

/** Sends, and reads nothing. */
function send(text: string): { socket: Socket; closed: boolean } {
  const socket = connect(Number(new URL(service.url).port), '127.0.0.1', () => socket.write(text));
  const client = { socket, closed: false };
  socket.pause();
  socket
    .on('error', () => {})
    .on('close', () => {
      client.closed = true;
    });
  return client;
}

describe('requests behind one another', () => {
  it('are served one after the other: the next one when the client has the answer before it', async () => {
    let atOnce = 0;
    let most = 0;
    service.backend.script = async (request, response) => {
      most = Math.max(most, ++atOnce);
      await sleep(5);
      atOnce--;
      await answer('{}')(request, response);
    };
    const got = await raw(service.url, get('/v1/things').repeat(100), { answers: 100, timeout_ms: 15_000 });
    expect(got.answers.map(({ status }) => status)).toEqual(Array(100).fill(200));
    expect([most, service.backend.seen.length]).toEqual([1, 100]);
  });

  it('are not even begun for a client that takes nothing, however many it sends', async () => {
    const MiB = 1024 * 1024;
    service.backend.script = answer('x'.repeat(MiB));
    const client = send(get('/v1/things').repeat(1_000));
    await sleep(STALL_MS * 0.8);
    // What the kernel keeps on both sides is the kernel's.
    expect(service.backend.seen.length).toBeLessThan(20);
    await eventually(() => service.backend.seen.length > 0);
    client.socket.destroy();
  });

  it('with bodies are answered in their order, whatever their lengths', async () => {
    service.backend.script = (request, response) => answer(JSON.stringify(request.body.length))(request, response);
    const lengths = [0, 1, 1023, 1024, 1025, 70_000, 3, 200_000, 500];
    const chunked = (length: number) =>
      `POST /v1/things HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n${length === 0 ? '' : `${length.toString(16)}\r\n${'x'.repeat(length)}\r\n`}0\r\n\r\n`;
    const requests = lengths.flatMap((length) => [post('/v1/things', 'x'.repeat(length)), chunked(length)]);
    const got = await raw(service.url, requests.join(''), { answers: requests.length, timeout_ms: 15_000 });
    expect(got.answers.map(({ body }) => Number(body))).toEqual(lengths.flatMap((length) => [length, length]));
  });

  it('are forgotten when their client has left', async () => {
    service.backend.script = async (request, response) => {
      await sleep(20);
      await answer('{}')(request, response);
    };
    const client = send(get('/v1/things').repeat(2_000));
    await eventually(() => service.backend.seen.length > 2);
    client.socket.resetAndDestroy();
    await sleep(100);
    const seen = service.backend.seen.length;
    await sleep(300);
    expect(service.backend.seen.length).toBe(seen);
  });

  it.each([
    ['by Node', get('/health'), 200],
    ['on the plain path', post('/v1/chat/completions', BODY), 200],
  ])('before one that cannot be read are answered, then it is refused: %s', async (_name, valid, status) => {
    const got = await raw(service.url, `${valid}${valid}GARBAGE\r\n\r\n${valid}`, { answers: 4, linger_ms: 1_500 });
    expect(got.answers.map((one) => one.status)).toEqual([status, status, 400]);
    expectRefusal(got.answers[2], 400, 'invalid_request');
    expect(got.closed).toBe(true);
  });

  it('of which one is refused are answered up to that one', async () => {
    const got = await raw(service.url, `${get('/health')}GET / HTTP/1.1\r\n\r\n${get('/health')}`, {
      answers: 3,
      linger_ms: 1_500,
    });
    expect(got.answers.map((one) => one.status)).toEqual([200, 400]);
    expect(got.closed).toBe(true);
  });
});

describe('CONNECT behind a request that has no response yet', () => {
  it('ends its own connection only, also where the client breaks off', async () => {
    const { backend, sidecar } = service;
    // A process, because what is tested is that it does not end.
    const gateway = await startGatewayProcess({ BACKEND_URL: backend.url, SIDECAR_SOCKET: sidecar.socket });
    onTestFinished(() => gateway.stop());
    backend.script = async (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      while (!response.destroyed) {
        response.write(delta('x'.repeat(16_000)));
        await sleep(1);
      }
    };
    const body = JSON.stringify({ ...CHAT, stream: true });
    const requests = `${post('/v1/chat/completions', body, ['te: trailers'])}CONNECT h:1 HTTP/1.1\r\nhost: h\r\n\r\n`;
    for (let kib = 16; kib <= 1024; kib *= 2) {
      const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1', () => socket.write(requests));
      const closed = once(socket, 'close');
      socket
        .on('error', () => {})
        .on('data', () => {
          if (socket.bytesRead > kib * 1024) socket.resetAndDestroy();
        });
      await closed;
    }
    await eventually(() => backend.seen.every(({ aborted_ms }) => aborted_ms !== null));
  });
});

describe('a client that never reads', () => {
  it.each(['/', '/health', '/openapi.json', '/docs', '/nothing', '/~sev_gpu@1.0/verify'])(
    'is let go soon after WRITE_STALL_MS, whatever it asked for: %s',
    { timeout: 60_000 },
    async (path) => {
      // More than what the kernel takes ahead: a client that still has something to send sees that it was let go.
      const requests = get(path);
      const clients = Array.from({ length: 2 }, () => send(requests.repeat(Math.ceil(MANY_BYTES / requests.length))));
      const began_ms = performance.now();
      await eventually(() => clients.every(({ closed }) => closed), 50_000).finally(() => {
        for (const { socket } of clients) socket.destroy();
      });
      expect(performance.now() - began_ms).toBeGreaterThan(STALL_MS);
    },
  );
});

describe('a version of HTTP that is not spoken here', () => {
  it.each(['0.9', '2.0'])('is refused: HTTP/%s', async (version) => {
    for (const request of [get('/health'), post('/v1/chat/completions', BODY)]) {
      const got = await raw(service.url, request.replace('HTTP/1.1', `HTTP/${version}`), { linger_ms: 1_500 });
      expectRefusal(got.answers[0], 505, 'http_version_not_supported');
      expect(got.closed).toBe(true);
    }
  });

  it.each(['1.2', '1.9', '3.0', '11.1'])('is no HTTP to the parser: HTTP/%s', async (version) => {
    const got = await raw(service.url, get('/health').replace('HTTP/1.1', `HTTP/${version}`), { linger_ms: 1_500 });
    expectRefusal(got.answers[0], 400, 'invalid_request');
  });
});
