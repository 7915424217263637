// Clients that leave, at every point of every kind of request: each is one log line of status 499 and code client_gone, and no error.
import { createServer, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { pino } from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createSimulatedCpu } from '../../../demo/twin/cpu.ts';
import { chatAnswer } from '../../support/backend.ts';
import { ask, CHAT, chat } from '../../support/client.ts';
import {
  eventually,
  type Folder,
  type RunningGateway,
  type Service,
  startGateway,
  startService,
  temporaryFolder,
} from '../../support/harness.ts';
import { get, post } from '../../support/raw.ts';
import { currentKey, messageOf, sealedAsk, sealMessage } from '../../support/sealed-client.ts';
import { parseSamples } from '../../telemetry/samples.ts';

let folder: Folder;
let service: Service;
let gateway: RunningGateway;
/** NVIDIA's services. They answer nothing. */
let silent: Server;
let url: string;
let lines: Record<string, unknown>[] = [];
/** Delays each report of the processor. */
let report_ms = 0;

beforeAll(async () => {
  folder = temporaryFolder();
  const collector = await createSimulatedCpu({ type: 'TDX', rootDir: folder.path });
  const collect: typeof collector.collect = async (...args) => {
    await new Promise((resolve) => setTimeout(resolve, report_ms));
    return collector.collect(...args);
  };
  service = await startService({ SEALED: 'off' }, { cpu: { collector: { ...collector, collect }, required: true } });
  silent = createServer(() => {});
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const nvidia = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
  const env = { RIM_URL: nvidia, OCSP_URL: nvidia, BACKEND_URL: service.backend.url };
  const log = pino({ level: 'trace' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  gateway = await startGateway({ ...env, SIDECAR_SOCKET: service.sidecar.socket }, log);
  url = gateway.url;
  await currentKey(url);
});
afterAll(async () => {
  silent.closeAllConnections();
  silent.close();
  await gateway.close();
  await service.close();
  folder.remove();
});

const samples = async () => parseSamples((await ask(`${url}/metrics`, { method: 'GET' })).text);
/** Errors that were counted: the gateway's own and the backend's. */
const errors = async () => {
  const { value } = await samples();
  return [value('countersign_refusals_total') ?? 0, value('countersign_backend_errors_total') ?? 0];
};
let before: number[] = [];
beforeEach(async () => {
  service.backend.script = chatAnswer('Hello.');
  service.backend.seen.length = 0;
  report_ms = 0;
  before = await errors();
  lines = [];
});
afterEach(async () => {
  expect(await errors()).toEqual(before);
  report_ms = 0;
  service.backend.script = chatAnswer('Hello.');
  expect((await chat(url, { ...CHAT, tee: true })).status).toBe(200);
  expect((await sealedAsk(url, { body: JSON.stringify(CHAT) })).status).toBe(200);
});

/** Sends the bytes and leaves once `then` has resolved: with FIN or with RST. */
async function leave(bytes: string | Buffer, how: 'FIN' | 'RST', then: () => Promise<unknown>): Promise<void> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  socket.on('error', () => {}).resume();
  await new Promise((resolve) => socket.write(bytes, 'latin1', resolve));
  await then();
  if (how === 'FIN') socket.destroy();
  else socket.resetAndDestroy();
}
const soon = () => new Promise((resolve) => setTimeout(resolve, 150));
const atBackend = () => eventually(() => service.backend.seen.length > 0);

/** Exactly these routes were left, and nothing else is in the log. */
async function expectGone(...routes: string[]): Promise<void> {
  const found = () => lines.filter(({ route }) => route !== '/metrics' && route !== '/v1/attestation/session');
  await eventually(() => found().length >= routes.length);
  await soon();
  const shown = found().map(({ route, status, code, level }) => ({ route, status, code, level }));
  const gone = (route: string) => ({ route, status: 499, code: 'client_gone', level: 30 });
  expect(shown).toEqual(routes.map(gone));
}

const half = (text: string) => text.slice(0, -10);
const WAYS = ['FIN', 'RST'] as const;

describe.each(WAYS)('a client that leaves with %s', (how) => {
  it.each([
    ['/v1/chat/completions', half(post('/v1/chat/completions', JSON.stringify(CHAT)))],
    ['/v1/completions', half(post('/v1/completions', '{"model":"m","prompt":"x"}'))],
    ['/v1/*', half(post('/v1/embeddings', '{"model":"m","input":"x"}'))],
    [
      '/v1/*',
      post('/v1/files', '--b\r\ncontent-disposition: form-data; name="model"\r\n\r\nm\r\n--b', [
        'content-type: multipart/form-data; boundary=b',
      ]).slice(0, -3),
    ],
    ['/~sev_gpu@1.0/verify', half(post('/~sev_gpu@1.0/verify', '{"raw":"x","nonce":"y"}'))],
    ['/page/collateral/ocsp', half(post('/page/collateral/ocsp', '0'.repeat(100)))],
  ])('in the middle of its body is gone, and has no other line: %s', async (route, bytes) => {
    await leave(bytes, how, soon);
    await expectGone(route);
  });

  it('in its head is in no line', async () => {
    await leave('POST /v1/chat/completions HTTP/1.1\r\nhost: loc', how, soon);
    await soon();
    await expectGone();
  });

  it.each([
    ['/v1/chat/completions', JSON.stringify(CHAT)],
    ['/v1/chat/completions', JSON.stringify({ ...CHAT, tee: true })],
    ['/v1/embeddings', '{"model":"m","input":"x"}'],
  ])('while the backend works is gone: %s %s', async (path, body) => {
    service.backend.script = () => {};
    await leave(post(path, body), how, atBackend);
    await expectGone(path === '/v1/embeddings' ? '/v1/*' : path);
  });

  it('in a stream is gone, also in the metrics of generations', async () => {
    service.backend.script = (_request, response) =>
      void response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {"choices":[]}\n\n');
    const gone = async () =>
      (await samples()).value('gen_ai_server_request_duration_seconds_count', { error_type: 'client_gone' }) ?? 0;
    const counted = await gone();
    await leave(post('/v1/chat/completions', JSON.stringify({ ...CHAT, stream: true })), how, async () => {
      await atBackend();
      await soon();
    });
    await expectGone('/v1/chat/completions');
    expect(await gone()).toBe(counted + 1);
    expect((await samples()).values('gen_ai_server_request_duration_seconds_count', 'error_type')).not.toContain(
      'client_left',
    );
  });

  it('while collateral is fetched is gone', async () => {
    const fetched = async (bytes: string) => {
      const asked = new Promise((resolve) => silent.once('request', (_request, response) => resolve(response)));
      await leave(bytes, how, async () => {
        const response = (await asked) as import('node:http').ServerResponse;
        setTimeout(() => response.destroy(), 300);
      });
    };
    await fetched(get('/page/collateral/v1/rim/NV_GPU_DRIVER_GH100_1.0'));
    await expectGone('/page/collateral/v1/rim/:id');
    lines = [];
    await fetched(post('/page/collateral/ocsp', '0\x02\x05\x00'));
    await expectGone('/page/collateral/ocsp');
  });

  it('while its challenge is made, or waits for its turn, is gone', async () => {
    report_ms = 600;
    const challenge = (digit: string) => get(`/v1/attestation/session?challenge=${digit.repeat(64)}`);
    const digits = how === 'FIN' ? ['a', 'b'] : ['c', 'd'];
    await Promise.all(digits.map((digit) => leave(challenge(digit), how, soon)));
    const gone = () => lines.filter(({ route }) => route === '/v1/attestation/session');
    await eventually(() => gone().length === 2);
    for (const line of gone()) expect(line).toMatchObject({ status: 499, code: 'client_gone', level: 30 });
  });
});

describe.each(WAYS)('a client that leaves a sealed request with %s', (how) => {
  const BODY = JSON.stringify({ ...CHAT, messages: [{ role: 'user', content: 'x'.repeat(60_000) }] });
  const LONG_HEAD = { 'x-long': 'y'.repeat(20_000) };
  const HEADER_BYTES = 7 + 1120;

  async function sealedBytes(inner: Parameters<typeof messageOf>[0]): Promise<Buffer> {
    const { chunks } = await sealMessage(await currentKey(url), messageOf(inner));
    return Buffer.concat(chunks);
  }
  const outerOf = (whole: Buffer, sent: number) =>
    Buffer.concat([
      Buffer.from(
        `POST /ohttp HTTP/1.1\r\nhost: localhost\r\ncontent-type: message/ohttp-chunked-req\r\ncontent-length: ${whole.length}\r\n\r\n`,
      ),
      whole.subarray(0, sent),
    ]);

  it.each([
    ['before its first byte', 0],
    ['in the key identifier', 5],
    ['in the encapsulated key', 500],
    ['before the first chunk', HEADER_BYTES],
    ['in the first chunk', 5_000],
    ['in the opened head', 17_600],
  ])('%s is gone', async (_, sent) => {
    await leave(outerOf(await sealedBytes({ body: BODY, headers: LONG_HEAD }), sent), how, soon);
    await expectGone('/ohttp');
  });

  it('in the opened body is gone, inside and outside', async () => {
    const whole = await sealedBytes({ body: BODY });
    await leave(outerOf(whole, 40_000), how, soon);
    await expectGone('/v1/chat/completions', '/ohttp');
  });

  it('in the opened body of a GET is gone', async () => {
    const whole = await sealedBytes({ method: 'GET', path: '/v1/models', body: 'x'.repeat(16_000) });
    await leave(outerOf(whole, whole.length - 5), how, soon);
    await expectGone('/ohttp');
  });

  it.each([
    ['a plain response', CHAT],
    ['a response with tee', { ...CHAT, tee: true }],
  ])('while the backend works is gone: %s', async (_, body) => {
    service.backend.script = () => {};
    const whole = await sealedBytes({ body: JSON.stringify(body) });
    await leave(outerOf(whole, whole.length), how, atBackend);
    await expectGone('/v1/chat/completions', '/ohttp');
  });

  it('in a stream is gone', async () => {
    service.backend.script = (_request, response) =>
      void response.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: {"choices":[]}\n\n');
    const whole = await sealedBytes({ body: JSON.stringify({ ...CHAT, stream: true }) });
    await leave(outerOf(whole, whole.length), how, async () => {
      await atBackend();
      await soon();
    });
    await expectGone('/v1/chat/completions', '/ohttp');
  });
});
