// NVIDIA's keys for its remote service's tokens, fetched and kept. They change daily and stay for about a month.
import type { Jwks } from '../../verify/index.ts';
import { ServiceUnavailable } from './failure.ts';
import { networkReason, readText } from './request.ts';

export interface KeysOptions {
  readonly url: string;
  readonly timeout_ms: number;
  readonly fetch: typeof globalThis.fetch;
  readonly clock: () => Date;
}

export interface NrasKeys {
  /** What is at hand, not older than a day. */
  kept(): Jwks | undefined;
  /**
   * Asks again, unless it was done a moment ago: a token that names no known key must not have us ask for each.
   * @throws {ServiceUnavailable}
   */
  renewed(): Promise<Jwks>;
}

const MAX_AGE_MS = 24 * 3600_000;
const MIN_INTERVAL_MS = 30_000;
const MAX_KEYS_BYTES = 1024 * 1024;

/** /.well-known/jwks.json of the service that was asked. */
export const keysUrl = (service_url: string): string => new URL('/.well-known/jwks.json', service_url).href;

export function createNrasKeys({ url, timeout_ms, fetch, clock }: KeysOptions): NrasKeys {
  let kept: { readonly keys: Jwks; readonly at: number } | null = null;
  let underway: Promise<Jwks> | null = null;

  async function get(): Promise<Jwks> {
    try {
      const response = await fetch(url, { signal: AbortSignal.timeout(timeout_ms), redirect: 'error' });
      if (!response.ok) throw new Error(`status ${response.status}`);
      const keys = JSON.parse(await readText(response, MAX_KEYS_BYTES)) as Jwks;
      if (!Array.isArray(keys?.keys)) throw new Error('no key set');
      kept = { keys, at: clock().getTime() };
      return keys;
    } catch (cause) {
      const message = `nras_unreachable: the keys at ${new URL(url).host} ${networkReason(cause, timeout_ms)}`;
      throw new ServiceUnavailable(message, null, { cause });
    }
  }

  /** Where the clock was set back since, their age is not known. */
  function youngerThan(age_ms: number): Jwks | undefined {
    if (kept === null) return undefined;
    const since_ms = clock().getTime() - kept.at;
    return since_ms >= 0 && since_ms < age_ms ? kept.keys : undefined;
  }

  return {
    kept: () => youngerThan(MAX_AGE_MS),
    renewed() {
      const young = youngerThan(MIN_INTERVAL_MS);
      if (young !== undefined) return Promise.resolve(young);
      underway ??= get().finally(() => {
        underway = null;
      });
      return underway;
    },
  };
}
