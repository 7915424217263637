// Appraises what the verify endpoint is given, with everything that it fetches for that.
import {
  appraiseAttestation,
  createCollateral,
  type FailureCode,
  fetchNrasKeys,
  type Jwks,
  type VerificationReport,
} from '../../verify/index.ts';
import { MAX_JSON_VALUES } from '../http/request.ts';

// What goes to the thread that verifies, and what comes back.

export interface WorkerOptions {
  readonly rim_url: string;
  readonly ocsp_url: string;
  readonly verify_timeout_ms: number;
}

export interface Job {
  /** UTF-8. */
  readonly body: Uint8Array;
  /** Of the sidecar's own tokens. */
  readonly countersignKeys: Jwks | undefined;
  /** PEM; null: no simulated device is accepted. */
  readonly simulatedRoot: string | null;
}

export interface Verdict {
  readonly valid: boolean;
  /** The first check that failed; of no meaning when valid. */
  readonly failed: { readonly name: string; readonly code: FailureCode | null; readonly detail: string };
  /** The whole report, as JSON text. */
  readonly json: string;
}

/** A sidecar's key lives as long as its process, and what it signs for an hour; the evidence beside it is right for longer. */
const EXPIRED_CODES: ReadonlySet<FailureCode | undefined> = new Set([
  'token_expired',
  'token_key_unavailable',
] as const);
/** Who names a key that there is not must not have us ask NVIDIA each time. */
const KEYS_CACHE_MS = 30_000;
/** After a failure, from its end: one request a second at most, and no right token is refused for longer than that. */
const FAILURE_CACHE_MS = 1_000;

export function createAppraise(
  options: Pick<WorkerOptions, 'rim_url' | 'ocsp_url'>,
  fetch: typeof globalThis.fetch,
  clock: () => number = Date.now,
): (job: Job) => Promise<Verdict> {
  // One for all requests: it keeps what it fetched until that expires.
  const collateral = createCollateral({ fetch, rim_url: options.rim_url, ocsp_url: options.ocsp_url });
  // Whoever comes while it is on its way waits for the same answer.
  let cached: { readonly keys: Promise<Jwks>; from_ms: number; ttl_ms: number } | null = null;
  const nrasKeys = (url: string): Promise<Jwks> => {
    const age_ms = cached === null ? -1 : clock() - cached.from_ms;
    if (cached !== null && age_ms >= 0 && age_ms < cached.ttl_ms) return cached.keys;
    const entry = { keys: fetchNrasKeys(url, fetch), from_ms: clock(), ttl_ms: KEYS_CACHE_MS };
    entry.keys.catch(() => Object.assign(entry, { from_ms: clock(), ttl_ms: FAILURE_CACHE_MS }));
    cached = entry;
    return entry.keys;
  };
  return async ({ body, countersignKeys, simulatedRoot }) => {
    const text = Buffer.from(body).toString('utf8');
    const trusted = {
      collateral,
      fetchNrasKeys: nrasKeys,
      limits: { maxValues: MAX_JSON_VALUES },
      // What comes first costs least: public keys are asked for nothing that failed before.
      stopAtFailure: true,
      ...(simulatedRoot === null ? {} : { simulatedRoot }),
    };
    let report = await appraiseAttestation(text, { countersignKeys, ...trusted });
    if (EXPIRED_CODES.has(failureOf(report)?.code)) report = await appraiseAttestation(text, trusted);
    const failed = failureOf(report);
    const { name, code, detail } = failed ?? { name: 'form', code: undefined, detail: 'it could not be checked' };
    return { valid: report.valid, failed: { name, code: code ?? null, detail }, json: JSON.stringify(report) };
  };
}

const failureOf = ({ checks }: VerificationReport) => checks.find((check) => check.status === 'fail');
