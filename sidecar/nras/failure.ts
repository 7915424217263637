// What can go wrong with NVIDIA's remote service, each with a reason and whether asking again can help.
import { AttesterError } from '../attester.ts';

/** No answer, or one that says "later". */
export class ServiceUnavailable extends AttesterError {
  /** How long the service asks to be left alone; null where it does not say. */
  override readonly retry_after_ms: number | null;
  constructor(message: string, retry_after_ms: number | null = null, options?: ErrorOptions) {
    super('appraisal_failed', message, true, options);
    this.retry_after_ms = retry_after_ms;
  }
}

/** It said no, or what it said does not hold. */
export const refused = (reason: string, message: string, options?: ErrorOptions): AttesterError =>
  new AttesterError('appraisal_failed', `${reason}: ${message}`, false, options);

const MAX_WAIT_MS = 600_000;

/** RFC 9110 §10.2.3: seconds, or a date. */
export function retryAfterMs(header: string | null, now: Date): number | null {
  if (header === null || header.trim() === '') return null;
  const wait = /^\d+$/.test(header.trim()) ? Number(header) * 1000 : Date.parse(header) - now.getTime();
  return Number.isNaN(wait) ? null : Math.min(Math.max(wait, 0), MAX_WAIT_MS);
}
