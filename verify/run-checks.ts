// The options, read once: certificates parsed, clocks chosen. What is wrong here is the caller's fault and no failed check.
import { equal } from './bytes.ts';
import { askedOnce, type Collateral, createCollateral } from './collateral.ts';
import { LruMap } from './lru.ts';
import { deviceRoots, rimRoots } from './nvidia.ts';
import type { VerifyOptions } from './options.ts';
import { type Certificate, parsePem } from './x509/certificate.ts';

export { CheckList, type Outcome, type Passed, passed, seen, skipped } from './checks.ts';

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
