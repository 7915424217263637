import { connect } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { chatAnswer, DONE, delta, finish, role } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { type GatewayProcess, startGatewayProcess } from '../../support/gateway-process.ts';
import { eventually, type Service, startService } from '../../support/harness.ts';

let service: Service;
let gateway: GatewayProcess;

beforeEach(async () => {
  service = await startService();
});
afterEach(async () => {
  await gateway.stop();
  await service.close();
});

const start = async (env: Record<string, string> = {}) => {
  gateway = await startGatewayProcess({
    BACKEND_URL: service.backend.url,
    SIDECAR_SOCKET: service.sidecar.socket,
    ...env,
  });
  await eventually(async () => (await ask(`${gateway.url}/health`, { method: 'GET' })).json().status === 'ok');
};
const draining = () => eventually(() => gateway.lines().some((line) => line.msg === 'draining'));

/** A stream that goes on until it is told to end. */
function endless(): () => void {
  let ended = false;
  service.backend.script = async (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(role());
    while (!ended && !response.destroyed) {
      response.write(delta('word '));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    response.end(finish() + DONE);
  };
  return () => {
    ended = true;
  };
}

/** A connection on which a test speaks when it likes. */
function dial(url: string) {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  let text = '';
  let closed = false;
  socket.on('data', (data) => {
    text += data;
  });
  socket.on('close', () => {
    closed = true;
  });
  socket.on('error', () => {});
  return { socket, text: () => text, closed: () => closed };
}

describe('a gateway that is told to stop', () => {
  it('serves new connections for DRAIN_GRACE_MS, while /health is 503, then ends as without', async () => {
    await start({ DRAIN_GRACE_MS: '1500' });
    gateway.child.kill('SIGTERM');
    await draining();
    const health = await ask(`${gateway.url}/health`, { method: 'GET' });
    expect([health.status, health.json().status]).toEqual([503, 'draining']);
    for (const tee of [false, true]) expect((await chat(gateway.url, { ...CHAT, tee })).status).toBe(200);
    const end = endless();
    const running = chat(gateway.url, { ...CHAT, stream: true, tee: true });
    await eventually(async () => (await ask(`${gateway.url}/health`, { method: 'GET' }).catch(() => null)) === null);
    end();
    expect((await running).text).toContain('"attestation"');
    expect(await gateway.exited).toEqual({ code: 0, signal: null });
  });

  it('accepts nothing new, lets running streams end with their proof, and exits 0', async () => {
    await start();
    const end = endless();
    const running = [true, false].map((tee) => chat(gateway.url, { ...CHAT, stream: true, tee }));
    await eventually(() => service.backend.seen.length === 2);
    gateway.child.kill('SIGTERM');
    await draining();
    await expect(chat(gateway.url, CHAT)).rejects.toThrow(/ECONNREFUSED/);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(gateway.child.exitCode).toBeNull();
    end();
    const [proven, plain] = await Promise.all(running);
    expect(proven?.payloads().at(-1)).toBe('[DONE]');
    expect(proven?.text).toContain('"attestation"');
    expect(plain?.payloads().at(-1)).toBe('[DONE]');
    expect(await gateway.exited).toEqual({ code: 0, signal: null });
  });

  it('ends each kept connection after its answer, and says draining to anybody who still asks', async () => {
    await start();
    const idle = dial(gateway.url);
    idle.socket.write('GET /health HTTP/1.1\r\nhost: h\r\n\r\n');
    await eventually(() => idle.text().includes('"status":"ok"'));
    let release = () => {};
    service.backend.script = (request, response) => {
      release = () => void chatAnswer('the last')(request, response);
    };
    const busy = dial(gateway.url);
    const body = JSON.stringify(CHAT);
    busy.socket.write(`POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
    const client = dial(gateway.url);
    client.socket.write('GET /health HTTP/1.1\r\n');
    await eventually(() => service.backend.seen.length === 1);
    gateway.child.kill('SIGTERM');
    await draining();
    await eventually(idle.closed);
    client.socket.write('host: h\r\n\r\n');
    await eventually(client.closed);
    expect(client.text()).toMatch(/^HTTP\/1\.1 503 /);
    expect(client.text()).toContain('"status":"draining"');
    expect(client.text()).toMatch(/\r\nconnection: close\r\n/i);
    release();
    await eventually(busy.closed);
    expect(busy.text()).toMatch(/^HTTP\/1\.1 200 /);
    expect(busy.text()).toContain('the last');
    expect(busy.text()).toMatch(/\r\nconnection: close\r\n/i);
    expect((await gateway.exited).code).toBe(0);
  });

  it('waits no longer than DRAIN_MS: a stream that is cut says so, and never "stop"', async () => {
    await start({ DRAIN_MS: '300' });
    endless();
    const running = chat(gateway.url, { ...CHAT, stream: true, tee: true });
    await eventually(() => service.backend.seen.length === 1);
    const began = performance.now();
    gateway.child.kill('SIGTERM');
    const got = await running;
    expect(got.text).not.toContain('"finish_reason":"stop"');
    expect(got.text).not.toContain('[DONE]');
    // It is none of the backend's doing.
    expect(JSON.parse(got.payloads().at(-1) ?? '')).toHaveProperty('error.code', 'overloaded');
    expect((await gateway.exited).code).toBe(0);
    expect(performance.now() - began).toBeLessThan(3_000);
  });

  it('ends at once at the second signal; the same signal from a terminal and a launcher is one', async () => {
    await start();
    endless();
    const running = chat(gateway.url, { ...CHAT, stream: true }).catch((error: Error) => error);
    await eventually(() => service.backend.seen.length === 1);
    gateway.child.kill('SIGINT');
    await draining();
    gateway.child.kill('SIGTERM');
    await new Promise((resolve) => setTimeout(resolve, 700));
    expect(gateway.child.exitCode, 'it still drains').toBeNull();
    const began = performance.now();
    await gateway.kill('SIGTERM');
    expect(performance.now() - began).toBeLessThan(5_000);
    await running;
  });
});
