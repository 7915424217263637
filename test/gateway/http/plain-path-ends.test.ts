// A plain connection at its ends: clients that take nothing, that leave, and a server that stops.
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Outgoing } from '../../../gateway/http/outgoing.ts';
import { type PlainPath, type PlainRoutes, takeConnections } from '../../../gateway/http/plain-path/connection.ts';
import { writeCertificate } from '../../support/certificate.ts';
import { eventually, SILENT, temporaryFolder } from '../../support/harness.ts';

const BODY = '{"model":"m","messages":[]}';
const PLAIN = `POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: ${BODY.length}\r\n\r\n${BODY}`;
const AHEAD = 'x'.repeat(200_000);

let server: Server;
let plainPath: PlainPath;
let sockets: Socket[];
let byNode: number;
let responses: Outgoing[];
/** Called with each answer as it begins. */
let respond: (outgoing: Outgoing) => void;

beforeEach(async () => {
  [sockets, byNode, responses] = [[], 0, []];
  respond = () => {};
  await listen(createServer(byNodeItself));
});
afterEach(close);

const byNodeItself: RequestListener = (_message, response) => {
  byNode++;
  response.end('by node');
};

async function listen(made: Server): Promise<void> {
  server = made;
  const route: PlainRoutes[keyof PlainRoutes] = async ({ env: { outgoing } }) => {
    responses.push(outgoing);
    outgoing.writeHead(200, { 'content-length': 2 });
    respond(outgoing);
  };
  plainPath = takeConnections(server, { '/v1/chat/completions': route, '/v1/completions': route }, SILENT);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
}

async function close(): Promise<void> {
  for (const socket of sockets) socket.destroy();
  plainPath.destroy();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

async function listenWithTls(): Promise<void> {
  await close();
  const folder = temporaryFolder();
  const { certFile, keyFile } = writeCertificate(folder.path);
  await listen(createTlsServer({ cert: readFileSync(certFile), key: readFileSync(keyFile) }, byNodeItself));
  folder.remove();
}

function tlsClient(): Socket {
  const { port } = server.address() as AddressInfo;
  const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false });
  socket.on('error', () => {});
  sockets.push(socket);
  return socket;
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** A client that keeps its side open whatever the server does, as those do that look at their connection only when they use it. */
function client() {
  const socket = connect({
    port: (server.address() as AddressInfo).port,
    host: '127.0.0.1',
    allowHalfOpen: true,
    noDelay: true,
  });
  const seen = { text: '', ended: false };
  socket.on('data', (bytes) => {
    seen.text += bytes.toString('latin1');
  });
  socket.on('end', () => {
    seen.ended = true;
  });
  socket.on('error', () => {});
  sockets.push(socket);
  return { socket, seen };
}

