// The Python package in a process of its own, and questions that it and verify/ are both asked.
import { fileURLToPath } from 'node:url';
import { appraiseAttestation } from '../../verify/attestation.ts';
import { createBundles } from '../../verify/common/bundles.ts';
import type { Check, FailureCode } from '../../verify/common/checks.ts';
import type { CpuVerifyOptions, VerifiedSession } from '../../verify/cpu/cpu-options.ts';
import { appraiseCpu } from '../../verify/cpu/verify-cpu.ts';
import { appraiseEvidence } from '../../verify/evidence.ts';
import { createCollateral } from '../../verify/gpu/collateral.ts';
import type { Expected, VerifyOptions } from '../../verify/policy/options.ts';
import { appraiseSession } from '../../verify/session.ts';
import type { LineProcess } from '../support/line-process.ts';
import { makeVenv } from '../support/venv.ts';

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));
/** Its folder in the checkout. */
export const PACKAGE: string = path('../../python/');
/** Null where PyPI cannot be reached. */
export const python: string | null = makeVenv(path('requirements.txt'), 'python-venv');
/** For the names of tests that cannot run without it. */
export const SKIPPED: string = python === null ? ' SKIPPED: PyPI cannot be reached' : '';
if (python === null) console.warn('\n!!! The Python package is NOT tested: PyPI cannot be reached !!!\n');

/** What a verification takes, as JSON has it: instants in ISO 8601, bytes in base64. */
export interface Options {
  readonly at?: string | undefined;
  readonly clocks?: Readonly<Record<string, string>> | undefined;
  readonly collateral?:
    | {
        readonly rims?: Readonly<Record<string, string>> | readonly string[];
        readonly ocsp?: readonly string[];
      }
    | undefined;
  /** What is served for each bundle, by the SHA-256 that it is asked for under. */
  readonly bundles?: Readonly<Record<string, string>> | undefined;
  readonly expected?: (Omit<Expected, 'transcript'> & { readonly transcript?: string | undefined }) | undefined;
  readonly cpu?: OptionsOfCpu | undefined;
  readonly release?: VerifyOptions['release'] | undefined;
  readonly session?: Omit<VerifiedSession, 'hpke'> | undefined;
  /** Of a processor's bare evidence. */
  readonly simulatedRoots?: string | undefined;
  readonly simulatedRoot?: string | undefined;
  readonly roots?: { readonly device?: string | undefined; readonly rim?: string | undefined } | undefined;
  readonly without?:
    | { readonly referenceValues?: boolean | undefined; readonly revocation?: boolean | undefined }
    | undefined;
  readonly policy?: VerifyOptions['policy'] | undefined;
  readonly nrasKeys?: VerifyOptions['nrasKeys'] | undefined;
  readonly limits?: VerifyOptions['limits'] | undefined;
  readonly stopAtFailure?: boolean | undefined;
}

interface OptionsOfCpu {
  readonly roots?: { readonly amd?: string | undefined; readonly intel?: string | undefined } | undefined;
  readonly collateral?: { readonly tdx?: object | undefined; readonly amdCrl?: string | undefined } | undefined;
  readonly policy?: CpuVerifyOptions['policy'] | undefined;
  readonly reference?: CpuVerifyOptions['reference'] | undefined;
  readonly weights?: CpuVerifyOptions['weights'] | undefined;
}

export type Input = { readonly text: string } | { readonly value: unknown } | { readonly bytes: string };

export type Question = { readonly name: string; readonly input: Input } & (
  | { readonly call: 'attestation' | 'evidence' | 'session'; readonly options: Options }
  | {
      readonly call: 'cpu';
      readonly options: Pick<Options, 'at' | 'simulatedRoots' | 'without' | 'stopAtFailure'> &
        OptionsOfCpu & { readonly expected?: CpuVerifyOptions['expected'] };
    }
);

/** What either verifier says. */
export interface Said {
  readonly report?: {
    readonly valid: boolean;
    readonly incomplete: boolean;
    readonly level: string | null;
    readonly checks: readonly (readonly [
      name: string,
      device: number | null,
      status: string,
      code: FailureCode | null,
    ])[];
    readonly claims: unknown;
    /** What is proven and what is not, in words. */
    readonly words: readonly string[];
  };
  /** What was thrown in place of a report; TypeError: an option that cannot be used. */
  readonly error?: string | undefined;
  readonly why?: string | undefined;
}

