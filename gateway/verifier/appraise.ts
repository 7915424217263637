// Appraises attestations for the verify endpoint, and fetches the collateral and the keys that this needs.

import {
  appraiseAttestation,
  createCollateral,
  type FailureCode,
  fetchNrasKeys,
  isTranscript,
  type Jwks,
  type VerificationReport,
} from '../../verify/index.ts';
import { MAX_JSON_VALUES } from '../http/body.ts';
import type { Job, Verdict, WorkerOptions } from './verifier.ts';

/**
 * Codes that are expected for an old attestation token. A sidecar's key lives as long as its process and a token for an hour, but the
 * evidence stays valid for longer.
 */
const EXPIRED_CODES: ReadonlySet<FailureCode | undefined> = new Set([
  'token_expired',
  'token_key_unavailable',
] as const);
/** NVIDIA's keys are cached for this time, so that not every attestation token with an unknown key causes a request. */
const KEYS_CACHE_MS = 30_000;
/** A failure is cached from its end: at most one request a second, and no valid attestation token is rejected for longer than that. */
const FAILURE_CACHE_MS = 1_000;

export function createAppraise(
  options: Pick<WorkerOptions, 'rim_url' | 'ocsp_url'>,
  fetch: typeof globalThis.fetch,
  clock: () => number = Date.now,
): (job: Job) => Promise<Verdict> {
  // All requests share this cache.
  const collateral = createCollateral({
    fetch,
    rim_url: options.rim_url ?? undefined,
    ocsp_url: options.ocsp_url ?? undefined,
  });
  // Requests that arrive during the fetch share its promise.
  let cached: { readonly keys: Promise<Jwks>; from_ms: number; ttl_ms: number } | null = null;
  const nrasKeys = (url: string): Promise<Jwks> => {
    const age_ms = cached === null ? -1 : clock() - cached.from_ms;
    if (cached !== null && age_ms >= 0 && age_ms < cached.ttl_ms) return cached.keys;
    const entry = { keys: fetchNrasKeys(url, fetch), from_ms: clock(), ttl_ms: KEYS_CACHE_MS };
    entry.keys.catch(() => Object.assign(entry, { from_ms: clock(), ttl_ms: FAILURE_CACHE_MS }));
    cached = entry;
    return entry.keys;
  };
  return async ({ body, countersignKeys, simulatedRoot, policy, endpoint, event }) => {
    const text = Buffer.from(body).toString('utf8');
    const input = isTranscript(text) ? new Uint8Array(body) : text;
    const trusted = {
      collateral,
      fetchNrasKeys: nrasKeys,
      limits: { maxValues: MAX_JSON_VALUES },
      // The cheap checks come first. Public keys are fetched only when the earlier checks passed.
      stopAtFailure: true,
      policy,
      expected: { endpoint, event },
      ...(simulatedRoot === null ? {} : { simulatedRoot }),
    };
    let report = await appraiseAttestation(input, { countersignKeys, ...trusted });
    if (EXPIRED_CODES.has(failureOf(report)?.code)) report = await appraiseAttestation(input, trusted);
    const failed = failureOf(report);
    const { name, code, detail } = failed ?? { name: 'form', code: undefined, detail: 'it could not be checked' };
    return { valid: report.valid, failed: { name, code: code ?? null, detail }, json: JSON.stringify(report) };
  };
}

const failureOf = ({ checks }: VerificationReport) => checks.find((check) => check.status === 'fail');
