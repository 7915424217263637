import { createServer, type IncomingMessage, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Bindings } from '../../../gateway/http/context.ts';
import { type PlainPath, type PlainRoutes, takeConnections } from '../../../gateway/http/plain-path/connection.ts';
import { MAX_PLAIN_BYTES, readRequest } from '../../../gateway/http/plain-path/request.ts';
import { eventually, SILENT } from '../../support/harness.ts';

const BODY = '{"model":"m","messages":[{"role":"user","content":"é"}]}';
const LENGTH = Buffer.byteLength(BODY);
const head = (...lines: string[]) => [...lines, '', ''].join('\r\n');
const PLAIN = head('POST /v1/chat/completions HTTP/1.1', 'Host: a', `Content-Length: ${LENGTH}`) + BODY;

describe('a plain request', () => {
  it('is read with its headers as Node has them', () => {
    const request = readRequest(
      Buffer.from(head('POST /v1/completions HTTP/1.1', 'Host:  a:80 ', 'X-Tee:1', `content-LENGTH: ${LENGTH}`) + BODY),
    );
    expect(request).toMatchObject({
      method: 'POST',
      url: '/v1/completions',
      headers: { host: 'a:80', 'x-tee': '1', 'content-length': String(LENGTH) },
    });
    expect(typeof request === 'object' && request.body.toString()).toBe(BODY);
  });

  it('has 64 headers at most', () => {
    const fields = Array.from({ length: 62 }, (_, i) => `X${i}: a`);
    const lines = ['POST /v1/completions HTTP/1.1', 'Host: a', `Content-Length: ${LENGTH}`, ...fields];
    expect(readRequest(Buffer.from(head(...lines) + BODY))).toMatchObject({ url: '/v1/completions' });
    expect(readRequest(Buffer.from(head(...lines, 'Y: a') + BODY))).toBe('other');
  });

  it('is incomplete at every cut', () => {
    const bytes = Buffer.from(PLAIN);
    for (let cut = 0; cut < bytes.length; cut++) expect(readRequest(bytes.subarray(0, cut))).toBe('incomplete');
  });

  const length = `Content-Length: ${LENGTH}`;
  const chat = 'POST /v1/chat/completions HTTP/1.1';
  it.each([
    ['another method', head('GET /v1/chat/completions HTTP/1.1', 'Host: a', length) + BODY],
    ['another path', head('POST /v1/models HTTP/1.1', 'Host: a', length) + BODY],
    ['a query', head('POST /v1/completions?a HTTP/1.1', 'Host: a', length) + BODY],
    ['HTTP/1.0', head('POST /v1/completions HTTP/1.0', 'Host: a', length) + BODY],
    ['no host', head(chat, length) + BODY],
    ['an empty host', head(chat, 'Host:', length) + BODY],
    ['two hosts', head(chat, 'Host: a', 'host: a', length) + BODY],
    ['no length', head(chat, 'Host: a') + BODY],
    ['two lengths', head(chat, 'Host: a', length, length) + BODY],
    ['a length with a sign', head(chat, 'Host: a', 'Content-Length: +5') + BODY],
    ['a length in hexadecimal', head(chat, 'Host: a', 'Content-Length: 0x5') + BODY],
    ['a list of lengths', head(chat, 'Host: a', 'Content-Length: 5, 5') + BODY],
    ['a transfer coding', head(chat, 'Host: a', length, 'Transfer-Encoding: chunked') + BODY],
    ['a transfer coding in disguise', head(chat, 'Host: a', length, 'Transfer-Encoding : chunked') + BODY],
    ['a length of seven digits', head(chat, 'Host: a', 'Content-Length: 1000000')],
    ['a host that is none', head(chat, 'Host: a/b', length) + BODY],
    ['a word about transfer codings', head(chat, 'Host: a', length, 'TE: trailers') + BODY],
    ['trailers', head(chat, 'Host: a', length, 'Trailer: x') + BODY],
    ['a keep-alive header', head(chat, 'Host: a', length, 'Keep-Alive: timeout=5') + BODY],
    ['a header for proxies', head(chat, 'Host: a', length, 'Proxy-Connection: keep-alive') + BODY],
    ['settings of HTTP/2', head(chat, 'Host: a', length, 'HTTP2-Settings: AAA') + BODY],
    ['an expectation', head(chat, 'Host: a', length, 'Expect: 100-continue') + BODY],
    ['an upgrade', head(chat, 'Host: a', length, 'Connection: upgrade', 'Upgrade: h2c') + BODY],
    ['a connection that is to close', head(chat, 'Host: a', length, 'Connection: close') + BODY],
    ['a folded header', head(chat, 'Host: a', length, 'X: a', ' b') + BODY],
    ['a header without a name', head(chat, 'Host: a', length, ': a') + BODY],
    ['a name with a space', head(chat, 'Host: a', length, 'X Y: a') + BODY],
    ['a bare line feed', `${chat}\nHost: a\r\n${length}\r\n\r\n${BODY}`],
    ['a bare line feed in a value', head(chat, 'Host: a\nX: b', length) + BODY],
    ['a bare carriage return', head(chat, 'Host: a\rX: b', length) + BODY],
    ['a value beyond ASCII', head(chat, 'Host: a', length, 'X: \u00e9') + BODY],
    ['a control character', head(chat, 'Host: a', length, 'X: \u0001') + BODY],
    ['a tab', head(chat, 'Host: a', length, 'X: a\tb') + BODY],
    ['a leading empty line', `\r\n${PLAIN}`],
    ['bytes after the body', `${PLAIN}GET / HTTP/1.1\r\n`],
    ['more than it takes', head(chat, 'Host: a', `Content-Length: ${MAX_PLAIN_BYTES}`)],
    ['too many headers', head(chat, 'Host: a', length, ...Array.from({ length: 64 }, (_, i) => `X${i}: a`)) + BODY],
    ['a head that does not end', `${chat}\r\nHost: a\r\nX: ${'a'.repeat(20_000)}`],
  ])('with %s is left to Node', (_, text) => {
    expect(readRequest(Buffer.from(text, 'latin1'))).toBe('other');
  });
});