// verify/.

const bytes = (base64: string) => new Uint8Array(Buffer.from(base64, 'base64'));
const instant = (text: string | undefined) => (text === undefined ? undefined : new Date(text));

function ofCpu({ roots, collateral, policy, reference, weights }: OptionsOfCpu): VerifyOptions['cpu'] {
  const { tdx, amdCrl } = collateral ?? {};
  const own = { tdx: tdx as never, amdCrl: amdCrl === undefined ? undefined : bytes(amdCrl) };
  return {
    policy,
    reference,
    weights,
    ...(roots === undefined ? {} : { roots }),
    ...(collateral === undefined ? {} : { collateral: own }),
  };
}

function optionsOf({ at, clocks, collateral, bundles, expected, cpu, ...same }: Options): VerifyOptions {
  const { rims = {}, ocsp = [] } = collateral ?? {};
  const { transcript } = expected ?? {};
  return {
    ...same,
    at: instant(at),
    clocks: Object.fromEntries(Object.entries(clocks ?? {}).map(([name, text]) => [name, new Date(text)])),
    ...(collateral === undefined
      ? {}
      : {
          collateral: createCollateral({
            rims: Array.isArray(rims) ? rims : new Map(Object.entries(rims)),
            ocsp: ocsp.map(bytes),
          }),
        }),
    ...(bundles === undefined ? {} : { bundles: createBundles({ load: async (sha256) => bundles[sha256] ?? null }) }),
    expected: { ...expected, transcript: transcript === undefined ? undefined : bytes(transcript) },
    ...(cpu === undefined ? {} : { cpu: ofCpu(cpu) }),
  };
}

function said({ valid, incomplete, checks, claims, level, proven = [], not_proven = [] }: Reported): Said {
  return {
    report: {
      valid,
      incomplete,
      level: level ?? null,
      checks: checks.map(({ name, device, status, code }) => [name, device ?? null, status, code ?? null]),
      claims: JSON.parse(JSON.stringify(claims)),
      words: [...proven, ...not_proven],
    },
  };
}

interface Reported {
  readonly valid: boolean;
  readonly incomplete: boolean;
  readonly checks: readonly Check[];
  readonly claims: unknown;
  readonly level?: string;
  readonly proven?: readonly string[];
  readonly not_proven?: readonly string[];
}

/** The verdict of verify/. */
export async function ours(question: Question): Promise<Said> {
  const { input } = question;
  const value = 'text' in input ? input.text : 'bytes' in input ? bytes(input.bytes) : structuredClone(input.value);
  try {
    if (question.call === 'cpu') {
      const { at, without, expected, simulatedRoots, stopAtFailure, ...cpu } = question.options;
      const options = { at: instant(at), without, expected, simulatedRoots, stopAtFailure };
      return said(await appraiseCpu(value, { ...options, ...ofCpu(cpu) }));
    }
    const options = optionsOf(question.options);
    const calls = { attestation: appraiseAttestation, evidence: appraiseEvidence, session: appraiseSession };
    return said(await calls[question.call](value, options));
  } catch (error) {
    return { error: (error as Error).name, why: String((error as Error).stack) };
  }
}

// The package.

/** How many questions are on their way at once. */
const AHEAD = 32;

/** What both verifiers say of each question, in order. `driver` runs driver.py. */
export async function* both(
  driver: Pick<LineProcess, 'ask'>,
  questions: readonly Question[],
): AsyncGenerator<{ question: Question; ours: Said; python: Said }> {
  for (let from = 0; from < questions.length; from += AHEAD) {
    const some = questions.slice(from, from + AHEAD);
    yield* await Promise.all(
      some.map(async (question) => {
        const [{ report, error, why }, mine] = await Promise.all([driver.ask<PythonAnswer>(question), ours(question)]);
        return { question, ours: mine, python: report === undefined ? { error, why } : said(report) };
      }),
    );
  }
}

interface PythonAnswer {
  readonly report?: Reported;
  readonly error?: string;
  readonly why?: string;
}
