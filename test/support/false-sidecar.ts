// A sidecar that somebody else wrote: it speaks the protocol, has the software twin sign what it is asked, and may lie about it.
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { WebSocketServer } from 'ws';
import { createSimulatedAttester } from '../../demo/twin/gpu.ts';
import type { Batch } from '../../proto/attestation/batch.ts';
import { PROTOCOL, splitBinaryFrame } from '../../proto/attestation/frames.ts';
import { type Nonce, splitRaw } from '../../proto/attestation/raw.ts';
import type { Attester, Collected } from '../../sidecar/common/attester.ts';
import type { Sessions } from '../../sidecar/cpu/sessions.ts';
import type { Folder } from './harness.ts';

type Session = NonNullable<Sessions['current']>;

export interface Lies {
  /** In place of what the twin signed over `nonce`. */
  readonly answer?: (honest: Collected, nonce: Nonce, twin: Attester) => Collected | Promise<Collected>;
  /** Laid over the true hello. */
  readonly hello?: object;
  /** A session frame behind the hello, and in each answer what was signed in it. */
  readonly session?: Session;
  /** It signs a raw that names no session, or another one. */
  readonly anySession?: boolean;
  readonly signed?: (honest: Collected, nonce: Nonce) => Promise<object | null>;
  /** A nonce that commits to the digest of raw in place of that digest, and how. */
  readonly batch?: (digest: Nonce) => { readonly nonce: Nonce; readonly batch: Batch };
  /** In place of any answer. */
  readonly failed?: object;
  /** The twin, where a test has it sign something before. */
  readonly twin?: Attester;
  /** As soon as it has said hello. */
  readonly leaves?: boolean;
  readonly devices?: number;
}

export interface FalseSidecar {
  readonly socket: string;
  readonly twin: Attester;
  /** Connections, and requests to attest, so far. */
  readonly seen: { connections: number; asked: number };
  close(): Promise<void>;
}

const names = (raw: Uint8Array, statement: string) =>
  splitRaw(Buffer.from(raw).toString()).session === createHash('sha256').update(statement).digest('hex');

/** Its socket is `sidecar.sock` in the folder, as an honest one's. */
export async function startFalseSidecar(folder: Folder, lies: Lies = {}): Promise<FalseSidecar> {
  const socket = join(folder.path, 'sidecar.sock');
  const twin =
    lies.twin ??
    (await createSimulatedAttester({
      rootDir: join(folder.path, 'false-root'),
      ...(lies.devices === undefined ? {} : { devices: lies.devices }),
    }));
  const { devices, simulated } = twin;
  const hello = { type: 'hello', protocol: PROTOCOL, attester: 'false', devices, simulated, cpu: null, trouble: null };
  const seen = { connections: 0, asked: 0 };
  const server = createServer();
  const sockets = new WebSocketServer({ server });
  sockets.on('connection', (ws) => {
    seen.connections++;
    ws.on('error', () => ws.terminate());
    ws.send(JSON.stringify({ ...hello, ...lies.hello }));
    if (lies.session !== undefined) ws.send(JSON.stringify({ type: 'session', id: null, ...lies.session }));
    if (lies.leaves === true) ws.close();
    ws.on('message', async (data, isBinary) => {
      if (!isBinary) return;
      seen.asked++;
      const { head, payload: carried } = splitBinaryFrame(data as Buffer);
      const { id } = JSON.parse(head) as { id: string };
      if (lies.failed !== undefined) return ws.send(JSON.stringify({ type: 'failed', id, ...lies.failed }));
      if (lies.session !== undefined && lies.anySession !== true && !names(carried, lies.session.statement))
        return ws.send(JSON.stringify({ type: 'failed', id, code: 'session_changed', message: 'another session' }));
      const digest = createHash('sha256').update(carried).digest('hex') as Nonce;
      const { nonce, batch } = lies.batch?.(digest) ?? { nonce: digest };
      const honest = await twin.attest(nonce, new AbortController().signal);
      const { token, evidence } = (await lies.answer?.(honest, nonce, twin)) ?? honest;
      const cpu = (await lies.signed?.(honest, nonce)) ?? undefined;
      ws.send(JSON.stringify({ type: 'attested', id, nonce, token, evidence, batch, cpu }));
    });
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  return {
    socket,
    twin,
    seen,
    async close() {
      for (const ws of sockets.clients) ws.terminate();
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
