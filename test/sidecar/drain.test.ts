import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import type { Attester } from '../../sidecar/attester.ts';
import { createSimulatedAttester } from '../../sidecar/attesters/simulated.ts';
import { startServer } from '../../sidecar/server.ts';
import { type Folder, SILENT, temporaryFolder } from '../harness.ts';

const COLLECTION_MS = 300;

let folder: Folder;
let attester: Attester;
let gateway: WebSocket;
// biome-ignore lint/suspicious/noExplicitAny: frames of every shape
let frames: any[];

const socket = () => join(folder.path, 'sidecar.sock');
const ask = (id: string) =>
  gateway.send(JSON.stringify({ type: 'attest', id, raw: `{"request":{"id":"${id}"},"response":{},"timestamp":1}` }));
const answers = () => frames.filter((frame) => frame.id !== undefined).map(({ type, id, code }) => [id, code ?? type]);

async function start(drain_ms: number) {
  const limits = { attest_queue_max: 8, attest_deadline_ms: 10_000, drain_ms };
  const server = await startServer(attester, { socket_path: socket(), ...limits }, SILENT);
  gateway = new WebSocket(`ws+unix://${socket()}:/`, { perMessageDeflate: false });
  gateway.on('message', (data) => frames.push(JSON.parse(String(data))));
  await new Promise((resolve) => gateway.once('message', resolve));
  return server;
}

beforeEach(async () => {
  folder = temporaryFolder();
  frames = [];
  attester = await createSimulatedAttester({ rootDir: join(folder.path, 'root'), collectionMs: COLLECTION_MS });
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

  it('is gone at once when nobody asks for anything', async () => {
    const server = await start(5_000);
    const started = performance.now();
    await server.close();
    expect(performance.now() - started).toBeLessThan(1_000);
  });
});
