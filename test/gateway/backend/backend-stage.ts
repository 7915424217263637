// The set-up of the backend client's tests: a backend that is told what to do with each connection's bytes, and a client of it.
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { afterEach } from 'vitest';
import { type Client, createBackend } from '../../../gateway/backend/client.ts';
import type { Problem } from '../../../gateway/base/problem.ts';

interface Answer {
  status: number | null;
  headers: Record<string, unknown>;
  length: number | null;
  body: string;
  problem: Problem | null;
}

export let client: Client | null = null;
export let server: Server | null = null;
export const sockets = new Set<Socket>();
afterEach(async () => {
  await client?.close();
  for (const socket of sockets) socket.destroy();
  await new Promise<void>((resolve) => (server === null ? resolve() : server.close(() => resolve())));
  client = null;
  server = null;
});

/** A backend that is told what to do with each connection's bytes. Returns how many connections there were. */
export async function backend(
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

export function ask(
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
export async function rest(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 35));
  await new Promise(setImmediate);
}

export const BAD = 'backend_bad_response';
export const CHUNKED = 'Transfer-Encoding: chunked\r\n\r\n';
export const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
