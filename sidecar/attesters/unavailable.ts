// Stands in for an attester that cannot run yet (no driver, CC mode off): the sidecar stays up, says why, and makes it when it can.
import type { Nonce } from '../../proto/raw.ts';
import { until } from '../driver/lock.ts';
import type { Attester } from './attester.ts';

/** @param make throws an AttesterError for as long as the attester cannot run. Called at attestations until it returns, once at a time. */
export function unavailableAttester(name: string, make: () => Promise<Attester>): Attester {
  const none: Attester['devices'] = [];
  let made: Attester | null = null;
  let underway: Promise<Attester> | null = null;

  /** It may take longer than a request waits: whoever comes next waits for the same. */
  function making(): Promise<Attester> {
    underway ??= make()
      .then((attester) => {
        made = attester;
        return attester;
      })
      .finally(() => {
        underway = null;
      });
    return underway;
  }

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
      const attester = made ?? (await until(making(), signal));
      return attester.attest(nonce, signal);
    },
    close: async () => made?.close(),
  };
}
