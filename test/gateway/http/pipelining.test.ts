// Requests behind one another on a connection: each after the response before it, and clients that read slowly, or nothing, or leave.
import { once } from 'node:events';
import { Agent, request as httpRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished } from 'vitest';
import { answer, chatAnswer, chatStream, delta } from '../../support/backend.ts';
import { CHAT } from '../../support/client.ts';
import { startGatewayProcess } from '../../support/gateway-process.ts';
import { eventually, type GatewaySettings, startGateway } from '../../support/harness.ts';
import { expectRefusal, get, post, raw } from '../../support/raw.ts';
import { useService } from '../../support/service.ts';

const STALL_MS = 500;
const MANY_BYTES = 12 * 1024 * 1024;
const service = useService({ limits: { write_stall_ms: STALL_MS } });

const BODY = JSON.stringify(CHAT);

/** Sends, and reads nothing. */
function send(text: string, url = service.url): { socket: Socket; closed: boolean } {
  const socket = connect(Number(new URL(url).port), '127.0.0.1', () => socket.write(text));
  const client = { socket, closed: false };
  socket.pause();
  socket
    .on('error', () => {})
    .on('close', () => {
      client.closed = true;
    });
  return client;
}

describe('a request that begins before the response to the one before it is complete', () => {
  it.each([
    ['as many as a read holds', get('/v1/things').repeat(100)],
    ['one with a body', get('/v1/things') + post('/v1/things', '{}')],
    ['one that cannot be read', `${get('/v1/things')}GARBAGE\r\n\r\n${get('/v1/things')}`],
    ['one without a host', `${get('/v1/things')}GET / HTTP/1.1\r\n\r\n`],
    ['one that waits for 100 Continue', get('/v1/things') + post('/v1/things', '', ['expect: 100-continue'])],
    ['one that expects something else', get('/v1/things') + post('/v1/things', '{}', ['expect: foo'])],
    ['one that does not end', `${get('/v1/things')}GET / HTTP/1.1\r\nx: `],
  ])('is not served: the response is completed, then the connection ends: %s', async (name, requests) => {
    service.backend.script = async (request, response) => {
      await sleep(name.includes('does not end') ? 1_000 : 20);
      await answer('{"whole":true}')(request, response);
    };
    const gateway = name.includes('does not end') ? await startHasty() : service.gateway;
    const got = await raw(gateway.url, requests, { answers: 2, timeout_ms: 5_000 });
    expect(got.answers.map(({ status, body }) => [status, body])).toEqual([[200, '{"whole":true}']]);
    expect(got.closed).toBe(true);
    expect(service.backend.seen.map(({ url }) => url)).toEqual(['/v1/things']);
  });

  it('is not served for a client that takes nothing either, however many it sends', async () => {
    service.backend.script = answer('x'.repeat(1024 * 1024));
    const client = send(get('/v1/things').repeat(1_000));
    await eventually(() => service.backend.seen.length > 0);
    await sleep(STALL_MS * 0.8);
    expect(service.backend.seen.length).toBe(1);
    client.socket.destroy();
  });
});

/** A gateway that waits for a head for a short time only. */
async function startHasty(more: GatewaySettings['limits'] = {}) {
  const { backend, sidecar } = service;
  const env = {
    BACKEND_URL: backend.url,
    SIDECAR_SOCKET: sidecar.socket,
    limits: { headers_timeout_ms: 300, ...more },
  };
  const gateway = await startGateway(env);
  onTestFinished(() => gateway.close());
  return gateway;
}