describe('what the plain path takes, Node takes as the same', () => {
  let server: Server;
  let seen: { message: IncomingMessage; body: Buffer }[];
  beforeEach(async () => {
    seen = [];
    server = createServer((message, response) => {
      const chunks: Buffer[] = [];
      message
        .on('data', (chunk) => chunks.push(chunk))
        .on('end', () => {
          seen.push({ message, body: Buffer.concat(chunks) });
          response.end('ok');
        });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  });
  afterEach(() => {
    server.closeAllConnections();
    server.close();
  });

  /** Pieces of requests, right and wrong, in any order: most are not plain, and those that are must mean one thing. */
  const fragment = fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom('Host: a', 'Content-Length: 2', 'X-Tee: 1', 'Accept: */*', 'X: ') },
    fc.constantFrom('Content-Length: 02', 'content-length:2', 'Connection: Keep-Alive', 'X:a:b', 'X!~: #', 'Host:\tb'),
    fc.constantFrom(
      'Transfer-Encoding: chunked',
      'Content-Length: 3',
      ' folded',
      'Expect: x',
      'X: \x0b',
      '__proto__: a',
    ),
    fc.string({ minLength: 0, maxLength: 12 }),
  );
  const request = fc
    .tuple(
      fc.constantFrom('POST /v1/chat/completions HTTP/1.1', 'POST /v1/completions HTTP/1.1'),
      fc.array(fragment, { maxLength: 5 }),
      fc.constantFrom('\r\n', '\r\n', '\r\n', '\n'),
      fc.constantFrom('{}', '{}', '{', ''),
    )
    .map(
      ([line, headers, eol, body]) =>
        `${[line, 'Host: h', ...headers, 'Content-Length: 2'].join('\r\n')}${eol}\r\n${body}`,
    );

  it('for any mixture of headers', async () => {
    let plain = 0;
    await fc.assert(
      fc.asyncProperty(request, async (text) => {
        const bytes = Buffer.from(text, 'latin1');
        const reading = readRequest(bytes);
        if (typeof reading !== 'object') return;
        plain++;
        seen = [];
        const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
        socket.write(bytes);
        await new Promise((resolve) => socket.once('data', resolve));
        socket.destroy();
        expect(seen).toHaveLength(1);
        expect({ ...seen[0]?.message.headers }).toEqual({ ...reading.headers });
        expect(seen[0]?.message.url).toBe(reading.url);
        expect(seen[0]?.body).toEqual(Buffer.from(reading.body));
      }),
      { numRuns: 2_000 },
    );
    expect(plain).toBeGreaterThan(50);
  });
});

