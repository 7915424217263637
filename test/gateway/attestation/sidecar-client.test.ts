import { mkdirSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { createServer as createNetServer, Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import type { Attested, Sidecar } from '../../../gateway/attestation/interfaces.ts';
import { createSidecar } from '../../../gateway/attestation/sidecar-client.ts';
import { createPermits } from '../../../gateway/limits/concurrency.ts';
import { PROTOCOL, splitBinaryFrame } from '../../../proto/attestation/frames.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import { eventually, type Folder, temporaryFolder, UNCHECKED } from '../../support/harness.ts';

let folder: Folder;
let path: string;
let client: Sidecar | null = null;
const servers: Server[] = [];

const NONCE = 'ab'.repeat(32) as Nonce;
const RAW = Buffer.from('{"request":{},"response":{},"timestamp":1}');
const never = () => {};
const HELLO = {
  type: 'hello',
  protocol: PROTOCOL,
  attester: 'scripted',
  devices: [],
  simulated: null,
  cpu: null,
  trouble: null,
};
const attested = (id: string) => ({
  type: 'attested',
  id,
  nonce: NONCE,
  token: `token of ${id}`,
  evidence: [{ arch: 'HOPPER', report: 'AAAA', certificate_chain: 'AAAA' }],
});
const tokenOf = ({ members }: Attested): string => JSON.parse(`{${members.json}}`).token;

beforeEach(() => {
  folder = temporaryFolder();
  path = join(folder.path, 's.sock');
});
afterEach(async () => {
  client?.close();
  for (const server of servers.splice(0)) {
    server.closeAllConnections?.();
    server.close();
  }
  folder.remove();
});

/** A client of whatever listens on `path`. */
function connectClient(options: Partial<Parameters<typeof createSidecar>[0]> = {}): Sidecar {
  return createSidecar({
    sidecar_socket: path,
    attest_timeout_ms: 5_000,
    allow_simulated: true,
    ...UNCHECKED,
    ...options,
  });
}

/** A sidecar that does what the test says with each frame. */
async function scripted(onFrame: (frame: { type: string; id: string }, ws: WebSocket) => void): Promise<() => void> {
  const server = createServer();
  const sockets = new WebSocketServer({ server });
  sockets.on('connection', (ws) => {
    ws.send(JSON.stringify(HELLO));
    ws.on('message', (data, isBinary) =>
      onFrame(JSON.parse(isBinary ? splitBinaryFrame(data as Buffer).head : String(data)), ws),
    );
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  servers.push(server);
  return () => {
    for (const ws of sockets.clients) ws.terminate();
    server.close();
    rmSync(path, { force: true });
  };
}

describe('the sidecar client', () => {
  it('asks in one write for what is asked for in one turn, and again in the next', async () => {
    await scripted((frame, ws) => ws.send(JSON.stringify(attested(frame.id))));
    client = connectClient();
    await client.ready(5_000);
    for (const turn of ['a', 'b']) {
      const written = vi.spyOn(Socket.prototype, '_writev' as 'write');
      const ids = Array.from({ length: 10 }, (_, n) => `${turn}${n}`);
      const asked = ids.map((id) => (client as Sidecar).attest('owner', id, RAW, NONCE, never));
      expect((await Promise.all(asked)).map(tokenOf)).toEqual(ids.map((id) => `token of ${id}`));
      // A WebSocket frame is a head and its payload.
      const pieces = written.mock.calls.map(([chunks]) => (chunks as unknown as unknown[]).length);
      written.mockRestore();
      expect(Math.max(...pieces)).toBe(2 * ids.length);
    }
  });

  it('asks for the next one while what came is being checked', async () => {
    const seen: string[] = [];
    await scripted((frame, ws) => {
      seen.push(frame.id);
      ws.send(JSON.stringify(attested(frame.id)));
    });
    let checked = () => {};
    const checking = new Promise<{ devices: string[] }>((resolve) => {
      checked = () => resolve({ devices: [] });
    });
    const permits = createPermits({ max_permits: 1, max_waiting: 1 });
    client = connectClient({ permits, checker: { ...UNCHECKED.checker, check: () => checking } });
    await client.ready(5_000);
    const asked = ['a', 'b'].map((id) => (client as Sidecar).attest('owner', id, RAW, NONCE, never));
    await eventually(() => seen.length === 2);
    checked();
    expect((await Promise.all(asked)).map(tokenOf)).toEqual(['token of a', 'token of b']);
  });

  it.each(['a b', 'c#', 'q?', 'p%41', 'ü', 'c:d'])('connects to a socket in a folder named %s', async (name) => {
    mkdirSync(join(folder.path, name));
    path = join(folder.path, name, 's.sock');
    await scripted(never);
    client = connectClient();
    await expect(client.ready(5_000)).resolves.toBeUndefined();
  });

  it('survives a time to retry that falls into a connection that is not there yet', async () => {
    const kill = await scripted((frame, ws) =>
      ws.send(
        JSON.stringify({ type: 'failed', id: frame.id, code: 'queue_full', message: 'full', retry_after_ms: 150 }),
      ),
    );
    client = connectClient();
    await client.ready(2_000);
    const asked = client.attest('owner', 'one', RAW, NONCE, never);
    await new Promise((resolve) => setTimeout(resolve, 50));
    kill();
    // Its successor accepts and says nothing: the client hangs in its handshake when the time to retry comes.
    const silent = createNetServer(() => {});
    await new Promise<void>((resolve) => silent.listen(path, resolve));
    await new Promise((resolve) => setTimeout(resolve, 400));
    expect(client.state).toBe('connecting');
    client.close();
    await expect(asked).rejects.toMatchObject({ code: 'attestation_unavailable' });
    silent.close();
  });

  it('asks once after a reconnect, whatever was to be retried', async () => {
    const kill = await scripted((frame, ws) =>
      ws.send(
        JSON.stringify({ type: 'failed', id: frame.id, code: 'queue_full', message: 'full', retry_after_ms: 300 }),
      ),
    );
    client = connectClient();
    await client.ready(2_000);
    const asked = client.attest('owner', 'one', RAW, NONCE, never);
    await new Promise((resolve) => setTimeout(resolve, 50));
    kill();
    const seen: string[] = [];
    await scripted((frame, ws) => {
      const working = seen.includes(frame.id);
      seen.push(frame.id);
      if (working) ws.send(JSON.stringify({ type: 'failed', id: frame.id, code: 'duplicate_id', message: 'at work' }));
      else setTimeout(() => ws.send(JSON.stringify(attested(frame.id))), 500);
    });
    expect(tokenOf(await asked)).toBe('token of one');
    expect(seen).toEqual(['one']);
  });

  it('does not ask again before a time to retry that is longer than it waits at all', async () => {
    let asked = 0;
    await scripted((frame, ws) => {
      if (frame.type === 'attest') asked++;
      const failed = { type: 'failed', id: frame.id, code: 'queue_full', message: 'full', retry_after_ms: 2 ** 40 };
      ws.send(JSON.stringify(failed));
    });
    client = connectClient({ attest_timeout_ms: 300 });
    await client.ready(2_000);
    await expect(client.attest('owner', 'one', RAW, NONCE, never)).rejects.toMatchObject({
      code: 'attestation_unavailable',
    });
    expect(asked).toBe(1);
  });

  it('refuses an answer over another nonce', async () => {
    await scripted((frame, ws) => ws.send(JSON.stringify({ ...attested(frame.id), nonce: 'cd'.repeat(32) })));
    client = connectClient();
    await client.ready(2_000);
    await expect(client.attest('owner', 'one', RAW, NONCE, never)).rejects.toMatchObject({
      code: 'attestation_unavailable',
    });
  });

  it.each([
    ['has turned out to be simulated', { ...HELLO, simulated: { root: 'root' } }, 'refused'],
    ['breaks the protocol', { type: 'nothing' }, 'connecting'],
  ])('takes nothing more from a sidecar that %s, however soon it comes', async (_, frame, state) => {
    await scripted((asked, ws) => {
      // One read of the client's.
      for (const next of [frame, attested(asked.id), HELLO]) ws.send(JSON.stringify(next));
      servers[0]?.close();
    });
    client = connectClient({ attest_timeout_ms: 600, allow_simulated: false });
    await client.ready(2_000);
    await expect(client.attest('owner', 'one', RAW, NONCE, never)).rejects.toMatchObject({
      code: 'attestation_unavailable',
    });
    expect(client.state).toBe(state);
  });

  it('does not take trouble for readiness', async () => {
    const server = createServer();
    const sockets = new WebSocketServer({ server });
    sockets.on('connection', (ws) =>
      ws.send(JSON.stringify({ ...HELLO, trouble: { code: 'collection_failed', message: 'CC mode is off' } })),
    );
    servers.push(server);
    client = connectClient();
    const ready = client.ready(3_000);
    await new Promise<void>((resolve) => server.listen(path, resolve));
    await expect(ready).rejects.toThrow('CC mode is off');
  });
});
