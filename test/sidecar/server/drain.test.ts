import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { createSimulatedAttester } from '../../../demo/twin/gpu.ts';
import type { Attester } from '../../../sidecar/common/attester.ts';
import { startServer } from '../../../sidecar/server/server.ts';
import { eventually, type Folder, SILENT, temporaryFolder } from '../../support/harness.ts';

const COLLECTION_MS = 300;

let folder: Folder;
let attester: Attester;
let gateway: WebSocket;
// biome-ignore lint/suspicious/noExplicitAny: frames of every shape
let frames: any[];
let let_go: number;

const socket = () => join(folder.path, 'sidecar.sock');
const ask = (id: string) =>
  gateway.send(JSON.stringify({ type: 'attest', id, raw: `{"request":{"id":"${id}"},"response":{},"timestamp":1}` }));
const answers = () => frames.filter((frame) => frame.id !== undefined).map(({ type, id, code }) => [id, code ?? type]);

async function start(drain_ms: number) {
  const limits = { attest_queue_max: 8, attest_deadline_ms: 10_000, drain_ms };
  const server = await startServer(attester, { sidecar_socket: socket(), ...limits }, SILENT);
  gateway = new WebSocket(`ws+unix://${socket()}:/`, { perMessageDeflate: false });
  gateway.on('message', (data) => frames.push(JSON.parse(String(data))));
  await new Promise((resolve) => gateway.once('message', resolve));
  return server;
}

/** A connection that is no WebSocket. */
async function say(text: string): Promise<Socket> {
  const silent = connect(socket());
  silent.on('error', () => {}).resume();
  await new Promise<void>((resolve) => silent.once('connect', resolve));
  silent.write(text);
  return silent;
}

beforeEach(async () => {
  folder = temporaryFolder();
  frames = [];
  let_go = 0;
  const real = await createSimulatedAttester({ rootDir: join(folder.path, 'root'), collectionMs: COLLECTION_MS });
  attester = {
    ...real,
    close() {
      let_go++;
      return real.close();
    },
  };
});
afterEach(() => {
  gateway.terminate();
  folder.remove();
});

describe('a sidecar that is told to stop', () => {
  it('answers what it was asked before, refuses what comes later with the word to ask again, then closes', async () => {
    const server = await start(5_000);
    ask('before');
    await new Promise((resolve) => setTimeout(resolve, 50));
    const closed = new Promise<number>((resolve) => gateway.once('close', resolve));
    const stopped = server.close();
    ask('later');
    expect(await closed).toBe(1001);
    await stopped;
    expect(answers()).toEqual([
      ['later', 'shutting_down'],
      ['before', 'attested'],
    ]);
    expect(frames.find((frame) => frame.id === 'later').retry_after_ms).toBeGreaterThan(0);
  });

  it('lets nobody connect any more', async () => {
    const server = await start(5_000);
    ask('before');
    const stopped = server.close();
    const refused = new WebSocket(`ws+unix://${socket()}:/`);
    expect(await new Promise((resolve) => refused.once('error', resolve).once('open', resolve))).toMatchObject({
      code: 'ENOENT',
    });
    await stopped;
  });

  it('does not wait past its deadline', async () => {
    const server = await start(50);
    ask('slow');
    const started = performance.now();
    await server.close();
    expect(performance.now() - started).toBeLessThan(COLLECTION_MS);
    expect(answers()).toEqual([]);
  });

  it.each([
    ['nothing', ''],
    ['half an HTTP head', 'GET / HTTP/1.1\r\nHost: x\r\n'],
    ['a request that is no upgrade', 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'],
  ])('waits for no connection that said %s, and still answers what a gateway asked', async (_name, text) => {
    const server = await start(5_000);
    const silent = await say(text);
    ask('before');
    await new Promise((resolve) => setTimeout(resolve, 50));
    const gone = new Promise((resolve) => silent.once('close', resolve));
    const closed = new Promise<number>((resolve) => gateway.once('close', resolve));
    let stopped = false;
    void server.close().then(() => {
      stopped = true;
    });
    await gone;
    expect(answers()).toEqual([]);
    expect(await closed).toBe(1001);
    expect(answers()).toEqual([['before', 'attested']]);
    await eventually(() => stopped, 2_000);
    expect(let_go).toBe(1);
  });

  it('is gone at once when nobody asks for anything', async () => {
    const server = await start(5_000);
    const started = performance.now();
    await server.close();
    expect(performance.now() - started).toBeLessThan(4_000);
  });
});
