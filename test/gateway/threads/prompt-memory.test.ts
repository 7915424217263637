// What a stream that runs keeps of the request that began it.
import { connect, type Socket } from 'node:net';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Backend, role, startBackend } from '../../support/backend.ts';
import { type GatewayProcess, startGatewayProcess } from '../../support/gateway-process.ts';
import { eventually } from '../../support/harness.ts';

const FLAGS = ['--expose-gc', '--import', fileURLToPath(new URL('../tell-memory.ts', import.meta.url))];
const STREAMS = 40;

let backend: Backend;
let gateway: GatewayProcess;

beforeAll(async () => {
  // Begins each stream and says no more.
  backend = await startBackend((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(role());
  });
  gateway = await startGatewayProcess({ BACKEND_URL: backend.url, SIDECAR_SOCKET: '/nowhere' }, { flags: FLAGS });
});
afterAll(async () => {
  await gateway.stop();
  await backend.close();
});

/** The least of three: what is about to be given back is not held. */
async function held_bytes(): Promise<number> {
  const told = () => gateway.lines().filter(({ msg }) => msg === 'memory');
  const before = told().length;
  for (let i = 1; i <= 3; i++) {
    gateway.child.kill('SIGUSR2');
    await eventually(() => told().length >= before + i);
  }
  return Math.min(
    ...told()
      .slice(before)
      .map(({ bytes }) => bytes as number),
  );
}

function begin(prompt: string): Promise<Socket> {
  const body = JSON.stringify({ model: 'm', stream: true, messages: [{ role: 'user', content: prompt }] });
  const head = `POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n`;
  return new Promise((resolve, reject) => {
    const socket = connect(Number(new URL(gateway.url).port), '127.0.0.1', () => socket.write(head + body));
    socket.once('data', () => resolve(socket)).once('error', reject);
  });
}

describe('a stream without tee', () => {
  it.each([
    ['a long prompt', 120_000],
    ['a prompt that a thread reads', 500_000],
  ])('keeps nothing of %s', async (_, length) => {
    for (const socket of await Promise.all(Array.from({ length: STREAMS }, () => begin('warm')))) socket.destroy();
    const before = await held_bytes();
    const sockets: Socket[] = [];
    for (let i = 0; i < STREAMS; i++) sockets.push(await begin('p'.repeat(length)));
    const each_bytes = ((await held_bytes()) - before) / STREAMS;
    for (const socket of sockets) socket.destroy();
    expect(each_bytes).toBeLessThan(length / 2);
  });
});
