// The gateway as a process: its port, which other gateways may share, and a signal that has nothing to do.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { chatAnswer, chatStream } from '../support/backend.ts';
import { ask, CHAT, chat } from '../support/client.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { eventually, type Service, startService } from '../support/harness.ts';

/** Nothing listens there: the gateways serve, and say that their store is away. */
const STORE = { ATTESTATION_STORE_URL: 'redis://127.0.0.1:1' };
let service: Service;
const gateways: GatewayProcess[] = [];

beforeEach(async () => {
  service = await startService();
  service.backend.script = chatAnswer('Hello.');
});
afterEach(async () => {
  for (const gateway of gateways.splice(0)) await gateway.stop('SIGTERM');
  await service.close();
});

async function start(env: Record<string, string>): Promise<GatewayProcess> {
  const { backend, sidecar } = service;
  const started = await startGatewayProcess({ BACKEND_URL: backend.url, SIDECAR_SOCKET: sidecar.socket, ...env });
  gateways.push(started);
  return started;
}

describe('REUSE_PORT', { timeout: 60_000 }, () => {
  it('has two gateways serve on one port, and the other goes on when one ends', async () => {
    const one = await start({ ...STORE, REUSE_PORT: '1' });
    const { port } = new URL(one.url);
    const two = await start({ ...STORE, REUSE_PORT: '1', PORT: port });
    const served = ({ lines }: GatewayProcess) =>
      lines().filter(({ route }) => route === '/v1/chat/completions').length;
    await eventually(async () => {
      expect((await chat(one.url, CHAT)).status).toBe(200);
      return served(one) > 0 && served(two) > 0;
    });
    await one.stop('SIGTERM');
    for (let i = 0; i < 8; i++) expect((await chat(two.url, CHAT)).status).toBe(200);
  });

  it('leaves no metrics on the port, where each request would meet another gateway', async () => {
    const { url } = await start({ ...STORE, REUSE_PORT: '1' });
    const got = await ask(`${url}/metrics`, { method: 'GET' });
    expect([got.status, got.json().error.message]).toEqual([404, expect.stringContaining('set METRICS_PORT')]);
  });

  it('is needed: without it a port that is taken ends the start with one clear line', async () => {
    const one = await start({ ...STORE, REUSE_PORT: '1' });
    const { port } = new URL(one.url);
    await expect(startGatewayProcess({ BACKEND_URL: service.backend.url, PORT: port })).rejects.toThrow(
      `gateway: cannot listen on 127.0.0.1:${port}: EADDRINUSE`,
    );
  });
});

it('a gateway goes on at a SIGHUP where there are no certificates to read again', async () => {
  const gateway = await start({});
  service.backend.script = chatStream(Array(20).fill('word '), 25);
  const running = chat(gateway.url, { ...CHAT, stream: true });
  await eventually(() => service.backend.seen.length === 1);
  process.kill(gateway.child.pid as number, 'SIGHUP');
  expect((await running).payloads().at(-1)).toBe('[DONE]');
  expect(gateway.child.signalCode).toBeNull();
});
