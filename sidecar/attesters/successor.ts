// An attester that gives way: nvtrust, until a driver signs what NVIDIA's Python SDK cannot read; then nvattest, which can.
import type { Nonce } from '../../proto/raw.ts';
import { type Attester, AttesterError } from '../attester.ts';

/**
 * @param make the successor, called when `first` fails with `new_format`, and again at each attestation until it returns.
 * @param onSwitch told once: for the log.
 */
export function withSuccessor(first: Attester, make: () => Promise<Attester>, onSwitch: () => void): Attester {
  let current = first;
  let closed = false;

  async function succeed(reason: AttesterError): Promise<void> {
    const next = await make().catch((cause: unknown) => {
      if (!(cause instanceof AttesterError)) throw cause;
      throw new AttesterError(reason.code, `${reason.message}. ${cause.message}`, false, { cause });
    });
    if (closed) return next.close();
    current = next;
    onSwitch();
    await first.close();
  }

  return {
    get name() {
      return current.name;
    },
    get devices() {
      return current.devices;
    },
    get simulated() {
      return current.simulated;
    },
    async attest(nonce: Nonce, signal: AbortSignal) {
      try {
        return await current.attest(nonce, signal);
      } catch (error) {
        if (current !== first || !(error instanceof AttesterError) || !error.message.startsWith('new_format: '))
          throw error;
        await succeed(error);
        return current.attest(nonce, signal);
      }
    },
    async close() {
      closed = true;
      await current.close();
    },
  };
}
