import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { stripVTControlCharacters } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '../../gateway/telemetry/log.ts';
import { prettyLine } from '../../node/log.ts';
import { createLog as createSidecarLog } from '../../sidecar/server/server.ts';
import { answer, type Backend, chatAnswer, chatStream, startBackend } from '../support/backend.ts';
import { ask, CHAT, chat } from '../support/client.ts';
import { eventually } from '../support/harness.ts';
import { type RunningProcess, startProcess } from '../support/process.ts';

type Out = Parameters<typeof createLog>[1];

const CANARY = 'xyzzy';
const messages = [{ role: 'user', content: `${CANARY}-prompt` }];
const folder = mkdtempSync(join(tmpdir(), 'countersign-log-'));
let backend: Backend;
let sidecar: RunningProcess;
let gateway: RunningProcess;
let url: string;

type Line = Record<string, unknown>;
/** @throws {SyntaxError} unless every line is JSON. */
const lines = (process: RunningProcess): Line[] =>
  process
    .output()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line);

async function lineOf(id: unknown, process = gateway): Promise<Line> {
  let found: Line | undefined;
  await eventually(() => {
    found = lines(process).find((line) => line.id === id);
    return found !== undefined;
  });
  return found ?? {};
}

beforeAll(async () => {
  backend = await startBackend();
  const socket = { SIDECAR_SOCKET: join(folder, 'sidecar.sock') };
  sidecar = startProcess('demo/twin/main.ts', ['--root-dir', join(folder, 'root')], socket);
  gateway = startProcess('gateway/main.ts', [], {
    ...socket,
    PORT: '0',
    BACKEND_URL: backend.url,
    BACKEND_API_KEY: `${CANARY}-backend-key`,
    ALLOW_SIMULATED: '1',
  });
  const port = () => /"port":(\d+)/.exec(gateway.output())?.[1];
  await eventually(() => port() !== undefined && gateway.output().includes('"connected"'), 15_000);
  url = `http://127.0.0.1:${port()}`;
});
afterAll(async () => {
  await gateway.kill('SIGTERM');
  await sidecar.kill('SIGTERM');
  await backend.close();
  rmSync(folder, { recursive: true, force: true });
});

describe('the log', () => {
  it('has one line a request: id, route, status, times, and how its attestation went', async () => {
    backend.script = chatStream([`${CANARY}-answer`, 'b'], 20);
    const got = await chat(url, { ...CHAT, messages, stream: true, tee: true });
    const id = got.headers['x-request-id'];
    const line = await lineOf(id);
    expect(line).toMatchObject({
      level: 30,
      name: 'gateway',
      method: 'POST',
      route: '/v1/chat/completions',
      status: 200,
      tee: 'attested',
    });
    // The members that pino gives every line of its own.
    const listening = lines(gateway).find((one) => one.msg === 'listening');
    expect(line).toMatchObject({ pid: listening?.pid, hostname: listening?.hostname });
    expect(Math.abs((line.time as number) - Date.now())).toBeLessThan(60_000);
    expect(line.first_ms).toBeGreaterThan(0);
    expect(line.attest_ms).toBeGreaterThan(0);
    expect(line.ms).toBeGreaterThanOrEqual((line.first_ms as number) + (line.attest_ms as number));
    expect(lines(gateway).filter((one) => one.id === id)).toHaveLength(1);
    const beside = await lineOf(id, sidecar);
    expect(beside).toMatchObject({ level: 30, name: 'sidecar', code: 'attested', msg: 'attest' });
    for (const time of ['ms', 'queue_ms', 'collection_ms', 'appraisal_ms', 'check_ms'])
      expect(beside[time], time).toBeTypeOf('number');
  });

  it('names the code of an error, and has no times of what did not happen', async () => {
    const refused = await lineOf((await chat(url, '{')).headers['x-request-id']);
    expect(refused).toMatchObject({ status: 400, code: 'invalid_json' });
    for (const absent of ['first_ms', 'attest_ms', 'tee', 'key', 'trace_id'])
      expect(refused).not.toHaveProperty(absent);
    backend.script = answer('not JSON');
    const failed = await lineOf((await chat(url, { ...CHAT, tee: true })).headers['x-request-id']);
    expect(failed).toMatchObject({ status: 502, code: 'backend_bad_response', tee: 'failed' });
  });

  it('has no line of probes and scrapers, whose answers change nothing', async () => {
    const probes = ['/health', '/health?require=tee', '/metrics', '/metrics/picker'];
    for (const path of probes) expect((await ask(url + path, { method: 'GET' })).status).toBe(200);
    await lineOf((await ask(`${url}/openapi.json`, { method: 'GET' })).headers['x-request-id']);
    const routes = lines(gateway).map((line) => line.route);
    expect(routes.filter((route) => /health|metrics/.test(String(route)))).toEqual([]);
    expect(routes).toContain('/openapi.json');
  });

  it('never holds a prompt, an answer, a key, a path or a query', async () => {
    backend.script = chatAnswer(`${CANARY}-answer`);
    const headers = { authorization: `Bearer ${CANARY}-key`, 'user-agent': CANARY, 'x-custom': CANARY };
    for (const more of [{}, { tee: true }, { n: CANARY }]) await chat(url, { ...CHAT, messages, ...more }, headers);
    backend.script = answer(`{"error":{"message":"${CANARY} in the backend's words"}}`, 400);
    await chat(url, { ...CHAT, messages, model: CANARY }, headers);
    backend.script = answer(CANARY);
    await chat(url, { ...CHAT, messages, tee: true }, headers);
    await ask(`${url}/~sev_gpu@1.0/verify`, { body: `{"raw":"${CANARY}"}` });
    const last = await ask(`${url}/v1/${CANARY}?${CANARY}=1`, { method: 'GET', headers });
    await lineOf(last.headers['x-request-id']);
    expect(gateway.output() + sidecar.output()).not.toContain(CANARY);
  });

  it('names a model that the backend lists, no other text, and the nonce of what was attested', async () => {
    backend.script = chatAnswer('hello');
    const got = await chat(url, { ...CHAT, tee: true });
    const line = await lineOf(got.headers['x-request-id']);
    expect(line).toMatchObject({ model: 'scripted', nonce: got.json().attestation.nonce });
    const named = await lineOf((await chat(url, { ...CHAT, model: `${CANARY}-model` })).headers['x-request-id']);
    expect(named).toMatchObject({ model: 'other', status: 200 });
    expect(gateway.output()).not.toContain(CANARY);
    backend.script = answer('{"error":{"message":"no such model"}}', 404);
    const refused = await lineOf((await chat(url, { ...CHAT, model: 'refused' })).headers['x-request-id']);
    expect(refused).toMatchObject({ model: 'other', status: 404 });
  });
});

