// The two verifiers of a processor's evidence: ours, and cpu_verify.py in a process of its own that is asked one question a line.
import { fileURLToPath } from 'node:url';
import { appraiseCpu, type CpuVerifyOptions } from '../../verify/cpu.ts';
import type { Check } from '../../verify/index.ts';
import { usePython } from '../support/line-process.ts';
import { vectorPath, vectorsPresent } from '../support/vectors.ts';
import { python } from './python.ts';

const DRIVER = fileURLToPath(new URL('cpu_verify.py', import.meta.url));
/** Files that hold the pinned roots. */
const ROOTS = ['ask_ark_milan', 'ask_ark_genoa', 'ask_ark_turin_vcek', 'intel_sgx_root'].map((name) =>
  vectorPath(`cpu/roots/${name}.pem`),
);

/** A check as both say it. */
type Verdict = readonly [name: string, status: string, code: string | null];
interface Heard {
  readonly checks: readonly Verdict[];
  readonly tcb_status?: string | null;
  /** Why the reference cannot be used; then there are no checks. */
  readonly unusable?: string;
}

let driver: ReturnType<typeof usePython>;

/** cpu_verify.py runs while the tests of this file do. */
export function runPython(): void {
  driver = usePython(python, [DRIVER, ...(vectorsPresent ? ROOTS : [])]);
}
/** What cpu_verify.py says of it. */
export const ask = (question: object): Promise<Heard> => driver.ask(question);

export const verdicts = (checks: readonly Check[]): Verdict[] =>
  checks.map(({ name, status, code }) => [name, status, code ?? null]);
const said = (found: Verdict | undefined): string => (found === undefined ? 'valid' : `${found[0]} ${found[2]}`);
/** The first check that failed, or of `only` whether it did. */
export const verdict = (checks: readonly Verdict[], only?: string): string =>
  said(checks.find(([name, status]) => status === 'fail' && (only === undefined || name === only)));

/** Both verifiers over one text. */
export async function both(text: string, options: CpuVerifyOptions & { at: Date }) {
  const { claims, checks } = await appraiseCpu(text, options);
  const theirs = await ask({
    member: text,
    at: options.at.toISOString(),
    policy: options.policy,
    without_revocation: options.without?.revocation ?? false,
    extra_roots: options.simulatedRoots ?? null,
    expected_report_data: options.expected?.reportData ?? null,
    reference: options.reference ?? null,
  });
  return { ours: verdicts(checks), python: theirs.checks, status: [claims?.tcb_status ?? null, theirs.tcb_status] };
}
