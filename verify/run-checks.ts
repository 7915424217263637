// Runs checks and keeps their list: a check whose grounds have failed is a skip, never a pass.
import { equal } from './bytes.ts';
import { CHECKS, type Check, CheckFailure, type CheckName } from './checks.ts';
import { askedOnce, type Collateral, createCollateral } from './collateral.ts';
import { LruMap } from './lru.ts';
import { deviceRoots, rimRoots } from './nvidia.ts';
import type { VerifyOptions } from './options.ts';
import { type Certificate, parsePem } from './x509/certificate.ts';

// The options, read once: certificates parsed, clocks chosen. What is wrong here is the caller's fault and no failed check.

export interface Context {
  readonly options: VerifyOptions;
  readonly at: Date;
  readonly clocks: {
    readonly report: Date;
    readonly ocsp: Date;
    readonly rim: Date;
    readonly rimOcsp: Date;
    readonly token: Date;
  };
  readonly deviceRoots: readonly Certificate[];
  readonly rimRoots: readonly Certificate[];
  readonly simulatedRoots: readonly Certificate[];
  readonly collateral: Collateral;
  /** Whose words the verdict may use: false where the caller's root stands in place of NVIDIA's. */
  readonly nvidia: { readonly device: boolean; readonly rim: boolean };
  /** Collateral and a root for it were handed in, so that a simulated device's can be checked too. */
  readonly checksSimulated: boolean;
}

const OFFLINE = createCollateral();

/** @throws {TypeError} naming the option that cannot be used. */
export function readOptions(options: VerifyOptions): Context {
  const { at = new Date(), clocks = {}, roots = {}, simulatedRoot, collateral, policy = {} } = options;
  // Nothing is older than NaN seconds.
  for (const name of ['maxAgeSeconds', 'maxAheadSeconds'] as const)
    if (policy[name] !== undefined && !(policy[name] >= 0))
      throw new TypeError(`policy.${name} is not a number of seconds`);
  const clock = (name: keyof typeof clocks, otherwise: Date) => instant(clocks[name] ?? otherwise, `clocks.${name}`);
  const ocsp = clock('ocsp', instant(at, 'at'));
  const device = roots.device === undefined ? deviceRoots() : pem(roots.device, 'roots.device');
  const rim = roots.rim === undefined ? rimRoots() : pem(roots.rim, 'roots.rim');
  return {
    options,
    at,
    clocks: {
      report: clock('report', at),
      ocsp,
      rim: clock('rim', at),
      rimOcsp: clock('rimOcsp', ocsp),
      token: clock('token', at),
    },
    deviceRoots: device,
    rimRoots: rim,
    nvidia: { device: within(device, deviceRoots()), rim: within(rim, rimRoots()) },
    simulatedRoots: simulatedRoot === undefined ? [] : pem(simulatedRoot, 'simulatedRoot'),
    collateral: askedOnce(collateral ?? OFFLINE),
    checksSimulated: collateral !== undefined && roots.rim !== undefined,
  };
}

function within(roots: readonly Certificate[], pinned: readonly Certificate[]): boolean {
  return roots.every(({ der }) => pinned.some((root) => equal(root.der, der)));
}

function instant(date: Date, name: string): Date {
  if (!(date instanceof Date) || Number.isNaN(date.getTime())) throw new TypeError(`${name} is not a time`);
  return date;
}

const parsed = new LruMap<string, readonly Certificate[]>(16);

function pem(text: string, name: string): readonly Certificate[] {
  const known = parsed.get(text);
  if (known !== undefined) return known;
  try {
    const certificates = parsePem(text);
    parsed.set(text, certificates);
    return certificates;
  } catch (cause) {
    throw new TypeError(`${name} is not a PEM certificate`, { cause });
  }
}

/** A check that passed: what was seen, and the value that may be used from now on. */
export interface Passed<T> {
  readonly detail: string;
  readonly value: T;
}

/** There is nothing to check here, for this reason. */
interface Skipped {
  readonly skip: string;
}

export type Outcome<T> = Passed<T> | Skipped;

export const passed = <T>(detail: string, value: T): Passed<T> => ({ detail, value });
export const seen = (detail: string): Passed<true> => ({ detail, value: true });
export const skipped = (skip: string): Skipped => ({ skip });

export class CheckList {
  readonly #checks: Check[] = [];
  /** Names, or name and device, of what failed or could not run for a failure. */
  readonly #unmet = new Set<string>();
  readonly #stopsAtFailure: boolean;
  /** The check that failed first. */
  #failed: CheckName | undefined;

  /** @param stopsAtFailure nothing runs after a check that failed. */
  constructor(stopsAtFailure = false) {
    this.#stopsAtFailure = stopsAtFailure;
  }

  /**
   * Runs `check` when everything in `after` went well, of the same device or of none. A CheckFailure becomes a `fail`; other
   * errors are not the evidence's fault and pass through.
   * @returns the value, or null when there is none to use.
   */
  async run<T>(
    name: CheckName,
    after: readonly CheckName[],
    check: () => Outcome<T> | Promise<Outcome<T>>,
    device?: number,
  ): Promise<T | null> {
    const ground =
      after.find((other) => this.#unmet.has(other) || this.unmet(other, device)) ??
      (this.#stopsAtFailure ? this.#failed : undefined);
    if (ground !== undefined) {
      this.#unmet.add(key(name, device));
      this.skip(name, `not run: ${ground} failed`, device);
      return null;
    }
    try {
      const outcome = await check();
      if ('skip' in outcome) {
        this.skip(name, outcome.skip, device);
        return null;
      }
      this.#add({ name, status: 'pass', detail: outcome.detail }, device);
      return outcome.value;
    } catch (error) {
      if (!(error instanceof CheckFailure)) throw error;
      this.#unmet.add(key(name, device));
      this.#failed ??= name;
      this.#add({ name, status: 'fail', code: error.code, detail: error.message }, device);
      return null;
    }
  }

  skip(name: CheckName, detail: string, device?: number): void {
    this.#add({ name, status: 'skip', detail }, device);
  }

  /** True when this check failed or could not run, for any device where none is named. */
  unmet(name: CheckName, device?: number): boolean {
    if (device !== undefined) return this.#unmet.has(key(name, device));
    return [...this.#unmet].some((one) => one === name || one.startsWith(`${name}[`));
  }

  /** In the order of CHECKS, then of the devices. */
  get checks(): Check[] {
    const rank = ({ name, device = -1 }: Check) => CHECKS.indexOf(name) * 1000 + device;
    return this.#checks.toSorted((a, b) => rank(a) - rank(b));
  }

  get valid(): boolean {
    return this.#checks.length > 0 && this.#checks.every(({ status }) => status !== 'fail');
  }

  passed(name: CheckName): boolean {
    const own = this.#checks.filter((check) => check.name === name);
    return own.length > 0 && own.every(({ status }) => status === 'pass');
  }

  #add(check: Check, device: number | undefined): void {
    this.#checks.push(device === undefined ? check : { ...check, device });
  }
}

const key = (name: CheckName, device: number | undefined) => (device === undefined ? name : `${name}[${device}]`);