describe('a connection', () => {
  let server: Server;
  let plainPath: PlainPath;
  let socket: Socket;
  let received: string;
  let byNode: string[];
  let respond: ((env: Bindings) => void) | null;

  beforeEach(async () => {
    byNode = [];
    respond = null;
    server = createServer((message, response) => {
      const chunks: Buffer[] = [];
      message
        .on('data', (chunk) => chunks.push(chunk))
        .on('end', () => {
          byNode.push(`${message.method} ${message.url} ${Buffer.concat(chunks)}`);
          response.end('by node');
        });
    });
    const route: PlainRoutes[keyof PlainRoutes] = async ({ env }) => {
      if (respond !== null) return respond(env);
      const body = 'body' in env.incoming ? env.incoming.body.toString() : '';
      env.outgoing.writeHead(201, { 'x-a': 'b' });
      env.outgoing.end(`by the plain path: ${body}`);
    };
    plainPath = takeConnections(server, { '/v1/chat/completions': route, '/v1/completions': route }, SILENT);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    received = '';
    socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    socket.on('data', (chunk) => {
      received += chunk;
    });
    socket.on('error', () => {});
  });
  afterEach(async () => {
    socket.destroy();
    plainPath.destroy();
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  it('carries plain requests one after the other, in any pieces', async () => {
    socket.write(PLAIN);
    await eventually(() => received.includes('by the plain path'));
    expect(received).toMatch(/^HTTP\/1\.1 201 Created\r\n/);
    expect(received).toContain('x-a: b\r\n');
    received = '';
    for (const cut of [10, 60, 90]) {
      socket.write(PLAIN.slice(cut === 10 ? 0 : cut === 60 ? 10 : 60, cut));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    socket.write(PLAIN.slice(90));
    await eventually(() => received.includes('by the plain path'));
    expect(byNode).toEqual([]);
  });

  it('goes to Node with all its bytes at the first request that is not plain, and stays there', async () => {
    socket.write(PLAIN);
    await eventually(() => received.includes('by the plain path'));
    socket.write('GET /health HTTP/1.1\r\nHost: a\r\n\r\n');
    await eventually(() => byNode.length === 1);
    socket.write(PLAIN);
    await eventually(() => byNode.length === 2);
    expect(byNode).toEqual(['GET /health ', `POST /v1/chat/completions ${BODY}`]);
  });

  it('goes to Node when a request stays incomplete', async () => {
    socket.write(PLAIN.slice(0, -5));
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    socket.write(PLAIN.slice(-5));
    await eventually(() => byNode.length === 1);
    expect(byNode).toEqual([`POST /v1/chat/completions ${BODY}`]);
  });

  it('answers in order what came ahead of its turn', async () => {
    const ends: (() => void)[] = [];
    respond = ({ outgoing }) => {
      outgoing.writeHead(200, {});
      ends.push(() => outgoing.end(`answer ${ends.length}`));
    };
    socket.write(PLAIN);
    await eventually(() => ends.length === 1);
    socket.write(PLAIN);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(ends).toHaveLength(1);
    ends[0]?.();
    await eventually(() => ends.length === 2);
    expect(received).toContain('answer 1');
    respond = null;
    socket.write('GET /health HTTP/1.1\r\nHost: a\r\n\r\n');
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(byNode).toEqual([]);
    ends[1]?.();
    await eventually(() => received.includes('by node'));
    expect(byNode).toHaveLength(1);
    expect(received.indexOf('answer 2')).toBeLessThan(received.indexOf('by node'));
  });

  it('tells an answer that its client left, and one that its client can take more', async () => {
    let closed = 0;
    let drained = 0;
    respond = ({ outgoing }) => {
      outgoing.writeHead(200, {});
      outgoing.on('close', () => closed++);
      const fill = () => {
        while (outgoing.write(Buffer.alloc(64 * 1024)));
        outgoing.once('drain', () => {
          drained++;
          fill();
        });
      };
      fill();
    };
    socket.pause();
    socket.write(PLAIN);
    await new Promise((resolve) => setTimeout(resolve, 200));
    const full = drained;
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(drained).toBe(full);
    socket.resume();
    await eventually(() => drained > full);
    expect(closed).toBe(0);
    socket.destroy();
    await eventually(() => closed === 1);
  });

  it('frames what has no length in chunks, and one piece or many make the same body', async () => {
    respond = ({ outgoing }) => {
      outgoing.writeHead(200, { 'content-type': 'text/plain' });
      outgoing.flushHeaders();
      for (const size of [1, 100, 9_000, 70_000]) outgoing.write(Buffer.alloc(size, 'x'));
      outgoing.end('y');
    };
    const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/v1/chat/completions`, {
      method: 'POST',
      body: BODY,
    });
    expect(await response.text()).toBe(`${'x'.repeat(79_101)}y`);
    expect(byNode).toEqual([]);
  });

  it('is closed after its answer when the server stops, and at once when it has none', async () => {
    const ends: (() => void)[] = [];
    respond = ({ outgoing }) => {
      outgoing.writeHead(200, { 'content-length': 2 });
      ends.push(() => outgoing.end('ok'));
    };
    const idle = connect((server.address() as AddressInfo).port, '127.0.0.1');
    let idleClosed = false;
    idle.on('close', () => {
      idleClosed = true;
    });
    socket.write(PLAIN);
    await eventually(() => ends.length === 1);
    plainPath.stop();
    await eventually(() => idleClosed);
    ends[0]?.();
    await new Promise((resolve) => socket.once('close', resolve));
    expect(received.endsWith('ok')).toBe(true);
  });

  it('refuses a header that would break out of its line', async () => {
    respond = ({ outgoing }) => {
      outgoing.setHeader('x-id', 'a\r\nset-cookie: b');
      outgoing.writeHead(200, {});
    };
    socket.write(PLAIN);
    await new Promise((resolve) => socket.once('close', resolve));
    expect(received).toBe('');
  });
});
