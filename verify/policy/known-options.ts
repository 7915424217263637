// The names of all options. A misspelt one would be ignored, and with it what the caller demands, so it is an error.
import type { Limits } from '../common/checks.ts';
import type { CpuPolicy, CpuVerifyOptions } from '../cpu/cpu-options.ts';
import type { VerifyOptions } from './options.ts';

/** Every name of an options object, so that the compiler finds one that is missing here. */
export type Names<T> = Readonly<Record<keyof T, true>>;
type Part<T, K extends keyof T> = Names<NonNullable<T[K]>>;

export const VERIFY_OPTIONS: Names<VerifyOptions> = {
  at: true,
  clocks: true,
  roots: true,
  simulatedRoot: true,
  collateral: true,
  without: true,
  expected: true,
  policy: true,
  cpu: true,
  session: true,
  nrasKeys: true,
  fetchNrasKeys: true,
  countersignKeys: true,
  limits: true,
  stopAtFailure: true,
};
const CLOCKS: Part<VerifyOptions, 'clocks'> = { report: true, ocsp: true, rim: true, rimOcsp: true, token: true };
const ROOTS: Part<VerifyOptions, 'roots'> = { device: true, rim: true };
const WITHOUT: Part<VerifyOptions, 'without'> = { referenceValues: true, revocation: true };
const LIMITS: Names<Limits> = { maxCharacters: true, maxValues: true };
const EXPECTED: Part<VerifyOptions, 'expected'> = {
  request: true,
  response: true,
  endpoint: true,
  transcript: true,
  event: true,
  nonce: true,
  challenge: true,
};
const POLICY: Part<VerifyOptions, 'policy'> = {
  maxAgeSeconds: true,
  maxAheadSeconds: true,
  requiredChecks: true,
  minLevel: true,
  maxBatch: true,
  devices: true,
};
const CPU: Part<VerifyOptions, 'cpu'> = { roots: true, collateral: true, policy: true, reference: true };

const CPU_OPTIONS: Names<CpuVerifyOptions> = {
  ...CPU,
  at: true,
  simulatedRoots: true,
  without: true,
  expected: true,
  stopAtFailure: true,
};
const CPU_ROOTS: Part<CpuVerifyOptions, 'roots'> = { amd: true, intel: true };
const CPU_COLLATERAL: Part<CpuVerifyOptions, 'collateral'> = { tdx: true, amdCrl: true };
const CPU_WITHOUT: Part<CpuVerifyOptions, 'without'> = { revocation: true };
const CPU_EXPECTED: Part<CpuVerifyOptions, 'expected'> = { reportData: true };
const CPU_POLICY: Part<CpuVerifyOptions, 'policy'> = {
  products: true,
  chips: true,
  minTcb: true,
  requireAliasCheck: true,
  requireSmtOff: true,
  requireCiphertextHiding: true,
  cspIds: true,
  tcb: true,
  minTcbEvaluation: true,
};
const MIN_TCB: Part<CpuPolicy, 'minTcb'> = { Milan: true, Genoa: true, Turin: true };

/** The names without some of them. */
export function namesBut<N extends object, K extends keyof N & string>(names: N, ...left: readonly K[]): Omit<N, K> {
  const kept = Object.entries(names).filter(([name]) => !(left as readonly string[]).includes(name));
  return Object.fromEntries(kept) as Omit<N, K>;
}

/** @param names those of the options themselves; those of their parts are known. @throws {TypeError} naming an option that there is not. */
export function refuseUnknownOptions(options: VerifyOptions, names: object = VERIFY_OPTIONS): void {
  refuseUnknown(options, names);
  refuseUnknown(options.clocks, CLOCKS, 'clocks.');
  refuseUnknown(options.roots, ROOTS, 'roots.');
  refuseUnknown(options.without, WITHOUT, 'without.');
  refuseUnknown(options.expected, EXPECTED, 'expected.');
  refuseUnknown(options.policy, POLICY, 'policy.');
  refuseUnknown(options.limits, LIMITS, 'limits.');
  if (options.cpu !== undefined) refuseUnknownCpuOptions(options.cpu, CPU, 'cpu.');
}

/** @throws {TypeError} naming an option that there is not. */
export function refuseUnknownCpuOptions(options: CpuVerifyOptions, names: object = CPU_OPTIONS, where = ''): void {
  refuseUnknown(options, names, where);
  refuseUnknown(options.roots, CPU_ROOTS, `${where}roots.`);
  refuseUnknown(options.collateral, CPU_COLLATERAL, `${where}collateral.`);
  refuseUnknown(options.without, CPU_WITHOUT, `${where}without.`);
  refuseUnknown(options.expected, CPU_EXPECTED, `${where}expected.`);
  refuseUnknown(options.policy, CPU_POLICY, `${where}policy.`);
  refuseUnknown(options.policy?.minTcb, MIN_TCB, `${where}policy.minTcb.`);
}

/** @param known has the names as its own. @throws {TypeError} */
export function refuseUnknown(options: object | undefined, known: object, where = ''): void {
  const name = Object.keys(options ?? {}).find((one) => !Object.hasOwn(known, one));
  if (name !== undefined)
    throw new TypeError(
      `there is no option ${where}${name}: the nearest is ${where}${nearest(name, Object.keys(known))}`,
    );
}

/** The one of `known` that is most like a misspelt name. */
export function nearest(name: string, known: readonly string[]): string {
  const [first = ''] = known.toSorted((a, b) => distance(name, a) - distance(name, b));
  return first;
}

/** How many characters must be added, removed or changed (Levenshtein), whatever their case. */
export function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (const [i, character] of [...a.toLowerCase().slice(0, 64)].entries()) {
    const next = [i + 1];
    for (const [j, other] of [...b.toLowerCase()].entries())
      next.push(Math.min((row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1, (row[j] ?? 0) + (character === other ? 0 : 1)));
    row = next;
  }
  return row.at(-1) ?? 0;
}
