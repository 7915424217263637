// The TCB level of a platform by Intel's rule (its QuoteVerificationLibrary, §4.1.2.4.17): the first level that is met, the TDX
// module's level, whether a relaunch is advised, the quoting enclave's level.
import type { TcbStatus } from './cpu-options.ts';
import type { QeIdentity, SvnLevel, TcbInfo, TcbLevel } from './tdx-collateral.ts';
import type { Pck, TdReport } from './tdx-quote.ts';

export interface PlatformTcb {
  readonly status: TcbStatus;
  readonly advisories: readonly string[];
}

type Found = { readonly status: TcbStatus; readonly advisories: readonly string[] };
const NONE: Found = { status: 'NotSupported', advisories: [] };
const UP_TO_DATE: Found = { status: 'UpToDate', advisories: [] };

/** @param qeSvn of the quoting enclave that signed. */
export function platformTcb(
  body: TdReport,
  pck: Pck,
  tcbInfo: TcbInfo,
  qeSvn: number,
  qeIdentity: QeIdentity,
): PlatformTcb {
  const met = tcbInfo.levels.filter((level) => isSgxMet(level, pck));
  const level: Found = met.find((one) => isTdxMet(one, body.teeTcbSvn)) ?? NONE;
  const module = moduleTcb(body.teeTcbSvn, tcbInfo);
  const qe = atSvn(qeIdentity.levels, qeSvn);
  const sgx = met[0]?.status ?? 'NotSupported';
  const status = converge(relaunch(body, tcbInfo, sgx, converge(level.status, module.status), module, qe), qe.status);
  return { status, advisories: [...new Set([level, module, qe].flatMap(({ advisories }) => advisories))] };
}

const isSgxMet = (level: TcbLevel, { cpuSvn, pceSvn }: Pck): boolean =>
  level.sgx.every((svn, i) => (cpuSvn[i] ?? -1) >= svn) && pceSvn >= level.pceSvn;

/** A module with a version of its own is judged by its identity; then the first two components do not count here. */
const isTdxMet = (level: TcbLevel, svns: Uint8Array): boolean =>
  level.tdx.every((svn, i) => (i < 2 && hasIdentity(svns)) || (svns[i] ?? -1) >= svn);

const hasIdentity = (svns: Uint8Array): boolean => (svns[1] ?? 0) > 0;

/** The identity of the TDX module that this version number means; undefined where Intel names none. */
export function moduleIdentity(svns: Uint8Array, { moduleIdentities }: TcbInfo) {
  const id = `TDX_${(svns[1] ?? 0).toString(16).padStart(2, '0').toUpperCase()}`;
  return moduleIdentities.find((one) => one.id === id);
}

function moduleTcb(svns: Uint8Array, tcbInfo: TcbInfo): Found {
  if (!hasIdentity(svns)) return UP_TO_DATE;
  return atSvn(moduleIdentity(svns, tcbInfo)?.levels ?? [], svns[0] ?? 0);
}

const atSvn = (levels: readonly SvnLevel[], svn: number): Found => levels.find(({ isvSvn }) => svn >= isvSvn) ?? NONE;

const LOWERED: Readonly<Partial<Record<TcbStatus, TcbStatus>>> = {
  UpToDate: 'OutOfDate',
  SWHardeningNeeded: 'OutOfDate',
  ConfigurationNeeded: 'OutOfDateConfigurationNeeded',
  ConfigurationAndSWHardeningNeeded: 'OutOfDateConfigurationNeeded',
};

/** The platform has the worst status of its parts. */
function converge(platform: TcbStatus, part: TcbStatus): TcbStatus {
  if (platform === 'NotSupported' || part === 'NotSupported') return 'NotSupported';
  if (platform === 'Revoked' || part === 'Revoked') return 'Revoked';
  return part === 'UpToDate' ? platform : (LOWERED[platform] ?? platform);
}

const CURRENT: readonly TcbStatus[] = [
  'UpToDate',
  'SWHardeningNeeded',
  'ConfigurationNeeded',
  'ConfigurationAndSWHardeningNeeded',
];

/** The module was updated under the running guest: a relaunch of the guest brings it up to date. */
function relaunch(
  { teeTcbSvn2 }: TdReport,
  tcbInfo: TcbInfo,
  sgx: TcbStatus,
  platform: TcbStatus,
  module: Found,
  qe: Found,
): TcbStatus {
  const isOut = platform === 'OutOfDate' || platform === 'OutOfDateConfigurationNeeded';
  if (teeTcbSvn2 === null || !isOut || module.status !== 'OutOfDate') return platform;
  if (qe.status !== 'UpToDate' || !CURRENT.includes(sgx)) return platform;
  const [latest] = tcbInfo.levels;
  const moduleSvn = hasIdentity(teeTcbSvn2) ? moduleIdentity(teeTcbSvn2, tcbInfo)?.levels[0]?.isvSvn : latest?.tdx[0];
  if (moduleSvn === undefined) return 'NotSupported';
  const isLatest =
    (teeTcbSvn2[0] ?? 0) >= moduleSvn && (teeTcbSvn2[2] ?? 0) >= (latest?.tdx[2] ?? Number.POSITIVE_INFINITY);
  if (!isLatest) return platform;
  const isConfigured = !sgx.startsWith('Configuration') && platform === 'OutOfDate';
  return isConfigured ? 'TDRelaunchAdvised' : 'TDRelaunchAdvisedConfigurationNeeded';
}
