// A sidecar with an attester of choice in this process, asked through the gateway's own client: what a request to it takes.
import { createHash, randomBytes } from 'node:crypto';
import { createSidecar } from '../../gateway/sidecar/client.ts';
import { buildRaw, type Nonce, type Raw } from '../../proto/raw.ts';
import type { Attester } from '../../sidecar/attester.ts';
import { startSidecar, temporaryFolder } from '../../test/harness.ts';

const READY_MS = 10_000;
const ATTEST_MS = 60_000;

export interface Trips {
  /** Attests a raw of its own; how long it took. @throws when it is refused, or the answer is not for it. */
  once(): Promise<number>;
  close(): Promise<void>;
}

/** `root`: the test root under which the attester's devices are certified. */
export async function startTrips(attester: Attester, root: string): Promise<Trips> {
  const folder = temporaryFolder();
  const sidecar = await startSidecar(folder, { attester: { ...attester, simulated: { root } } });
  const options = { socket_path: sidecar.socket, attest_timeout_ms: ATTEST_MS, allow_simulated: true };
  const client = createSidecar(options);
  await client.ready(READY_MS);
  return {
    async once() {
      const { raw, nonce } = freshRaw();
      const start = performance.now();
      const attested = await client.attest(randomBytes(8).toString('hex'), raw, nonce, AbortSignal.timeout(ATTEST_MS));
      const took_ms = performance.now() - start;
      if (attested.nonce !== nonce) throw new Error('the answer is about another nonce');
      return took_ms;
    },
    async close() {
      client.close();
      await sidecar.close();
      folder.remove();
    },
  };
}

function freshRaw(): { raw: Raw; nonce: Nonce } {
  const response = JSON.stringify({ text: randomBytes(512).toString('hex') });
  const raw = buildRaw({ request: '{"model":"bench"}', response, timestamp: 1_700_000_000 });
  return { raw, nonce: createHash('sha256').update(raw, 'utf8').digest('hex') as Nonce };
}
