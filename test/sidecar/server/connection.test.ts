import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import type { Attester } from '../../../sidecar/common/attester.ts';
import { AttesterError } from '../../../sidecar/common/attester.ts';
import { SocketError, startServer } from '../../../sidecar/server/server.ts';
import { type Folder, type RunningSidecar, SILENT, startSidecar, temporaryFolder } from '../../support/harness.ts';

let folder: Folder;
let running: RunningSidecar | null = null;
const open: WebSocket[] = [];

beforeEach(() => {
  folder = temporaryFolder();
});
afterEach(async () => {
  for (const ws of open.splice(0)) ws.terminate();
  await running?.close();
  running = null;
  folder.remove();
});

interface Client {
  readonly ws: WebSocket;
  send(frame: unknown): void;
  // biome-ignore lint/suspicious/noExplicitAny: frames of every shape
  next(): Promise<any>;
}

async function connect(socket: string): Promise<Client> {
  const ws = new WebSocket(`ws+unix://${socket}:/`, { perMessageDeflate: false });
  open.push(ws);
  const frames: unknown[] = [];
  const waiting: ((frame: unknown) => void)[] = [];
  ws.on('message', (data) => {
    const frame = JSON.parse(String(data));
    const take = waiting.shift();
    if (take === undefined) frames.push(frame);
    else take(frame);
  });
  await new Promise((resolve, reject) => ws.once('open', resolve).once('error', reject));
  return {
    ws,
    send: (frame) => ws.send(typeof frame === 'string' ? frame : JSON.stringify(frame)),
    next: () => (frames.length > 0 ? Promise.resolve(frames.shift()) : new Promise((resolve) => waiting.push(resolve))),
  };
}

const RAW = '{"request":{"a":1},"response":{"b":2},"timestamp":1700000000}';
const hashOf = (n: number) => createHash('sha256').update(rawOf(n)).digest('hex');
const rawOf = (n: number) => `{"request":{"n":${n}},"response":{},"timestamp":1700000000}`;

/** The simulated attester, with something before or instead of its answer. */
async function attesterWith(
  change: (real: Attester, ...args: Parameters<Attester['attest']>) => ReturnType<Attester['attest']>,
): Promise<Attester> {
  const real = await createSimulatedAttester({ rootDir: join(folder.path, 'simulated-root') });
  return {
    ...real,
    name: real.name,
    devices: real.devices,
    simulated: real.simulated,
    close: () => real.close(),
    attest: (nonce, signal) => change(real, nonce, signal),
  };
}

