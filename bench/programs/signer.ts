// What the simulated GPU costs by itself, in a process of its own: CPU of one attestation, and of the sidecar's check of it.
import { createHash, randomBytes } from 'node:crypto';
import type { Nonce } from '../../proto/attestation/raw.ts';
import { createSimulatedAttester } from '../../sidecar/attesters/simulated/simulated.ts';
import type { Collected } from '../../sidecar/common/attester.ts';
import { checkCollected } from '../../sidecar/signing/evidence-check.ts';
import { serveCalls } from '../system/calls.ts';

const WARM = 200;
const never = new AbortController().signal;

export interface SignerCalls {
  measure(rootDir: string, times: number): Promise<{ sign_us: number; check_us: number }>;
}

const calls: SignerCalls = {
  async measure(rootDir, times) {
    const twin = await createSimulatedAttester({ rootDir });
    const nonces = Array.from({ length: times + WARM }, () => nonce());
    const signed: Collected[] = [];
    const sign_us = await costOf(nonces, async (one) => void signed.push(await twin.attest(one, never)));
    const check_us = await costOf(nonces, (one, i) => checkCollected(signed[i] as Collected, one, twin));
    return { sign_us, check_us };
  },
};
serveCalls(calls);

function nonce(): Nonce {
  return createHash('sha256').update(randomBytes(32)).digest('hex') as Nonce;
}

/** CPU of all threads for one, in microseconds; the first ones are not counted. */
async function costOf(nonces: readonly Nonce[], work: (nonce: Nonce, i: number) => Promise<void>): Promise<number> {
  let before = process.cpuUsage();
  for (const [i, one] of nonces.entries()) {
    if (i === WARM) before = process.cpuUsage();
    await work(one, i);
  }
  const { user, system } = process.cpuUsage(before);
  return (user + system) / (nonces.length - WARM);
}
