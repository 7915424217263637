import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Backend } from '../../gateway/backend/backend.ts';
import { createBackend } from '../../gateway/backend/client.ts';
import { parseResponseHead, ResponseBody } from '../../gateway/backend/response.ts';
import type { Problem } from '../../gateway/http/problem.ts';
import { eventually } from '../harness.ts';

interface Answer {
  status: number | null;
  headers: Record<string, unknown>;
  length: number | null;
  body: string;
  problem: Problem | null;
}

let client: Backend | null = null;
let server: Server | null = null;
const sockets = new Set<Socket>();
afterEach(async () => {
  await client?.close();
  for (const socket of sockets) socket.destroy();
  await new Promise<void>((resolve) => (server === null ? resolve() : server.close(() => resolve())));
  client = null;
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
  client = createBackend({
    backend_url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    max_stream_bytes: 1 << 28,
    max_stream_events: 1_000_000,
    max_answer_ms: 3_600_000,
    backend_timeout_ms,
  });
  return () => connections;
}

function ask(
  body: Buffer | string | null = '{}',
  repeatable = true,
  onData = () => {},
  owner: string | null = 'one',
): Promise<Answer> {
  return new Promise((resolve) => {
    const answer: Answer = { status: null, headers: {}, length: null, body: '', problem: null };
    client?.call(
      { method: 'POST', path: '/x', headers: { 'content-type': 'application/json' }, body, repeatable, owner },
      {
        head: ({ status, headers, length }) => void Object.assign(answer, { status, headers: { ...headers }, length }),
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

/** Until a connection has rested, and may carry another request. */
async function rest(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 35));
  await new Promise(setImmediate);
}

const BAD = 'backend_bad_response';
const CHUNKED = 'Transfer-Encoding: chunked\r\n\r\n';
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';

describe('the backend client', () => {
  it('asks with one length and keeps the connection for the next', async () => {
    const asked: string[] = [];
    const connections = await backend((socket, bytes) => {
      asked.push(bytes);
      socket.write(OK);
    });
    for (const body of ['{"é":1}', Buffer.from('{}'), null]) {
      expect(await ask(body)).toMatchObject({ body: 'ok' });
      await rest();
    }
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
      await rest();
      await rest();
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
      vi.advanceTimersByTime(30);
      await rest();
      await rest();
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
    ['spaces and tabs around a value', 'HTTP/1.1 200 OK\r\nContent-Length: \t 2 \t\r\n\r\nok'],
  ])('reads %s, wherever it is cut', async (_, text, closes = false) => {
    for (let cut = 1; cut < text.length; cut += 3) {
      await backend((socket) => {
        socket.write(text.slice(0, cut), 'latin1');
        setTimeout(() => (closes ? socket.end(text.slice(cut)) : socket.write(text.slice(cut))), 2);
      });
      expect(await ask()).toMatchObject({ status: 200, body: 'ok', problem: null });
      await client?.close();
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
    ['white space in a length that HTTP does not have', 'HTTP/1.1 200 OK\r\nContent-Length: \xa02\r\n\r\nok', BAD],
    ['chunks in HTTP/1.0', `HTTP/1.0 200 OK\r\n${CHUNKED}2\r\nok\r\n0\r\n\r\n`, BAD],
    ['a bare CR in the extension of a chunk', `HTTP/1.1 200 OK\r\n${CHUNKED}2;a=\rb\r\nok\r\n0\r\n\r\n`, BAD],
    ['a bare CR in a trailer', `HTTP/1.1 200 OK\r\n${CHUNKED}2\r\nok\r\n0\r\nx: a\rb\r\n\r\n`, BAD],
    ['bare line feeds', 'HTTP/1.1 200 OK\nContent-Length: 2\n\nok', BAD],
    ['a bare line feed before the end of a head', 'HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nok', BAD],
    ['more than its length', `${OK}more`, 'backend_bad_response'],
    ['a head without an end', `HTTP/1.1 200 OK\r\nX: ${'a'.repeat(70_000)}`, 'backend_bad_response'],
    ['silence', 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no', 'backend_timeout'],
  ])('refuses %s', async (_, text, code) => {
    await backend((socket) => socket.write(text, 'latin1'));
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

  it.each([
    ['a length', 'Content-Length: 5\r\n'],
    ['a coding', 'Transfer-Encoding: chunked\r\n'],
  ])('reads a 204 that announces %s as one without content, and does not use its connection again', async (_, line) => {
    const connections = await backend((socket) => socket.write(`HTTP/1.1 204 No Content\r\n${line}\r\n`));
    for (let i = 1; i <= 2; i++) {
      expect(await ask()).toMatchObject({ status: 204, length: null, body: '', problem: null });
      await rest();
      expect(connections()).toBe(i);
    }
  });

  it('uses the connection of a 204 again that announces nothing', async () => {
    const connections = await backend((socket) => socket.write('HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n'));
    for (let i = 0; i < 2; i++) {
      expect(await ask()).toMatchObject({ status: 204, length: null, problem: null });
      await rest();
    }
    expect(connections()).toBe(1);
  });

  it('asks once more when a kept connection was hung up, and only what may be asked twice', async () => {
    const asked: number[] = [];
    await backend((socket, _bytes, connection) => {
      asked.push(connection);
      if (asked.length === 2 || asked.length === 5) socket.destroy();
      else socket.write(OK);
    });
    await ask();
    await rest();
    expect(await ask()).toMatchObject({ body: 'ok' });
    expect(asked).toEqual([1, 1, 2]);
    await rest();
    await ask();
    await rest();
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
    const call = client?.call(
      { method: 'GET', path: '/', headers: {}, body: null, repeatable: true, owner: 'one' },
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

describe('the connections of the backend client', () => {
  const NO = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno';
  /** Answers each first request of a connection, and says `more` so many milliseconds later; then answers late. */
  const saysMore = (more: string, behind_ms: number) => {
    const asked = new Map<Socket, number>();
    return backend((socket) => {
      const before = asked.get(socket) ?? 0;
      asked.set(socket, before + 1);
      if (before > 0) return void setTimeout(() => socket.write(OK), 50);
      socket.write(OK);
      setTimeout(() => socket.writable && socket.write(more), behind_ms);
    });
  };

  it.each([1, 2, 5, 10, 20])('take nothing for an answer that comes %i ms behind another one', async (behind_ms) => {
    const connections = await saysMore(NO, behind_ms);
    for (let i = 0; i < 10; i++) {
      // On a machine that stands still for a moment both come in one read: then there is no answer.
      expect((await ask()).body).not.toBe('no');
      if (i % 2 === 0) await new Promise((resolve) => setTimeout(resolve, behind_ms - 1));
    }
    expect(connections()).toBe(10);
  });

  it('carry requests of one owner each, however late more comes', async () => {
    await saysMore(NO, 60);
    await ask();
    await rest();
    expect(await ask('{}', true, undefined, 'another')).toMatchObject({ body: 'ok' });
    // Within one owner nobody can tell: HTTP/1.1 does not say which request an answer belongs to.
    await rest();
    await ask();
    await rest();
    expect(await ask()).toMatchObject({ body: expect.stringMatching(/^(ok|no)$/) });
  });

  it('carry nothing before and nothing after a request without an owner, and it says so', async () => {
    const asked: [number, string | undefined][] = [];
    const connections = await backend((socket, bytes, connection) => {
      asked.push([connection, /^connection: (.*)\r$/m.exec(bytes)?.[1]]);
      socket.write(OK);
    });
    for (const owner of ['one', null, null, 'one']) {
      await ask('{}', true, undefined, owner);
      await rest();
    }
    expect(asked).toEqual([
      [1, 'keep-alive'],
      [2, 'close'],
      [3, 'close'],
      [1, 'keep-alive'],
    ]);
    await eventually(() => [...sockets].filter((socket) => !socket.destroyed).length === 1);
    expect(connections()).toBe(3);
  });

  it('are no more than 1,024 of one owner when they are idle, and 2,048 of all', async () => {
    let release: (() => void)[] = [];
    await backend((socket) => void release.push(() => socket.write(OK)), 10_000);
    const open = () => [...sockets].filter((socket) => !socket.destroyed).length;
    const ofOwners = async (owners: readonly string[], each: number) => {
      const answers = owners.flatMap((owner) => Array.from({ length: each }, () => ask('{}', true, undefined, owner)));
      await eventually(() => release.length === answers.length);
      for (const go of release) go();
      release = [];
      await Promise.all(answers);
    };
    await ofOwners(['one'], 1_100);
    await eventually(() => open() === 1_024);
    await ofOwners(['two', 'three'], 600);
    await eventually(() => open() === 2_048);
  });

  const PATIENCE_OVER = 'HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno';
  it.each([
    ['is asked again on a fresh connection, if it may be', true, { status: 200, body: 'ok', problem: null }, 2],
    ['is not answered by it, if not', false, { status: null, problem: { code: 'backend_unreachable' } }, 1],
  ])('that a backend closes with a 408: a request that crosses it %s', async (_, repeatable, answer, connections) => {
    const asked = new Set<Socket>();
    const opened = await backend((socket) => {
      if (asked.has(socket)) socket.end(PATIENCE_OVER);
      else socket.write(OK);
      asked.add(socket);
    });
    await ask();
    await rest();
    expect(await ask('{}', repeatable)).toMatchObject(answer);
    expect(opened()).toBe(connections);
  });

  it('hand on a 408 that is an answer: on a fresh connection, or one that stays open', async () => {
    await backend((socket) => socket.end(PATIENCE_OVER));
    expect(await ask()).toMatchObject({ status: 408, body: 'no' });
    await client?.close();
    const connections = await backend((socket) => socket.write(PATIENCE_OVER.replace('Connection: close\r\n', '')));
    for (let i = 0; i < 2; i++) {
      expect(await ask()).toMatchObject({ status: 408, body: 'no' });
      await rest();
    }
    expect(connections()).toBe(1);
  });
});

describe('a handler of an answer', () => {
  it.each(['head', 'data', 'end'] as const)('that throws in its %s has failed, and nobody else', async (where) => {
    await backend((socket) => socket.write(OK));
    const does = (step: string) => () => {
      if (step === where) throw new RangeError('too deep');
    };
    const problem = await new Promise<Problem>((fail) =>
      client?.call(
        { method: 'GET', path: '/', headers: {}, body: null, repeatable: true, owner: 'one' },
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
          const head = parseResponseHead(wire);
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