describe('a plain connection', () => {
  it('takes no further request while its client has not taken its answers', async () => {
    respond = (outgoing) => {
      (outgoing as unknown as { end(body: Buffer): void }).end(Buffer.alloc(1024 * 1024));
    };
    const { socket } = client();
    socket.pause();
    const sent = 40;
    for (let i = 0; i < sent; i++) {
      socket.write(PLAIN);
      await pause(5);
    }
    await pause(200);
    // What lies in the kernel's buffers is taken.
    expect(responses.length).toBeLessThan(sent / 2);
    const waiting = responses.at(-1)?.socket?.writableLength ?? 0;
    expect(waiting).toBeLessThan(2 * 1024 * 1024);
    socket.resume();
    await eventually(() => responses.length + byNode === sent);
  });

  it('answers what came in time, also where a long turn of the event loop made its timer fire first', async () => {
    await close();
    await listen(createServer({ headersTimeout: 100, requestTimeout: 1_000 }, byNodeItself));
    respond = (outgoing) => void outgoing.end('ok' as never);
    const { socket, seen } = client();
    const accepted = once(server, 'connection');
    await Promise.all([once(socket, 'connect'), accepted]);
    // The bytes are in the kernel at once; nothing is read from it before the timer is due.
    socket.write(PLAIN);
    const end = performance.now() + 300;
    while (performance.now() < end);
    await eventually(() => seen.text !== '' || seen.ended);
    expect(seen.text).toContain('200 OK');
  });

  it('that brings nothing in time is closed', async () => {
    await close();
    await listen(createServer({ headersTimeout: 100, requestTimeout: 1_000 }, byNodeItself));
    const { seen } = client();
    await eventually(() => seen.ended);
    expect(seen.text).toBe('');
  });

  it.each(['leaves', 'breaks off'] as const)('sees that its client %s, however much came ahead', async (how) => {
    let left = 0;
    respond = (outgoing) => void outgoing.on('close', () => left++);
    const { socket } = client();
    socket.write(PLAIN);
    await eventually(() => responses.length === 1);
    socket.write(AHEAD);
    await pause(100);
    if (how === 'leaves') socket.destroy();
    else socket.resetAndDestroy();
    await eventually(() => left === 1, 2_000);
  });

  it('ends after the answer that runs when more came ahead than is kept', async () => {
    const { socket, seen } = client();
    socket.write(PLAIN);
    await eventually(() => responses.length === 1);
    socket.write(PLAIN + AHEAD);
    await pause(100);
    responses[0]?.end(Buffer.from('ok'));
    await eventually(() => seen.ended);
    expect(seen.text.endsWith('\r\n\r\nok')).toBe(true);
    expect([responses.length, byNode]).toEqual([1, 0]);
    // And is gone soon, though the client keeps its side.
    await eventually(async () => (await connections()) === 0, 3_000);
  });

  it('holds its last answer no longer for a client that takes nothing of it, though it sends a byte now and then', async () => {
    let waited = -1;
    const { socket } = client();
    socket.pause();
    respond = (outgoing) => {
      outgoing.setTimeout(500, () => outgoing.destroy());
      outgoing.once('close', () => {
        waited = outgoing.socket?.writableNeedDrain ? 1 : 0;
      });
    };
    socket.write(PLAIN);
    await eventually(() => responses.length === 1);
    socket.write(AHEAD);
    await pause(100);
    (responses[0] as unknown as { end(body: Buffer): void }).end(Buffer.alloc(16 * 1024 * 1024));
    const dripping = setInterval(() => socket.write('x'), 50);
    // Its place is given back when it is taken, or its client gone: anybody who looks at its end must see that it waits.
    await eventually(() => waited === 1, 1_000);
    await eventually(async () => (await connections()) === 0, 4_000);
    clearInterval(dripping);
  });

  it.each(['TCP', 'TLS'])(
    'lets a client go on that takes a large answer slowly and sends its next request meanwhile, over %s',
    async (over) => {
      respond = (outgoing) => {
        outgoing.setTimeout(400, () => outgoing.destroy());
        (outgoing as unknown as { end(body: Buffer): void }).end(Buffer.alloc(16 * 1024 * 1024));
      };
      if (over === 'TLS') await listenWithTls();
      const socket = over === 'TLS' ? tlsClient() : client().socket;
      let taken = 0;
      const started = performance.now();
      socket.on('data', (bytes) => {
        taken += bytes.length;
        if (performance.now() - started > 2_000) return;
        socket.pause();
        setTimeout(() => socket.resume(), bytes.length / 8192);
      });
      socket.write(PLAIN);
      await pause(100);
      const next = [...PLAIN];
      const dripping = setInterval(() => next.length > 0 && socket.write(next.shift() as string), 30);
      await eventually(() => taken > 16 * 1024 * 1024, 10_000);
      clearInterval(dripping);
      expect(performance.now() - started).toBeGreaterThan(1_000);
    },
  );

  it('takes no request after the last answer of a server that stops', async () => {
    const { socket, seen } = client();
    socket.write(PLAIN);
    await eventually(() => responses.length === 1);
    plainPath.stop();
    responses[0]?.end(Buffer.from('ok'));
    await eventually(() => seen.ended);
    socket.write(PLAIN);
    await pause(100);
    expect([responses.length, byNode]).toEqual([1, 0]);
  });

  it('that is idle holds no server up that stops, though its client keeps its side', async () => {
    const [silent, used] = [client(), client()];
    used.socket.write(PLAIN);
    await eventually(() => responses.length === 1);
    responses[0]?.end(Buffer.from('ok'));
    await eventually(async () => used.seen.text.endsWith('ok') && (await connections()) === 2);
    plainPath.stop();
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    expect(await Promise.race([closed.then(() => 'closed'), pause(1_000)])).toBe('closed');
    expect(silent.seen.text).toBe('');
  });
});

/** Of the server, open. */
const connections = () => new Promise<number>((resolve) => server.getConnections((_error, count) => resolve(count)));
