// Runs the verifier in this browser: `verify/`, with WebCrypto, on what the page holds.
import {
  appraiseAttestation,
  appraiseEvidence,
  createCollateral,
  type VerificationReport,
  type VerifyOptions,
} from '../../verify/index.ts';
import { ask, type Service } from '../gateway.ts';
import type { Subject } from './subject.ts';

export interface Settings {
  /** As the gateway last said; null while it is away. */
  readonly service: Service | null;
  /** Whether reference values and revocation are checked. */
  readonly collateral: boolean;
}

export interface Result {
  readonly report: VerificationReport;
  readonly took_ms: number;
}

const COLLATERAL_URL = new URL('/page/collateral', location.origin).href;

// One for all proofs: it keeps what it fetched.
let told: (what: string) => void = () => {};
const collateral = createCollateral({
  fetch: (url, init) => ask(String(url), init),
  rim_url: COLLATERAL_URL,
  ocsp_url: `${COLLATERAL_URL}/ocsp`,
  onFetch: (what) => told(what),
});

/** Why this browser cannot check anything here; null where it can. Browsers keep WebCrypto from pages on an open line. */
export function cannotVerify(): string | null {
  if (isSecureContext) return null;
  return 'Browsers check signatures only on pages that come over HTTPS or from this machine, and this one came over HTTP';
}

/** @param onFetch told what is being fetched, when something is. */
export async function verify(
  subject: Subject,
  { service, collateral: asked }: Settings,
  onFetch: (what: string) => void,
): Promise<Result> {
  const reason = cannotVerify();
  if (reason !== null) throw new Error(reason);
  const began = performance.now();
  told = onFetch;
  const options: VerifyOptions = {
    collateral,
    without: { referenceValues: !asked, revocation: !asked },
    simulatedRoot: service?.simulated_root ?? undefined,
    countersignKeys: service?.token_keys ?? undefined,
    // An answer that this page asked for and that was no stream is the whole of it.
    expected: {
      response: subject.request !== null && subject.transcript === null ? subject.text : undefined,
      request: subject.request ?? undefined,
      transcript: subject.transcript ?? undefined,
    },
  };
  const appraise = subject.kind === 'evidence' ? appraiseEvidence : appraiseAttestation;
  const report = await appraise(subject.text === '' ? (subject.transcript ?? '') : subject.text, options);
  return { report, took_ms: performance.now() - began };
}

/** `simulated` is a valid proof about no hardware; `incomplete` failed for what could not be fetched, and for nothing else. */
export type Verdict = 'valid' | 'simulated' | 'incomplete' | 'invalid';

export function verdictOf({ valid, incomplete, claims }: VerificationReport): Verdict {
  if (valid) return claims.simulated ? 'simulated' : 'valid';
  return incomplete ? 'incomplete' : 'invalid';
}
