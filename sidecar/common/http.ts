// Helpers for requests to services: through a proxy, reading Retry-After, and describing why there was no response.
import { EnvHttpProxyAgent } from 'undici';

/** A Retry-After header (RFC 9110 §10.2.3: seconds, or a date); null without a readable one. Negative where the date has passed. */
export function retryAfterMs(headers: Headers, now_ms: number): number | null {
  const text = headers.get('retry-after')?.trim() ?? '';
  const wait_ms = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - now_ms;
  return Number.isNaN(wait_ms) ? null : wait_ms;
}

/** Describes why `fetch` or `readLimited` failed. fetch has the reason in `cause`. */
export function networkReason(
  error: unknown,
  limits: { readonly timeout_ms: number; readonly max_bytes: number },
): string {
  if (!(error instanceof Error)) return 'could not be asked';
  if (error.name === 'BodyTooLarge') return `sent more than ${limits.max_bytes} bytes`;
  if (error.name === 'TimeoutError') return `did not answer within ${limits.timeout_ms} ms`;
  const { code } = (error.cause ?? {}) as NodeJS.ErrnoException;
  return `could not be asked (${code ?? error.message})`;
}

/** Uses the proxy from the environment, as NVIDIA's programs do; Node's fetch ignores it. */
export function fetchThrough(environment: Readonly<Record<string, string>>): typeof globalThis.fetch {
  const httpProxy = environment.http_proxy;
  const httpsProxy = environment.https_proxy ?? environment.HTTPS_PROXY;
  const noProxy = environment.no_proxy ?? environment.NO_PROXY;
  if (httpProxy === undefined && httpsProxy === undefined) return globalThis.fetch;
  const dispatcher = new EnvHttpProxyAgent({
    ...(httpProxy === undefined ? {} : { httpProxy }),
    ...(httpsProxy === undefined ? {} : { httpsProxy }),
    ...(noProxy === undefined ? {} : { noProxy }),
  });
  // Node's types know only Node's own dispatcher, which this one is compatible with.
  return (input, init) => globalThis.fetch(input, Object.assign<RequestInit, object>({ ...init }, { dispatcher }));
}
