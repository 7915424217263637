// One appraisal, by whichever copy of the verifier it is given: the same code runs here in Node and in the page.
import type * as Verifier from './verifier.ts';

/** What is appraised, in JSON alone, so that it reaches the page. Times are ISO 8601, bytes base64. */
export interface Spec {
  readonly name: string;
  readonly kind: 'attestation' | 'evidence' | 'cpu';
  readonly input: unknown;
  readonly at: string;
  readonly clocks?: Readonly<Record<string, string>> | undefined;
  readonly rims?: readonly (readonly [id: string, document: string])[];
  readonly ocsp?: readonly string[];
  readonly expected?: Omit<Verifier.Expected, 'transcript'> & { readonly transcript?: string | undefined };
  /** What JSON carries as it is. */
  readonly options?: Pick<
    Verifier.VerifyOptions,
    'simulatedRoot' | 'cpu' | 'roots' | 'without' | 'policy' | 'nrasKeys' | 'limits'
  >;
  /** Of kind `cpu`. */
  readonly cpu?: Omit<Verifier.CpuVerifyOptions, 'at'>;
}

/** The report, as JSON carries it. */
export async function appraise(
  verifier: typeof Verifier,
  spec: Spec,
): Promise<Verifier.VerificationReport | Verifier.CpuReport> {
  const { kind, input, at, clocks = {}, rims = [], ocsp = [], expected = {}, options } = spec;
  if (kind === 'cpu') {
    const judged = await verifier.appraiseCpu(input, { ...spec.cpu, at: new Date(at) });
    return JSON.parse(JSON.stringify(judged));
  }
  const { transcript, ...texts } = expected;
  const bytes = transcript === undefined ? {} : { transcript: fromBase64(transcript) };
  const all: Verifier.VerifyOptions = {
    ...options,
    at: new Date(at),
    clocks: Object.fromEntries(Object.entries(clocks).map(([name, time]) => [name, new Date(time)])),
    // No fetch: what is not handed in is not to be had.
    collateral: verifier.createCollateral({ rims: new Map(rims), ocsp: ocsp.map(fromBase64) }),
    expected: { ...texts, ...bytes },
  };
  const report =
    kind === 'attestation'
      ? await verifier.appraiseAttestation(input, all)
      : await verifier.appraiseEvidence(input, all);
  return JSON.parse(JSON.stringify(report));
}

const fromBase64 = (text: string) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