describe('lines', () => {
  const written: string[] = [];
  const out = { isTTY: false, write: (text: string) => written.push(text) > 0 };

  it('are written together, soon, and what is left when the process ends', async () => {
    let exit = () => {};
    const log = createLog('info', out as unknown as NodeJS.WriteStream, (flush) => {
      exit = flush;
    });
    for (let i = 0; i < 3; i++) log.info({ i });
    expect(written).toHaveLength(0);
    await eventually(() => written.length === 1, 1_000);
    expect(
      written[0]
        ?.trim()
        .split('\n')
        .map((line) => JSON.parse(line).i),
    ).toEqual([0, 1, 2]);
    log.info({ i: 3 });
    exit();
    expect(written).toHaveLength(2);
    for (let i = 0; i < 400; i++) log.info({ i, some: 'text that makes the line longer' });
    expect(written.length).toBeGreaterThan(2);
  });
});

describe('on a terminal', () => {
  const terminal = () => Object.assign(new PassThrough(), { isTTY: true }) as unknown as NodeJS.WriteStream;

  it.each([
    ['gateway', createLog],
    ['sidecar', createSidecarLog],
  ])('the %s writes for people', (name, create) => {
    const out = terminal();
    create('info', out).warn({ state: 'connecting', reason: 'two words' }, 'sidecar');
    const text = String((out as unknown as PassThrough).read());
    const plain = stripVTControlCharacters(text);
    expect(plain).toMatch(/^\d\d:\d\d:\d\d\.\d{3} warn {2}/);
    expect(plain).toContain(` ${name} sidecar state=connecting reason="two words"\n`);
  });

  it('what is no log line stays as it is, and nothing in a value can move the cursor', () => {
    expect(prettyLine('Killed\n')).toBe('Killed\n');
    expect(prettyLine('{"a":1}\n')).toBe('{"a":1}\n');
    expect(prettyLine('{"level":30,"time":0,"x":"\\u001b[2J\\n"}')).not.toContain('\u001b[2J');
  });
});

describe('lines on their way out', () => {
  /** What a log writes, to a reader that has so many bytes still to take. */
  function written(unread_bytes: number): string[] {
    const writes: string[] = [];
    const out = {
      isTTY: false,
      writableLength: unread_bytes,
      write: (text: string) => {
        writes.push(text);
        return true;
      },
    };
    let end = () => {};
    const log = createLog('info', out as never, (flush) => {
      end = flush;
    });
    for (let i = 0; i < 200; i++) log.info({ i }, 'x'.repeat(i));
    end();
    return writes;
  }

  it('leave in pieces that a pipe takes whole, so that those of several processes stay apart', () => {
    const writes = written(0);
    for (const text of writes) expect([text.length <= 4096, text.at(-1)]).toEqual([true, '\n']);
    const lines = writes.join('').trimEnd().split('\n');
    expect(lines.map((line) => JSON.parse(line).i)).toEqual(Array.from({ length: 200 }, (_, i) => i));
    expect(writes.length).toBeLessThan(lines.length / 5);
  });

  it('go one piece at a time to a reader that is slow, all of them', async () => {
    const pieces: string[] = [];
    const out = {
      isTTY: false,
      writableLength: 0,
      write(text: string, taken: () => void) {
        expect(out.writableLength).toBe(0);
        pieces.push(text);
        out.writableLength = text.length;
        setTimeout(() => {
          out.writableLength = 0;
          taken();
        }, 2);
        return false;
      },
    };
    const log = createLog('info', out as never, () => {});
    for (let i = 0; i < 200; i++) log.info({ i }, 'x'.repeat(i));
    const lines = () => pieces.join('').trimEnd().split('\n');
    await eventually(() => lines().length === 200);
    expect(lines().map((line) => JSON.parse(line).i)).toEqual(Array.from({ length: 200 }, (_, i) => i));
  });

  it('after one that a full disk took half of begin on a line of their own', async () => {
    const written: string[] = [];
    const out = new PassThrough();
    out.on('data', (chunk) => written.push(String(chunk)));
    const exits: (() => void)[] = [];
    const log = createLog('info', out as unknown as Out, (flush) => exits.push(flush));
    log.info('one');
    exits[0]?.();
    out.emit('error', new Error('ENOSPC'));
    log.info('two');
    exits[0]?.();
    log.info('three');
    exits[0]?.();
    await eventually(() => written.length === 3);
    expect(written.map((chunk) => chunk.startsWith('\n'))).toEqual([false, true, false]);
  });

  it('are lost when nobody takes them, and memory does not grow', () => {
    expect(written(8 * 1024 * 1024)).toEqual([]);
  });
});