describe('a connection with the sidecar', () => {
  it.each([
    ['all', undefined],
    ['any', 3],
  ] as const)('says in its hello how many nonces are signed at once, where SIGNERS is %s', async (signers, count) => {
    const attester = await createSimulatedAttester({ rootDir: join(folder.path, 'simulated-root'), devices: 3 });
    running = await startSidecar(folder, { attester, signers });
    const hello = await (await connect(running.socket)).next();
    expect([hello.type, hello.signers]).toEqual(['hello', count]);
  });

  it('begins with hello and answers raw with its own hash, a token and evidence', async () => {
    running = await startSidecar(folder);
    const client = await connect(running.socket);
    expect(await client.next()).toMatchObject({
      type: 'hello',
      protocol: 'countersign/6',
      attester: 'simulated',
      devices: [{ arch: 'HOPPER', model: expect.stringContaining('SIMULATED') }],
      simulated: { root: expect.stringContaining('BEGIN CERTIFICATE') },
    });
    client.send({ type: 'attest', id: 'one', raw: RAW });
    const attested = await client.next();
    expect(attested).toMatchObject({
      type: 'attested',
      id: 'one',
      nonce: createHash('sha256').update(RAW).digest('hex'),
    });
    expect(attested.token).toContain('JWT');
    expect(attested.evidence).toHaveLength(1);
    client.send({ type: 'status' });
    expect(await client.next()).toEqual({
      type: 'status',
      attester: 'simulated',
      queued: 0,
      collecting: 0,
      attested_total: 1,
      failed_total: 0,
      trouble: null,
    });
  });

  it.each([
    ['no JSON', 'hello'],
    ['an unknown type', { type: 'sign', nonce: 'ab' }],
    ['a nonce handed to it', { type: 'attest', id: 'x', raw: RAW, nonce: 'ab'.repeat(32) }],
    ['no id', { type: 'attest', raw: RAW }],
    ['an empty id', { type: 'attest', id: '', raw: RAW }],
    ['a hello', { type: 'hello' }],
  ])('refuses a frame with %s and stays', async (_name, frame) => {
    running = await startSidecar(folder);
    const client = await connect(running.socket);
    await client.next();
    client.send(frame);
    expect(await client.next()).toMatchObject({ type: 'failed', id: null, code: 'invalid_frame' });
    client.send({ type: 'attest', id: 'after', raw: RAW });
    expect(await client.next()).toMatchObject({ type: 'attested', id: 'after' });
  });

  it.each(['[]', '{"request":{},"response":{}}', '{"request":{},"response":{},"timestamp":1,"x":1}', '{"request":'])(
    'signs nothing but raw: %s',
    async (raw) => {
      running = await startSidecar(folder);
      const client = await connect(running.socket);
      await client.next();
      client.send({ type: 'attest', id: 'x', raw });
      expect(await client.next()).toMatchObject({ type: 'failed', id: 'x', code: 'invalid_raw' });
    },
  );

  it('collects one at a time, in order of arrival, each answer its own', async () => {
    let at_once = 0;
    let most = 0;
    const attester = await attesterWith(async (real, nonce, signal) => {
      most = Math.max(most, ++at_once);
      await new Promise((resolve) => setTimeout(resolve, 2));
      at_once--;
      return real.attest(nonce, signal);
    });
    running = await startSidecar(folder, { attester });
    const client = await connect(running.socket);
    await client.next();
    for (let n = 0; n < 40; n++) client.send({ type: 'attest', id: `id-${n}`, raw: rawOf(n) });
    for (let n = 0; n < 40; n++) {
      expect(await client.next()).toMatchObject({
        type: 'attested',
        id: `id-${n}`,
        nonce: createHash('sha256').update(rawOf(n)).digest('hex'),
      });
    }
    expect(most).toBe(1);
  });

  it('refuses at once, with a time to retry, when the line is full; and an id that is being worked on', async () => {
    running = await startSidecar(folder, { collectionMs: 200, queueMax: 2 });
    const client = await connect(running.socket);
    await client.next();
    for (let n = 0; n < 4; n++) client.send({ type: 'attest', id: `id-${n}`, raw: rawOf(n) });
    client.send({ type: 'attest', id: 'id-0', raw: rawOf(0) });
    const refused = [await client.next(), await client.next()].sort((a, b) => a.id.localeCompare(b.id));
    expect(refused).toMatchObject([
      { type: 'failed', id: 'id-0', code: 'duplicate_id' },
      { type: 'failed', id: 'id-3', code: 'queue_full', retry_after_ms: expect.any(Number) },
    ]);
    for (let n = 0; n < 3; n++) expect(await client.next()).toMatchObject({ type: 'attested', id: `id-${n}` });
  });

  it('drops what is cancelled and what a gateway that left had asked for', async () => {
    const collected: string[] = [];
    const attester = await attesterWith(async (real, nonce, signal) => {
      await new Promise((resolve) => setTimeout(resolve, 50));
      collected.push(nonce);
      return real.attest(nonce, signal);
    });
    running = await startSidecar(folder, { attester });
    const [stays, leaves] = [await connect(running.socket), await connect(running.socket)];
    await stays.next();
    await leaves.next();
    stays.send({ type: 'attest', id: 'a', raw: rawOf(1) });
    stays.send({ type: 'attest', id: 'b', raw: rawOf(2) });
    leaves.send({ type: 'attest', id: 'a', raw: rawOf(3) });
    stays.send({ type: 'attest', id: 'c', raw: rawOf(4) });
    await new Promise((resolve) => setTimeout(resolve, 20));
    leaves.ws.terminate();
    stays.send({ type: 'cancel', id: 'b' });
    expect(await stays.next()).toMatchObject({ id: 'a' });
    expect(await stays.next()).toMatchObject({ id: 'c' });
    expect(collected).toEqual([1, 4].map((n) => createHash('sha256').update(rawOf(n)).digest('hex')));
  });

  it('says when the deadline has passed, and goes on', async () => {
    running = await startSidecar(folder, { collectionMs: 300, deadlineMs: 100 });
    const client = await connect(running.socket);
    await client.next();
    client.send({ type: 'attest', id: 'late', raw: RAW });
    expect(await client.next()).toMatchObject({ type: 'failed', id: 'late', code: 'deadline_exceeded' });
  });

  it('says what an attester says, with a time to retry where that helps', async () => {
    let calls = 0;
    const attester = await attesterWith(async (real, nonce, signal) => {
      if (nonce === hashOf(0)) throw new AttesterError('collection_failed', 'the GPU is busy', true);
      if (nonce === hashOf(1)) throw new AttesterError('appraisal_failed', 'the verifier said no', false);
      if (nonce === hashOf(2)) throw new TypeError('secret detail');
      if (nonce === hashOf(3) && calls++ === 0) throw new AttesterError('collection_failed', 'busy once', true);
      return real.attest(nonce, signal);
    });
    running = await startSidecar(folder, { attester });
    const client = await connect(running.socket);
    await client.next();
    for (let n = 0; n < 4; n++) client.send({ type: 'attest', id: `${n}`, raw: rawOf(n) });
    const busy = await client.next();
    expect(busy).toMatchObject({ id: '0', code: 'collection_failed', message: 'the GPU is busy' });
    expect(busy.retry_after_ms).toBeGreaterThan(0);
    const second = await client.next();
    expect(second).toMatchObject({ id: '1', code: 'appraisal_failed', message: 'the verifier said no' });
    expect(second).not.toHaveProperty('retry_after_ms');
    expect((await client.next()).message).not.toContain('secret');
    // What passes is tried again before anybody hears of it.
    expect(await client.next()).toMatchObject({ type: 'attested', id: '3' });
  });

  it('logs where an attester failed in an unexpected way, and nothing of what it said', async () => {
    const lines: string[] = [];
    const log = pino({ level: 'trace' }, { write: (line: string) => void lines.push(line) });
    const attester = await attesterWith(async () => {
      throw new TypeError('secret detail\n    at secret (place.ts:1:1)');
    });
    running = await startSidecar(folder, { attester, log });
    const client = await connect(running.socket);
    await client.next();
    client.send({ type: 'attest', id: '0', raw: rawOf(0) });
    expect(await client.next()).toMatchObject({ id: '0', code: 'collection_failed' });
    const line = JSON.parse(lines.find((one) => one.includes('unexpected way')) ?? '{}');
    expect(line).toMatchObject({ level: 50, name: 'TypeError' });
    expect(line.at[0]).toContain('connection.test.ts');
    expect(lines.join('')).not.toContain('secret');
  });

  it('does not answer with evidence over another nonce, or with a broken signature', async () => {
    let last: Awaited<ReturnType<Attester['attest']>> | null = null;
    let calls = 0;
    const attester = await attesterWith(async (real, nonce, signal) => {
      calls++;
      if (calls === 2 && last !== null) return last;
      last = await real.attest(nonce, signal);
      if (calls < 3) return last;
      const report = Buffer.from(last.evidence[0]?.report ?? '', 'base64');
      report[report.length - 1] = (report.at(-1) ?? 0) ^ 1;
      return { ...last, evidence: last.evidence.map((one) => ({ ...one, report: report.toString('base64') })) };
    });
    running = await startSidecar(folder, { attester });
    const client = await connect(running.socket);
    await client.next();
    for (let n = 0; n < 3; n++) client.send({ type: 'attest', id: `${n}`, raw: rawOf(n) });
    expect(await client.next()).toMatchObject({ type: 'attested', id: '0' });
    expect(await client.next()).toMatchObject({ type: 'failed', id: '1', code: 'appraisal_failed' });
    expect(await client.next()).toMatchObject({ type: 'failed', id: '2', code: 'appraisal_failed' });
  });
});