describe('a request that is sent right after the last byte of the response before it', () => {
  it.each([
    ['whole', false, false],
    ['streamed', true, false],
    ['whole with tee', false, true],
    ['streamed with tee', true, true],
  ])('is served on the same connection: %s', async (_name, stream, tee) => {
    service.backend.script = stream ? chatStream(['He', 're.']) : chatAnswer('Here.');
    const request = post('/v1/chat/completions', JSON.stringify({ ...CHAT, stream, tee }));
    const times = tee ? 10 : 100;
    const end = !stream ? /\r\ncontent-length: (\d+)\r\n/i : /\r\n0\r\n\r\n$/;
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1', () => socket.write(request));
    let text = '';
    let answered = 0;
    const isComplete = () => {
      const found = end.exec(text);
      if (found === null || stream) return found !== null;
      return Buffer.byteLength(text.slice(text.indexOf('\r\n\r\n') + 4)) === Number(found[1]);
    };
    socket.on('data', (bytes) => {
      text += bytes.toString('utf8');
      if (!isComplete()) return;
      expect(text).toMatch(/^HTTP\/1\.1 200 /);
      text = '';
      if (++answered === times) socket.end();
      else socket.write(request);
    });
    await once(socket, 'close');
    expect(answered).toBe(times);
  });

  it('with a body of any length is answered for its own', async () => {
    service.backend.script = (request, response) => answer(JSON.stringify(request.body.length))(request, response);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    for (const length of [0, 1, 1023, 1024, 1025, 70_000, 3, 200_000, 500])
      for (const chunked of [false, true]) {
        const options = { agent, method: 'POST', headers: chunked ? {} : { 'content-length': length } };
        const got = await new Promise<string>((resolve, reject) => {
          const request = httpRequest(`${service.url}/v1/things`, options, async (response) =>
            resolve(Buffer.concat(await response.toArray()).toString()),
          );
          request.on('error', reject).end('x'.repeat(length));
        });
        expect(Number(got)).toBe(length);
      }
    expect(new Set(Object.values(agent.freeSockets).flat()).size).toBe(1);
    agent.destroy();
  });

  it('is not taken while the client has not taken the responses before it', async () => {
    service.backend.script = answer('x'.repeat(1024 * 1024));
    const client = send('');
    const sent = 40;
    for (let i = 0; i < sent; i++) {
      client.socket.write(get('/v1/things'));
      await sleep(10);
    }
    // What the kernel keeps on both sides is the kernel's.
    expect(service.backend.seen.length).toBeLessThan(sent / 2);
    client.socket.destroy();
  });
});

describe('a client', () => {
  it.each(['leaves', 'breaks off'] as const)('that %s ends the request to the backend', async (how) => {
    service.backend.script = () => {};
    const client = send(get('/v1/things'));
    await eventually(() => service.backend.seen.length === 1);
    if (how === 'leaves') client.socket.end();
    else client.socket.resetAndDestroy();
    await eventually(() => service.backend.seen[0]?.aborted_ms !== null, 2_000);
    client.socket.destroy();
  });

  it('that takes nothing of a response is let go, though it sends a byte now and then', async () => {
    const hasty = await startHasty({ write_stall_ms: STALL_MS });
    service.backend.script = answer('x'.repeat(16 * 1024 * 1024));
    const client = send(`${get('/v1/things')}GET / HTTP/1.1\r\nx: `, hasty.url);
    const dripping = setInterval(() => client.socket.write('x'), 50);
    await eventually(() => client.closed, 8_000).finally(() => clearInterval(dripping));
    expect((await raw(hasty.url, get('/health'))).answers[0]?.status).toBe(200);
  });

  it('that takes a large response slowly gets all of it', async () => {
    service.backend.script = answer('x'.repeat(16 * 1024 * 1024));
    const began = performance.now();
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1', () => socket.write(get('/v1/things')));
    let taken = 0;
    socket.on('data', (bytes) => {
      taken += bytes.length;
      if (performance.now() - began > 2_000) return;
      socket.pause();
      setTimeout(() => socket.resume(), bytes.length / 8192);
    });
    await eventually(() => taken > 16 * 1024 * 1024, 10_000);
    expect(performance.now() - began).toBeGreaterThan(2 * STALL_MS);
    socket.destroy();
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
  it.each(['/', '/health', '/openapi.json', '/nothing', '/~sev_gpu@1.0/verify'])(
    'is let go soon after the time to stall, whatever it asked for: %s',
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
