// Helpers for requests to services: reading Retry-After, and describing why there was no response.

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
