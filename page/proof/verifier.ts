// Runs the verifier in this browser: `verify/`, with WebCrypto, on what the page holds.
import type { ReleaseOptions } from '../../verify/common/release-options.ts';
import {
  appraiseAttestation,
  appraiseEvidence,
  attestationIn,
  type Claims,
  createCollateral,
  type VerificationReport,
  type VerifyOptions,
} from '../../verify/index.ts';
import { ask, type Service } from '../base/gateway.ts';
import { bundles } from './bundles.ts';
import type { Subject } from './subject.ts';

export interface Settings {
  /** As the gateway last said; null while it is away. */
  readonly service: Service | null;
  /** PEM of the test roots of the simulated GPUs that this service had while the page was open; empty: none. */
  readonly simulatedRoots: string;
  /** Whether reference values and revocation are checked. */
  readonly collateral: boolean;
  /** The release with whose list the guest is compared. */
  readonly release?: ReleaseOptions | null;
}

const COLLATERAL_URL = new URL('/page/collateral', location.origin).href;

// One for all proofs: it keeps what it fetched.
let told: (what: string) => void = () => {};
export const collateral = createCollateral({
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

/** @param onFetch told what is being fetched, when something is. @throws {Error} where this browser cannot check anything. */
export async function verify(
  subject: Subject,
  settings: Settings,
  onFetch: (what: string) => void,
): Promise<VerificationReport> {
  const reason = cannotVerify();
  if (reason !== null) throw new Error(reason);
  told = onFetch;
  return appraise(subject, optionsFor(subject, settings));
}

function optionsFor(subject: Subject, settings: Settings): VerifyOptions {
  const { service, simulatedRoots, collateral: asked, release } = settings;
  return {
    collateral,
    bundles,
    without: { referenceValues: !asked, revocation: !asked },
    simulatedRoot: simulatedRoots === '' ? undefined : simulatedRoots,
    release: release ?? undefined,
    countersignKeys: service?.token_keys ?? undefined,
    // An answer that this page asked for and that was no stream is the whole of it.
    expected: {
      response: subject.asked && subject.transcript === null ? subject.text : undefined,
      request: subject.request ?? undefined,
      transcript: subject.transcript ?? undefined,
    },
  };
}

async function appraise(subject: Subject, options: VerifyOptions): Promise<VerificationReport> {
  const { kind, text, transcript } = subject;
  // Of a stream the text is the event that carries the attestation, and the stream is compared whole.
  const input = transcript === null ? text : ((text === '' ? null : attestationIn(text)) ?? transcript);
  if (options.release !== undefined && (kind === 'evidence' || kind === 'cpu'))
    throw new Error(
      'evidence by itself shows no guest to compare with a release. Empty the field “Release” for the rest',
    );
  if (kind === 'evidence') return appraiseEvidence(input, options);
  if (kind === 'attestation') return appraiseAttestation(input, options);
  // These come with the first file of their kind.
  const { appraiseCpu, appraiseSession } = await import('../../verify/cpu.ts');
  if (kind === 'session') return appraiseSession(text, options);
  const { simulatedRoot: simulatedRoots } = options;
  const without = { revocation: options.without?.revocation };
  const { valid, incomplete, checks, claims: cpu } = await appraiseCpu(text, { simulatedRoots, without });
  return {
    valid,
    incomplete,
    checks,
    level: 'none',
    claims: { ...NO_CLAIMS, cpu, simulated: cpu?.simulated ?? false },
    proven: [],
    not_proven: [],
  };
}

const NO_CLAIMS: Claims = {
  simulated: false,
  time: null,
  nonce: null,
  batch: null,
  token: null,
  devices: [],
  cpu: null,
};