describe("the sidecar's socket", () => {
  const options = (sidecar_socket: string) => ({
    sidecar_socket,
    attest_queue_max: 8,
    attest_deadline_ms: 1_000,
    drain_ms: 5_000,
  });
  const start = async (sidecar_socket: string) =>
    startServer(await createSimulatedAttester({ rootDir: join(folder.path, 'r') }), options(sidecar_socket), SILENT);

  it('is open to its owner and group alone, in a folder that is too', async () => {
    const path = join(folder.path, 'made', 'sidecar.sock');
    const server = await start(path);
    expect((statSync(path).mode & 0o777).toString(8)).toBe('660');
    expect((statSync(join(folder.path, 'made')).mode & 0o777).toString(8)).toBe('750');
    await server.close();
  });

  it('replaces what a killed sidecar left, and nothing else', async () => {
    const path = join(folder.path, 's.sock');
    // A bound socket whose listener is gone: what SIGKILL leaves behind.
    spawnSync(process.execPath, [
      '-e',
      `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`,
    ]);
    expect(statSync(path).isSocket()).toBe(true);
    await (await start(path)).close();

    writeFileSync(path, 'a file');
    await expect(start(path)).rejects.toMatchObject({ code: 'not_a_socket' });
    const live = createServer().listen(join(folder.path, 'live.sock'));
    await new Promise((resolve) => live.once('listening', resolve));
    await expect(start(join(folder.path, 'live.sock'))).rejects.toMatchObject({ code: 'in_use' });
    await new Promise((resolve) => live.close(resolve));
    mkdirSync(join(folder.path, 'd'));
    writeFileSync(join(folder.path, 'd', 'file'), '');
    await expect(start(join(folder.path, 'd', 'file', 'x.sock'))).rejects.toBeInstanceOf(SocketError);
  });
});
