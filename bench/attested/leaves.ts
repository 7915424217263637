// How much memory answers take that wait in the sidecar for a batch: 10,000 of them behind a collection that takes its time.
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { memory_bytes } from '../system/proc.ts';
import { freePort, pidOf, stop } from '../system/process.ts';
import { startSidecar } from '../targets/ours.ts';

/** Longer than the count takes, and shorter than an attestation may. */
const COLLECTION_MS = 40_000;
const SETTLE_MS = 2_000;

/** In megabytes. */
export async function memoryOfLeaves(folder: string, count: number): Promise<number> {
  const socket = join(folder, `leaves-${await freePort()}.sock`);
  const sidecar = startSidecar('simulated', socket, COLLECTION_MS);
  const ws = await connected(socket);
  const ask = (id: string, batch: string) =>
    ws.send(
      Buffer.from(`{"type":"attest","id":"${id}"${batch}}\n{"request":{"id":"${id}"},"response":{},"timestamp":1}`),
    );
  ask('first', '');
  await delay(SETTLE_MS);
  const before = memory_bytes([pidOf(sidecar)]);
  for (let n = 0; n < count; n++) ask(String(n), ',"batch":"all"');
  await delay(SETTLE_MS);
  const after = memory_bytes([pidOf(sidecar)]);
  ws.terminate();
  await stop(sidecar);
  return (after - before) / 1e6;
}

async function connected(socket: string): Promise<WebSocket> {
  for (let tries = 0; ; tries++) {
    const ws = new WebSocket(`ws+unix://${socket}:/`, { perMessageDeflate: false });
    const opened = await new Promise<boolean>((resolve) => {
      ws.once('message', () => resolve(true));
      ws.once('error', () => resolve(false));
    });
    if (opened) return ws;
    if (tries > 200) throw new Error('the sidecar does not come up');
    await delay(50);
  }
}
