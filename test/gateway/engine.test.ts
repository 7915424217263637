import { createServer as createHttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createServer, type Server, type Socket } from 'node:net';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { createEngine } from '../../gateway/engine/client.ts';
import type { Engine } from '../../gateway/engine/engine.ts';
import { ResponseBody } from '../../gateway/engine/response-body.ts';
import { readResponseHead } from '../../gateway/engine/response-head.ts';
import type { Problem } from '../../gateway/problem.ts';
import { eventually } from '../harness.ts';

interface Answer {
  status: number | null;
  headers: Record<string, unknown>;
  body: string;
  problem: Problem | null;
}

let engine: Engine | null = null;
let server: Server | null = null;
const sockets = new Set<Socket>();
afterEach(async () => {
  await engine?.close();
  for (const socket of sockets) socket.destroy();
  await new Promise<void>((resolve) => (server === null ? resolve() : server.close(() => resolve())));
  engine = null;
  server = null;
});

/** A backend that is told what to do with each connection's bytes. Returns how many connections there were. */
async function backend(
  onData: (socket: Socket, bytes: string, connection: number) => void,
  backend_timeout_ms = 400,
): Promise<() => number> {
  let connections = 0;
  server = createServer((socket) => {
    const connection = ++connections;
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', (bytes) => onData(socket, bytes.toString('latin1'), connection));
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  engine = createEngine({
    backend_url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    backend_timeout_ms,
  });
  return () => connections;
}

function ask(body: Buffer | string | null = '{}', repeatable = true, onData = () => {}): Promise<Answer> {
  return new Promise((resolve) => {
    const answer: Answer = { status: null, headers: {}, body: '', problem: null };
    engine?.call(
      { method: 'POST', path: '/x', headers: { 'content-type': 'application/json' }, body, repeatable },
      {
        head: ({ status, headers }) => void Object.assign(answer, { status, headers: { ...headers } }),
        data: (chunk) => {
          answer.body += chunk.toString();
          onData();
        },
        end: () => resolve(answer),
        fail: (problem) => resolve({ ...answer, problem }),
      },
    );
  });
}

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

describe('the engine client', () => {
  it('asks with one length and keeps the connection for the next', async () => {
    const asked: string[] = [];
    const connections = await backend((socket, bytes) => {
      asked.push(bytes);
      socket.write(OK);
    });
    for (const body of ['{"é":1}', Buffer.from('{}'), null]) expect(await ask(body)).toMatchObject({ body: 'ok' });
    expect(connections()).toBe(1);
    expect(asked[0]).toMatch(/^POST \/v1\/x HTTP\/1\.1\r\nhost: 127\.0\.0\.1:\d+\r\n/);
    expect(asked.map((text) => /content-length: (\d+)/.exec(text)?.[1])).toEqual(['8', '2', '0']);
  });

  it('ends a request that its backend does not read', async () => {
    await backend((socket) => void socket.pause());
    expect(await ask('x'.repeat(20_000_000))).toMatchObject({ problem: { code: 'backend_timeout' } });
  });

  it('ends a connection that was idle for 4 s, before the backend does', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
    try {
      const connections = await backend((socket) => void socket.write(OK), 60_000);
      await ask();
      vi.advanceTimersByTime(3_900);
      await ask();
      expect(connections()).toBe(1);
      const closed = new Promise((resolve) => [...sockets].at(-1)?.once('close', resolve));
      vi.advanceTimersByTime(4_300);
      await closed;
      await ask();
      expect(connections()).toBe(2);
    } finally {
      vi.useRealTimers();
    }
  });

  it('does not ask on an old connection that nobody has ended yet', async () => {
    vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
    try {
      const connections = await backend((socket) => void socket.write(OK), 60_000);
      await Promise.all([ask(), ask()]);
      const { now } = performance;
      vi.spyOn(performance, 'now').mockImplementation(() => now.call(performance) + 4_100);
      await ask();
      expect(connections()).toBe(3);
      await eventually(() => [...sockets].filter((socket) => !socket.destroyed).length === 1);
    } finally {
      vi.restoreAllMocks();
      vi.useRealTimers();
    }
  });

  it('sends a large body whole', async () => {
    let length = 0;
    await backend((socket, bytes) => {
      length += bytes.length;
      if (bytes.endsWith('END')) socket.write(OK);
    });
    const body = `${'é'.repeat(200_000)}END`;
    expect(await ask(body)).toMatchObject({ status: 200 });
    expect(length).toBeGreaterThan(Buffer.byteLength(body));
  });

  it.each([
    ['an interim answer that nobody asked for', `HTTP/1.1 100 Continue\r\n\r\n${OK}`],
    ['two of them', `HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n${OK}`],
    ['a list of one header', `HTTP/1.1 200\r\nX: a\r\nX: b\r\nContent-Length: 2\r\n\r\nok`],
    [
      'chunks with extensions and a trailer',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\no\r\n01\r\nk\r\n0\r\nX: y\r\n\r\n',
    ],
    ['a body until the end of the connection', 'HTTP/1.1 200 OK\r\n\r\nok', true],
    ['HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok', true],
  ])('reads %s, wherever it is cut', async (_, text, closes = false) => {
    for (let cut = 1; cut < text.length; cut += 3) {
      await backend((socket) => {
        socket.write(text.slice(0, cut), 'latin1');
        setTimeout(() => (closes ? socket.end(text.slice(cut)) : socket.write(text.slice(cut))), 2);
      });
      expect(await ask()).toMatchObject({ status: 200, body: 'ok', problem: null });
      await engine?.close();
      server?.close();
    }
  });

  it.each([
    ['no HTTP', 'hello\r\n\r\n', 'backend_bad_response'],
    ['another protocol', 'HTTP/2 200 OK\r\n\r\n', 'backend_bad_response'],
    ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok', 'backend_bad_response'],
    [
      'a length beside chunks',
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok',
      'backend_bad_response',
    ],
    ['a coding that nobody knows', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok', 'backend_bad_response'],
    ['a folded header', 'HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok', 'backend_bad_response'],
    ['an upgrade', 'HTTP/1.1 101 Switching Protocols\r\n\r\n', 'backend_bad_response'],
    [
      'a chunk size that is none',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n',
      'backend_bad_response',
    ],
    [
      'a chunk longer than its size',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nokay\r\n',
      'backend_bad_response',
    ],
    ['more than its length', `${OK}more`, 'backend_bad_response'],
    ['a head without an end', `HTTP/1.1 200 OK\r\nX: ${'a'.repeat(70_000)}`, 'backend_bad_response'],
    ['silence', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no', 'backend_timeout'],
  ])('refuses %s', async (_, text, code) => {
    await backend((socket) => socket.write(text));
    expect((await ask()).problem?.code).toBe(code);
  });

  it.each([
    ['interim answers', '', 'HTTP/1.1 102 Processing\r\n\r\n'],
    ['a head', 'HTTP/1.1 200 OK\r\nX: ', 'a'],
    ['the extension of a chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;', 'a'],
    ['a trailer', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n', 'X: a\r\n'],
  ])('takes for silence what never becomes an answer: %s for ever', async (_, start, piece) => {
    await backend((socket) => {
      socket.write(start);
      const dripping = setInterval(() => socket.write(piece), 50);
      socket.on('close', () => clearInterval(dripping));
    });
    expect((await ask()).problem?.code).toBe('backend_timeout');
  });

  it('takes a body that comes in pieces for none, however long it takes', async () => {
    await backend(async (socket) => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n');
      for (let i = 0; i < 16; i++) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        socket.write('x');
      }
    });
    expect(await ask()).toMatchObject({ problem: null, body: 'x'.repeat(16) });
  });

  it('does not use a connection again on which more came than was asked for', async () => {
    const connections = await backend((socket, _bytes, connection) => {
      socket.write(OK);
      if (connection === 1) setTimeout(() => socket.write(OK), 5);
    });
    await ask();
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(await ask()).toMatchObject({ body: 'ok' });
    expect(connections()).toBe(2);
  });

  it('asks once more when a kept connection was hung up, and only what may be asked twice', async () => {
    const asked: number[] = [];
    await backend((socket, _bytes, connection) => {
      asked.push(connection);
      if (asked.length === 2 || asked.length === 5) socket.destroy();
      else socket.write(OK);
    });
    await ask();
    expect(await ask()).toMatchObject({ body: 'ok' });
    expect(asked).toEqual([1, 1, 2]);
    await ask();
    expect((await ask('{}', false)).problem?.code).toBe('backend_unreachable');
  });

  it('stops reading while it is paused, and silence does not count then', async () => {
    let written = 0;
    await backend((socket) => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      const more = () => {
        while (socket.write(Buffer.alloc(65_536))) written++;
        socket.once('drain', more);
      };
      more();
    });
    let problem: Problem | null = null;
    let bytes = 0;
    const call = engine?.call(
      { method: 'GET', path: '/', headers: {}, body: null, repeatable: true },
      {
        head: () => {},
        data: (chunk) => {
          bytes += chunk.length;
          call?.pause();
        },
        end: () => {},
        fail: (one) => {
          problem = one;
        },
      },
    );
    await eventually(() => bytes > 0);
    await new Promise((resolve) => setTimeout(resolve, 600));
    const paused = { bytes, written };
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect({ bytes, written }).toEqual(paused);
    expect(problem).toBeNull();
    call?.resume();
    await eventually(() => bytes > paused.bytes);
    call?.cancel();
  });
});

describe('a handler of an answer', () => {
  it.each(['head', 'data', 'end'] as const)('that throws in its %s has failed, and nobody else', async (where) => {
    await backend((socket) => socket.write(OK));
    const does = (step: string) => () => {
      if (step === where) throw new RangeError('too deep');
    };
    const problem = await new Promise<Problem>((fail) =>
      engine?.call(
        { method: 'GET', path: '/', headers: {}, body: null, repeatable: true },
        { head: does('head'), data: does('data'), end: does('end'), fail },
      ),
    );
    expect(problem.status).toBeGreaterThanOrEqual(500);
    expect((await ask()).body).toBe('ok');
  });
});

describe("a backend's answer, read by us and written by Node", () => {
  it('has the same head and body, however it is framed and cut', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ minLength: 1, maxLength: 300 }), { maxLength: 6 }),
        fc.boolean(),
        fc.array(fc.nat({ max: 400 }), { maxLength: 5 }),
        async (pieces, chunked, cuts) => {
          const wire = await writtenByNode(pieces, chunked);
          const all = Buffer.concat(pieces);
          const head = readResponseHead(wire);
          expect(head?.status).toBe(203);
          expect(head?.headers['x-mark']).toBe('é');
          const body = new ResponseBody(head?.framing ?? 'until_close');
          const rest = wire.subarray(head?.size);
          const at = [...new Set(cuts)].filter((cut) => cut < rest.length).sort((a, b) => a - b);
          const read = [0, ...at].map((from, i) => Buffer.from(body.take(rest, from, at[i] ?? rest.length)));
          expect(Buffer.concat(read)).toEqual(all);
          expect(body.ended).toBe(true);
        },
      ),
      { numRuns: 60 },
    );
  });
});

async function writtenByNode(pieces: readonly Uint8Array[], chunked: boolean): Promise<Buffer> {
  const writer = createHttpServer((_request, response) => {
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    response.writeHead(203, { 'x-mark': 'é', ...(chunked ? {} : { 'content-length': length }) });
    for (const piece of pieces) response.write(piece);
    response.end();
  });
  await new Promise<void>((resolve) => writer.listen(0, '127.0.0.1', resolve));
  const { connect } = await import('node:net');
  const socket = connect((writer.address() as AddressInfo).port, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  await new Promise((resolve) => writer.close(resolve));
  return Buffer.concat(chunks);
}
