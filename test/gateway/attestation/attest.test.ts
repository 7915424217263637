// The time that an attestation may take begins when the answer has ended: what it waits for before the sidecar is asked counts.
import { performance } from 'node:perf_hooks';
import { afterAll, describe, expect, it } from 'vitest';
import { createAttestor } from '../../../gateway/attestation/attest.ts';
import type { Store } from '../../../gateway/attestation/interfaces.ts';
import { createSidecar } from '../../../gateway/attestation/sidecar-client.ts';
import type { TeeExchange } from '../../../gateway/exchange/relay.ts';
import { type DraftInput, draft } from '../../../gateway/threads/jobs.ts';
import type { Offload } from '../../../gateway/threads/offload.ts';
import { temporaryFolder, UNCHECKED } from '../../support/harness.ts';

const EXCHANGE = {
  owner: 'owner',
  id: 'one',
  request: '{"tee":true}',
  watch: { attestationStarted() {}, attested() {} },
} as unknown as TeeExchange;
const ANSWER = { body: Buffer.from('{"id":"c"}') };
const TIMEOUT_MS = 1_500;
const LATE = { code: 'attestation_unavailable', message: 'The attestation did not come in time (ATTEST_TIMEOUT_MS).' };

const folder = temporaryFolder();
afterAll(() => folder.remove());

function attestorWith(drafted: (parts: DraftInput) => ReturnType<Offload['draft']>) {
  const sidecar = createSidecar({
    sidecar_socket: `${folder.path}/nobody.sock`,
    attest_timeout_ms: TIMEOUT_MS,
    allow_simulated: true,
    ...UNCHECKED,
  });
  const offload = { draft: drafted } as unknown as Offload;
  const attestor = createAttestor(offload, sidecar, {} as Store, TIMEOUT_MS);
  return { attestor, sidecar };
}

async function timeOf(run: () => Promise<unknown>): Promise<number> {
  const began_ms = performance.now();
  await run();
  return performance.now() - began_ms;
}

describe('the time that an attestation may take', () => {
  it('ends the wait for a draft', async () => {
    const { attestor, sidecar } = attestorWith(() => new Promise(() => {}));
    await expect(attestor.attest(EXCHANGE, ANSWER, () => {})).rejects.toMatchObject(LATE);
    sidecar.close();
  });

  it('is for draft and sidecar together', async () => {
    const { attestor, sidecar } = attestorWith(
      (parts) => new Promise((resolve) => setTimeout(() => resolve(draft(parts)), TIMEOUT_MS * 0.75)),
    );
    const took_ms = await timeOf(() => expect(attestor.attest(EXCHANGE, ANSWER, () => {})).rejects.toMatchObject(LATE));
    expect(took_ms).toBeLessThan(TIMEOUT_MS * 1.7);
    sidecar.close();
  });
});
