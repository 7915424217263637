// A log that nobody can take any more: its reader is gone. What the log is about goes on, and a stop is a clean stop.
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DONE, delta, finish, role } from '../../support/backend.ts';
import { CHAT, chat } from '../../support/client.ts';
import { type GatewayProcess, startGatewayProcess } from '../../support/gateway-process.ts';
import { eventually, type Service, startService, temporaryFolder } from '../../support/harness.ts';
import { startProcess } from '../../support/process.ts';

let service: Service;
let gateway: GatewayProcess;

beforeEach(async () => {
  service = await startService();
});
afterEach(async () => {
  await gateway.stop();
  await service.close();
});

const start = async (env: Record<string, string>) => {
  gateway = await startGatewayProcess({
    BACKEND_URL: service.backend.url,
    SIDECAR_SOCKET: service.sidecar.socket,
    ...env,
  });
};

describe('a log whose reader is gone', () => {
  it('ends no answer of a gateway, and SIGTERM still ends it cleanly', async () => {
    await start({});
    let end = () => {};
    service.backend.script = async (request, response) => {
      if (JSON.parse(request.body).stream !== true) return void response.writeHead(404).end('{}');
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(role() + delta('word '));
      end = () => void response.end(finish() + DONE);
    };
    const running = chat(gateway.url, { ...CHAT, stream: true, tee: true });
    await eventually(() => service.backend.seen.length === 1, 15_000);
    gateway.child.stdout?.destroy();
    // Each of these is a line in the log.
    for (let i = 0; i < 5; i++) {
      expect((await chat(gateway.url, CHAT)).status).toBe(404);
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
    gateway.child.kill('SIGTERM');
    await new Promise((resolve) => setTimeout(resolve, 300));
    end();
    const got = await running;
    expect(got.text).toContain('"attestation"');
    expect(got.payloads().at(-1)).toBe('[DONE]');
    expect(await gateway.exited).toEqual({ code: 0, signal: null });
  });

  it('ends no attestation of a sidecar', async () => {
    const folder = temporaryFolder();
    const socket = join(folder.path, 'sidecar.sock');
    const sidecar = startProcess('demo/twin/main.ts', ['--root-dir', join(folder.path, 'root')], {
      SIDECAR_SOCKET: socket,
    });
    try {
      await eventually(() => sidecar.output().includes('listening'), 15_000);
      sidecar.child.stdout?.destroy();
      await start({ SIDECAR_SOCKET: socket });
      for (let i = 0; i < 5; i++) {
        const got = await chat(gateway.url, { ...CHAT, tee: true });
        expect([got.status, typeof got.json().attestation?.nonce]).toEqual([200, 'string']);
      }
      expect(await sidecar.kill('SIGTERM')).toEqual({ code: 0, signal: null });
    } finally {
      if (sidecar.child.exitCode === null) await sidecar.kill('SIGKILL');
      folder.remove();
    }
  });
});
