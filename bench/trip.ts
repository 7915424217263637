// One round trip to a sidecar through the gateway's own client: a raw of its own, and an answer that is about it.
import { createHash, randomBytes } from 'node:crypto';
import { createChecker } from '../gateway/attestation/checker.ts';
import { createSidecar } from '../gateway/attestation/sidecar-client.ts';
import { createPermits } from '../gateway/limits/permits.ts';
import { buildRaw, type Nonce } from '../proto/attestation/raw.ts';

const READY_MS = 15_000;
const ATTEST_MS = 60_000;
const OWNER = 'bench';

export interface Asker {
  /** Milliseconds that it took. No two raws are equal. @throws when it is refused, or the answer is about something else. */
  trip(raw_bytes: number): Promise<number>;
  close(): void;
}

/** @throws when no sidecar is there in time. */
export async function connectTo(sidecar_socket: string): Promise<Asker> {
  const checker = createChecker();
  const client = createSidecar({
    sidecar_socket,
    sidecar_uid: null,
    checker,
    attest_timeout_ms: ATTEST_MS,
    permits: createPermits({ max_permits: 1, max_waiting: 1 }),
    max_attestations_waiting: 1,
    allow_simulated: true,
  });
  const close = () => {
    client.close();
    void checker.close();
  };
  await client.ready(READY_MS).catch((error: Error) => {
    close();
    throw error;
  });
  return {
    async trip(raw_bytes) {
      const raw = rawOf(raw_bytes);
      const nonce = createHash('sha256').update(raw).digest('hex') as Nonce;
      const id = randomBytes(8).toString('hex');
      const start = performance.now();
      // The client itself holds the answer to this nonce.
      await client.attest(OWNER, id, raw, nonce, () => {});
      return performance.now() - start;
    },
    close,
  };
}

function rawOf(bytes: number): Buffer {
  const text = 'the answer said "yes"\n'.repeat(Math.ceil(bytes / 22)).slice(0, bytes);
  const response = JSON.stringify({ id: randomBytes(8).toString('hex'), text });
  return Buffer.from(buildRaw({ request: '{"model":"bench"}', response, timestamp: 1_700_000_000 }));
}
