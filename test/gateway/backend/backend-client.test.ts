import { describe, expect, it } from 'vitest';
import type { Problem } from '../../../gateway/base/problem.ts';
import { eventually } from '../../support/harness.ts';

import { ask, BAD, backend, CHUNKED, client, OK, rest, server, sockets } from './backend-stage.ts';

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
    const connections = await backend((socket) => void socket.write(OK), 60_000);
    await ask();
    const socket = [...sockets].at(-1);
    await new Promise((resolve) => setTimeout(resolve, 3_500));
    expect(socket?.destroyed).toBe(false);
    await eventually(() => socket?.destroyed === true, 2_000);
    await ask();
    expect(connections()).toBe(2);
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
    ['two interim answers', `HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n${OK}`],
    ['a list of one header', `HTTP/1.1 200\r\nX: a\r\nX: b\r\nContent-Length: 2\r\n\r\nok`],
    [
      'chunks with extensions and a trailer',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\no\r\n01\r\nk\r\n0\r\nX: y\r\n\r\n',
    ],
    ['a body until the end of the connection', 'HTTP/1.1 200 OK\r\n\r\nok', true],
    ['HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok', true],
    ['spaces and tabs around a value', 'HTTP/1.1 200 OK\r\nX: \t 2 \t\r\nContent-Length: 2\r\n\r\nok'],
    // The connection of such a response is not used again.
    ['chunks in HTTP/1.0', `HTTP/1.0 200 OK\r\n${CHUNKED}2\r\nok\r\n0\r\n\r\n`],
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
    ['a 100 that nobody asked for', `HTTP/1.1 100 Continue\r\n\r\n${OK}`, BAD],
    ['an upgrade to a protocol', 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n', BAD],
    ['a 204 that announces a length', 'HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n', BAD],
    ['a tab behind a length', 'HTTP/1.1 200 OK\r\nContent-Length: 2\t\r\n\r\nok', BAD],
    ['a bare CR in the extension of a chunk', `HTTP/1.1 200 OK\r\n${CHUNKED}2;a=\rb\r\nok\r\n0\r\n\r\n`, BAD],
    ['a bare CR in a trailer', `HTTP/1.1 200 OK\r\n${CHUNKED}2\r\nok\r\n0\r\nx: a\rb\r\n\r\n`, BAD],
    ['bare line feeds', 'HTTP/1.1 200 OK\nContent-Length: 2\n\nok', BAD],
    ['a bare line feed before the end of a head', 'HTTP/1.1 200 OK\r\nContent-Length: 2\n\r\nok', BAD],
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

  it('takes no more than the length of an answer, and does not use a connection again on which more came', async () => {
    const connections = await backend((socket) => socket.write(`${OK}more`));
    for (let i = 1; i <= 2; i++) {
      expect(await ask()).toMatchObject({ body: 'ok', problem: null });
      await rest();
      expect(connections()).toBe(i);
    }
  });

  it('does not use a connection again on which more came later', async () => {
    const connections = await backend((socket, _bytes, connection) => {
      socket.write(OK);
      if (connection === 1) setTimeout(() => socket.write(OK), 5);
    });
    await ask();
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(await ask()).toMatchObject({ body: 'ok' });
    expect(connections()).toBe(2);
  });

  it('reads a 204 that announces a coding as one without content, and does not use its connection again', async () => {
    const connections = await backend((socket) =>
      socket.write('HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n'),
    );
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
