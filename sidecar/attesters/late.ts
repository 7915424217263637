// Stands in for an attester that cannot run yet (no driver, CC mode off): the sidecar stays up, says why, and makes it when it can.
import type { Nonce } from '../../proto/raw.ts';
import type { Attester } from '../attester.ts';

/** @param make throws an AttesterError for as long as the attester cannot run. Called at each attestation until it returns. */
export function lateAttester(name: string, make: () => Promise<Attester>): Attester {
  const none: Attester['devices'] = [];
  let made: Attester | null = null;
  return {
    simulated: null,
    get name() {
      return made?.name ?? name;
    },
    get devices() {
      return made?.devices ?? none;
    },
    get token_keys() {
      return made?.token_keys;
    },
    async attest(nonce: Nonce, signal: AbortSignal) {
      made ??= await make();
      return made.attest(nonce, signal);
    },
    close: async () => made?.close(),
  };
}
