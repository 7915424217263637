// What was attested is free with the next look through the young: nothing old may point at it.
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocketServer } from 'ws';
import type { Sidecar } from '../../../gateway/attestation/interfaces.ts';
import { createSidecar } from '../../../gateway/attestation/sidecar-client.ts';
import { createPermits } from '../../../gateway/limits/concurrency.ts';
import { PROTOCOL, splitBinaryFrame } from '../../../proto/attestation/frames.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import { type Folder, temporaryFolder, UNCHECKED } from '../../support/harness.ts';

const NONCE = 'ab'.repeat(32) as Nonce;
const EACH_BYTES = 20_000;
const MANY = 4_000;
/** Those that were waiting at a look through the young are a few; all that were settled between two are many. */
const FEW = 500;

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as (options: { type: 'minor' }) => void;
const collectYoung = () => gc({ type: 'minor' });

async function held(): Promise<number> {
  // Twice: who lived through the first is young no more. Buffers are given back by a thread of their own.
  for (let i = 0; i < 3; i++) {
    collectYoung();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return process.memoryUsage().arrayBuffers / EACH_BYTES;
}

describe('the sidecar client', () => {
  let folder: Folder;
  let server: Server;
  let client: Sidecar;

  beforeAll(async () => {
    folder = temporaryFolder();
    server = createServer();
    new WebSocketServer({ server }).on('connection', (ws) => {
      const hello = { type: 'hello', protocol: PROTOCOL, attester: 'scripted', devices: [], simulated: null };
      ws.send(JSON.stringify({ ...hello, cpu: null, trouble: null }));
      ws.on('message', (data) => {
        const { id } = JSON.parse(splitBinaryFrame(data as Buffer).head);
        const evidence = [{ arch: 'HOPPER', report: 'AAAA', certificate_chain: 'AAAA' }];
        ws.send(JSON.stringify({ type: 'attested', id, nonce: NONCE, token: 'token', evidence }));
      });
    });
    const sidecar_socket = join(folder.path, 's.sock');
    await new Promise<void>((resolve) => server.listen(sidecar_socket, resolve));
    client = createSidecar({
      sidecar_socket,
      attest_timeout_ms: 5_000,
      allow_simulated: true,
      ...UNCHECKED,
      permits: createPermits({ max_permits: 4, max_waiting: 64 }),
    });
    await client.ready(5_000);
  });
  afterAll(() => {
    client.close();
    server.closeAllConnections();
    server.close();
    folder.remove();
  });

  it('holds nothing of what was attested', async () => {
    const before = await held();
    let asked = 0;
    const attest = async () => {
      while (asked < MANY) {
        const id = `id ${asked++}`;
        await client.attest('owner', id, Buffer.alloc(EACH_BYTES), NONCE, () => {});
        if (asked % 100 === 0) collectYoung();
      }
    };
    await Promise.all(Array.from({ length: 64 }, attest));
    expect((await held()) - before).toBeLessThan(FEW);
  });
});
