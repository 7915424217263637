// Several backends of which some are down: what is sent elsewhere, what never is, and what the operator sees.
import { spawn } from 'node:child_process';
import { connect, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { verifyAttestation } from '../../../verify/index.ts';
import { answer, type Backend, chatAnswer, chatStream, delta, role, stream } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import { eventually, freePort, startSidecar, temporaryFolder } from '../../support/harness.ts';
import { parseSamples } from '../../telemetry/samples.ts';
import { expectError } from '../expect-error.ts';
import { afterwards, answeredBy, get, health, modelsAt, stageOf, turns } from './backends-stage.ts';

const samples = async (url: string) => parseSamples((await get(`${url}/metrics`)).text);
const failovers = async (url: string) => (await samples(url)).value('countersign_backend_failovers_total');
const isUp = async (url: string, backend: string) => (await samples(url)).value('countersign_backend_up', { backend });
/** The script answers for /v1/models too. */
const failingProbe =
  (status: number): Backend['script'] =>
  (request, response) =>
    request.method === 'GET' ? answer('{}', status)(request, response) : chatAnswer('from 0')(request, response);

describe('a request whose backend refuses connections', () => {
  it('is sent to the next one, and those after it to the next one at once', async () => {
    const { url, backends, lines } = await stageOf(2);
    await health(url);
    await backends[0]?.stop();
    expect(await turns(url, 6)).toEqual([1, 1, 1, 1, 1, 1]);
    expect(await failovers(url)).toBe(1);
    expect([await isUp(url, '0'), await isUp(url, '1')]).toEqual([0, 1]);
    expect((await get(`${url}/health`)).status).toBe(200);
    expect(await health(url)).toMatchObject({
      status: 'degraded',
      backend: { status: 'degraded', backends: [{ state: 'down' }, { state: 'up' }] },
    });
    const down = lines.filter(({ msg }) => msg === 'a backend is down');
    expect(down).toMatchObject([{ level: 40, backend: '0', reason: 'ECONNREFUSED' }]);
    expect(lines.filter(({ route }) => route === '/v1/chat/completions')[0]).toMatchObject({ backend: '1' });
    await backends[0]?.start();
    await eventually(async () => (await health(url)).backend.status === 'ok');
    expect(lines.filter(({ msg }) => msg === 'a backend is up again')).toMatchObject([{ backend: '0' }]);
    expect(new Set(await turns(url, 4))).toEqual(new Set([0, 1]));
    // No client was told anything of it.
    expect((await samples(url)).value('countersign_backend_errors_total', { code: 'backend_unreachable' })).toBe(0);
  });

  it('is sent on although its connection was kept: that one is closed, and no other can be had', async () => {
    const { url, backends } = await stageOf(2);
    expect(await turns(url, 4)).toEqual([0, 1, 0, 1]);
    await new Promise((resolve) => setTimeout(resolve, 60));
    await backends[0]?.stop();
    expect(await turns(url, 4)).toEqual([1, 1, 1, 1]);
    expect(backends[1]?.seen).toHaveLength(6);
  });

  it('is streamed by the next one, and proven', async () => {
    const folder = temporaryFolder();
    afterwards(() => folder.remove());
    const sidecar = await startSidecar(folder);
    afterwards(() => sidecar.close());
    const { url, backends } = await stageOf(2, undefined, { SIDECAR_SOCKET: sidecar.socket });
    await health(url);
    await backends[0]?.stop();
    (backends[1] as Backend).script = chatStream(['from', ' 1']);
    const body = JSON.stringify({ ...CHAT, stream: true, tee: true });
    const got = await ask(`${url}/v1/chat/completions`, { body });
    const simulatedRoot = sidecar.attester.simulated?.root ?? '';
    const verified = await verifyAttestation(new TextEncoder().encode(got.text), { simulatedRoot });
    expect(verified.exchange.request).toBe(body);
    expect([backends[1]?.seen.length, await failovers(url)]).toEqual([1, 1]);
  });

  it('may be any request: nothing of it has been sent', async () => {
    const { url, backends } = await stageOf(2);
    await health(url);
    await backends[0]?.stop();
    expect(answeredBy(await ask(`${url}/v1/embeddings`, { body: '{"model":"a","input":"b"}' }))).toBe(1);
  });

  it('is a 502 where every backend of its model does, and others are served', async () => {
    const { url, backends } = await stageOf(3, (all) => [
      { url: all[0]?.url, models: ['a'] },
      { url: all[1]?.url, models: ['a'] },
      { url: all[2]?.url, models: ['b'] },
    ]);
    await Promise.all([backends[0]?.stop(), backends[1]?.stop()]);
    for (let i = 0; i < 3; i++) {
      const got = await chat(url, { ...CHAT, model: 'a' });
      expectError(got, 502, 'backend_unreachable');
      expect(got.headers['retry-after']).toBe('1');
    }
    expect(answeredBy(await chat(url, { ...CHAT, model: 'b' }))).toBe(2);
    expect((await health(url)).backend.status).toBe('degraded');
    // As with one backend, the first request after its return is served, however long it was down.
    await backends[1]?.start();
    expect(answeredBy(await chat(url, { ...CHAT, model: 'a' }))).toBe(1);
  });

  it('is a 502 where all do; so is the list of models, and health is down', async () => {
    const { url, backends } = await stageOf(2);
    await Promise.all(backends.map((backend) => backend.stop()));
    expectError(await chat(url, CHAT), 502, 'backend_unreachable');
    expectError(await chat(url, { ...CHAT, stream: true }), 502, 'backend_unreachable');
    await eventually(async () => (await get(`${url}/v1/models`)).status === 502);
    expectError(await get(`${url}/v1/models`), 502, 'backend_unreachable');
    const got = await get(`${url}/health`);
    expect([got.status, got.json().status, got.json().backend.status]).toEqual([503, 'down', 'down']);
    expect((await samples(url)).value('countersign_backend_errors_total', { code: 'backend_unreachable' })).toBe(4);
  });

  it('without a model is for the first backend alone, which keeps what it is about', async () => {
    const { url, backends } = await stageOf(2);
    await backends[0]?.stop();
    expectError(await get(`${url}/v1/files`), 502, 'backend_unreachable');
    expect(backends[1]?.seen).toEqual([]);
  });
});

describe('a request that may have begun', () => {
  const others = (backends: readonly Backend[]) => backends[1]?.seen.length;

  it.each([
    [
      'is closed without an answer',
      (_: unknown, response: { socket: Socket | null }) => void response.socket?.destroy(),
    ],
    ['breaks off in its answer', stream([role(), delta('a'), null])],
    ['answers with an error', answer('{"error":{"message":"busy"}}', 503)],
    ['is silent', () => {}],
  ] as const)('is sent to no other backend when its own %s', async (_what, script) => {
    const { url, backends } = await stageOf(2, undefined, { BACKEND_TIMEOUT_MS: '600' });
    (backends[0] as Backend).script = script as Backend['script'];
    for (const body of [CHAT, { ...CHAT, stream: true }]) {
      const got = await chat(url, body);
      expect(got.status === 200 ? got.text.includes('"error"') || !got.complete : got.status >= 500).toBe(true);
      expect(answeredBy(await chat(url, CHAT))).toBe(1);
    }
    expect([backends[0]?.seen.length, others(backends), await failovers(url)]).toEqual([2, 2, 0]);
  });

  it('on a kept connection that is closed is asked once more of its own backend, as ever, and of no other', async () => {
    const { url, backends } = await stageOf(2);
    expect(await turns(url, 2)).toEqual([0, 1]);
    await new Promise((resolve) => setTimeout(resolve, 60));
    (backends[0] as Backend).script = (_request, response) => void response.socket?.destroy();
    expectError(await chat(url, CHAT), 502, 'backend_unreachable');
    expect([backends[0]?.seen.length, others(backends)]).toEqual([3, 1]);
    const embeddings = () => ask(`${url}/v1/embeddings`, { body: '{"model":"a","input":"b"}' });
    expect([(await embeddings()).status, others(backends)]).toEqual([200, 2]);
    expectError(await embeddings(), 502, 'backend_unreachable');
    expect([backends[0]?.seen.length, others(backends)]).toEqual([4, 2]);
  });
});

describe('a backend', () => {
  it('whose probe fails is not chosen, and is again when it succeeds', async () => {
    const { url, backends } = await stageOf(2);
    expect(await turns(url, 2)).toEqual([0, 1]);
    const [first] = backends as [Backend];
    const { models } = first;
    first.models = null;
    first.script = failingProbe(503);
    await eventually(async () => (await health(url)).backend.backends[0].state === 'down');
    expect(await turns(url, 3)).toEqual([1, 1, 1]);
    // What lists no models is down too.
    first.script = failingProbe(404);
    await new Promise((resolve) => setTimeout(resolve, 4_000));
    expect(await turns(url, 3)).toEqual([1, 1, 1]);
    expect(await modelsAt(url)).toEqual(['m1']);
    first.models = models;
    await eventually(async () => (await health(url)).backend.backends[0].state === 'up');
    expect(new Set(await turns(url, 4))).toEqual(new Set([0, 1]));
  });

  it('is asked although its probe fails where there is no other', async () => {
    const { url, backends } = await stageOf(1);
    const [first] = backends as [Backend];
    first.models = null;
    first.script = failingProbe(500);
    await eventually(async () => (await health(url)).status === 'down');
    expect(await turns(url, 2)).toEqual([0, 0]);
  });

  it('has its turn as ever where all probes fail: none gets everything', async () => {
    const { url, backends } = await stageOf(2);
    for (const [i, backend] of backends.entries()) {
      backend.models = null;
      backend.script = (request, response) =>
        request.method === 'GET'
          ? answer('{}', 503)(request, response)
          : answer(`{"x":"from ${i}"}`, 503)(request, response);
    }
    await eventually(async () => (await health(url)).status === 'down');
    for (let i = 0; i < 4; i++) expectError(await chat(url, CHAT), 503, 'backend_error');
    const chats = backends.map(({ seen }) => seen.filter(({ method }) => method === 'POST').length);
    expect(chats).toEqual([2, 2]);
  });

  it('that comes and goes costs no answer, and is probed less often each time', async () => {
    const { url, backends, lines } = await stageOf(2);
    const [first] = backends as [Backend];
    let running = true;
    const statuses: number[] = [];
    const asking = (async () => {
      while (running) statuses.push((await chat(url, CHAT)).status);
    })();
    const away_ms: number[] = [];
    for (let i = 0; i < 3; i++) {
      await first.stop();
      await eventually(async () => (await health(url)).backend.backends[0].state === 'down');
      const began = performance.now();
      await first.start();
      await eventually(async () => (await health(url)).backend.backends[0].state === 'up');
      away_ms.push(performance.now() - began);
    }
    running = false;
    await asking;
    // What runs when a backend is killed is lost, as with one backend; what comes after it is not.
    const lost = statuses.filter((status) => status !== 200).length;
    expect(lost).toBeLessThanOrEqual(3);
    expect(statuses.length).toBeGreaterThan(50);
    expect(lines.filter(({ msg }) => msg === 'a backend is down')).toHaveLength(3);
    expect(away_ms[2]).toBeGreaterThan(3_000);
    expect(away_ms[0]).toBeLessThan(away_ms[2] as number);
  });

  it('that takes no connection in time is left for the next', async () => {
    const port = await deafPort();
    const { url } = await stageOf(2, (all) => [{ url: `http://127.0.0.1:${port}/v1` }, { url: all[1]?.url }]);
    const began = performance.now();
    expect(answeredBy(await chat(url, CHAT))).toBe(1);
    expect(performance.now() - began).toBeGreaterThan(4_000);
    expect(await turns(url, 2)).toEqual([1, 1]);
    expect(performance.now() - began).toBeLessThan(9_000);
  });
});

/** A port whose system completes no connection: its process stands still, and its queue is full. */
async function deafPort(): Promise<number> {
  const port = await freePort();
  const program = `require('net').createServer().listen({port: ${port}, host: '127.0.0.1', backlog: 1}, () => {
    console.log('listening'); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0) })`;
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] });
  afterwards(() => void child.kill('SIGKILL'));
  await new Promise((resolve) => child.stdout.once('data', resolve));
  const sockets: Socket[] = [];
  afterwards(() => {
    for (const socket of sockets) socket.destroy();
  });
  for (let i = 0; i < 16; i++) {
    const socket = connect(port, '127.0.0.1').on('error', () => {});
    sockets.push(socket);
    const connected = await new Promise((resolve) => {
      socket.once('connect', () => resolve(true));
      setTimeout(() => resolve(false), 500);
    });
    if (!connected) return port;
  }
  throw new Error('the queue does not fill');
}
