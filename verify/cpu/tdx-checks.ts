// The checks of a quote of TDX: its signer, quoting enclave, platform state and guest attributes.

import { concat, digest, equal, isZero, toHex } from '../common/bytes.ts';
import { CheckFailure, type Outcome, type Passed, passed, seen, skipped } from '../common/checks.ts';
import type { Certificate } from '../x509/certificate.ts';
import { isIssuedBy, trustedPath } from '../x509/chain.ts';
import { type Crl, isRevoked } from '../x509/crl.ts';
import { DerError } from '../x509/der.ts';
import { ecdsaVerifyRaw } from '../x509/public-key.ts';
import type { CpuContext, CpuPolicy, TcbStatus } from './cpu-options.ts';
import { type Pck, readPck, type TdReport, type TdxQuote } from './evidence/tdx-quote.ts';
import type { ModuleSigner, QeIdentity, SvnLevel, TcbInfo, TcbLevel, VerifiedCollateral } from './tdx-collateral.ts';

/** A verified path: PCK, its authority, the root. */
export interface IntelPath {
  readonly leaf: Certificate;
  readonly authority: Certificate;
  readonly root: Certificate;
  readonly pck: Pck;
  readonly simulated: boolean;
}

/**
 * Checks three links: the PCK signs the enclave's report, the report holds the attestation key, that key signs the quote.
 * @throws {CheckFailure} cpu_signature_invalid
 */
export async function checkTdxSignature(quote: TdxQuote): Promise<Passed<true>> {
  const { signed, signature, attestationKey, attestationKeyBytes, qe, qeSigned, qeSignature, qeAuthData, chain } =
    quote;
  const [pck] = chain;
  const [isQuote, isQe, bound] = await Promise.all([
    ecdsaVerifyRaw(attestationKey, 'SHA-256', signature, signed),
    pck?.curve === 'P-256' && ecdsaVerifyRaw(pck, 'SHA-256', qeSignature, qeSigned),
    digest('SHA-256', concat([attestationKeyBytes, qeAuthData])),
  ]);
  if (!isQuote) throw wrong('the signature of the quote does not verify under its attestation key');
  if (!isQe) throw wrong("the quoting enclave's report does not verify under the PCK certificate");
  if (!equal(qe.reportData, concat([bound, new Uint8Array(32)])))
    throw wrong("the quoting enclave's report is about another attestation key");
  return seen('by the attestation key, which the quoting enclave holds, which the PCK certificate speaks for');
}

const wrong = (message: string) => new CheckFailure('cpu_signature_invalid', message);

const PCK = 'Intel SGX PCK Certificate';
const AUTHORITY = /Intel SGX PCK (Platform|Processor) CA$/;

/** @throws {CheckFailure} chain_invalid, certificate_expired, untrusted_root, simulated_root_refused */
export async function checkTdxChain({ chain }: TdxQuote, context: CpuContext): Promise<Passed<IntelPath>> {
  const anchors = { ...context, roots: context.intelRoots };
  const { path, simulated } = await trustedPath(chain, anchors, 'a simulated processor');
  const [leaf, authority, root, ...more] = path;
  if (leaf === undefined || authority === undefined || root === undefined || more.length > 0 || leaf.isCa)
    throw invalid('the chain is not PCK, its authority, the root');
  // Intel's root also certifies signers of TCB info, for instance.
  if (!leaf.subjectCommonName.includes(PCK) || !AUTHORITY.test(authority.subjectCommonName))
    throw invalid('the leaf is not a PCK certificate');
  try {
    const pck = readPck(leaf);
    const detail = `PCK of FMSPC ${pck.fmspc} up to ${simulated ? 'the simulated' : 'the pinned'} root`;
    return passed(detail, { leaf, authority, root, pck, simulated });
  } catch (cause) {
    if (!(cause instanceof DerError)) throw cause;
    throw new CheckFailure('chain_invalid', `the PCK certificate: ${cause.message}`, { cause });
  }
}

const invalid = (message: string) => new CheckFailure('chain_invalid', message);

/**
 * Compares quoting enclave and TDX module with Intel's collateral.
 * @param collateral null where none verifies; then cpu_tcb fails.
 * @throws {CheckFailure} cpu_identity_mismatch
 */
export function checkTdxIdentity(quote: TdxQuote, collateral: VerifiedCollateral | null): Outcome<true> {
  if (collateral === null) return skipped('what they should be stands in the collateral, of which cpu_tcb says more');
  const { qe, body } = quote;
  const { qeIdentity, tcbInfo } = collateral;
  const isQe =
    equal(masked(qe.miscSelect, qeIdentity.miscSelectMask), qeIdentity.miscSelect) &&
    equal(masked(qe.attributes, qeIdentity.attributesMask), qeIdentity.attributes) &&
    equal(qe.mrSigner, qeIdentity.mrSigner) &&
    qe.isvProdId === qeIdentity.isvProdId;
  if (!isQe) throw mismatch("the quoting enclave is not Intel's");
  const signer = (body.teeTcbSvn[1] ?? 0) > 0 ? moduleIdentity(body.teeTcbSvn, tcbInfo) : tcbInfo.module;
  // A module that Intel does not list has no level, so cpu_tcb fails.
  if (!isModuleOf(body, signer ?? tcbInfo.module)) throw mismatch("the TDX module is not Intel's");
  return seen("Intel's quoting enclave, and a TDX module that Intel signed");
}

const mismatch = (message: string) => new CheckFailure('cpu_identity_mismatch', message);

const masked = (bytes: Uint8Array, mask: Uint8Array) => bytes.map((byte, i) => byte & (mask[i] ?? 0));

/** The module's attributes include its debug mode, so all must be zero. */
const isModuleOf = ({ mrSignerSeam, seamAttributes }: TdReport, signer: ModuleSigner): boolean =>
  equal(mrSignerSeam, signer.mrSigner) &&
  equal(masked(seamAttributes, signer.attributesMask), signer.attributes) &&
  isZero(seamAttributes);

/**
 * Looks for the PCK on its authority's list, and for that authority and the collateral's signers on the root's.
 * @throws {CheckFailure} revocation_invalid, certificate_revoked
 */
export async function checkTdxRevocation(
  { leaf, authority, root }: IntelPath,
  collateral: VerifiedCollateral | null,
  { withoutRevocation }: CpuContext,
): Promise<Outcome<true>> {
  if (withoutRevocation) return skipped('the caller asked for no such check');
  if (collateral === null) return skipped('the lists stand in the collateral, of which cpu_tcb says more');
  const { pckCrl, rootCrl, signers, outdated } = collateral;
  if (!(await isIssuedBy(rootCrl, root))) throw badList("the root's revocation list is not one that the root signed");
  if (!(await isIssuedBy(pckCrl, authority))) throw badList("the PCK's revocation list is not one of its authority");
  const isOn = (list: Crl) => (certificate: Certificate) => isRevoked(list, certificate);
  const revoked = [leaf].find(isOn(pckCrl)) ?? [authority, ...signers].find(isOn(rootCrl));
  if (revoked !== undefined)
    throw new CheckFailure('certificate_revoked', `Intel revoked '${revoked.subjectCommonName.slice(0, 80)}'`);
  // An expired list still revokes what it names.
  if (outdated !== null) return skipped('no list that holds at this time: cpu_tcb says which');
  return seen(`none of ${2 + signers.length} certificates is on its authority's list`);
}

const badList = (message: string) => new CheckFailure('revocation_invalid', message);

const DEBUG_BITS = 0xff;
const SEPT_VE_DISABLE = 1 << 4;
const MIGRATABLE = 1 << 5;
/**
 * The bits of TDATTRIBUTES behind the first byte that are known (Intel, "TDX Module ABI", ATTRIBUTES; Linux, asm/shared/tdx.h):
 * 16 ICSSD, 27 LASS, 28 SEPT_VE_DISABLE, 29 MIGRATABLE, 30 PKS, 31 KL, 62 TPA, 63 PERFMON.
 */
const KNOWN_ATTRIBUTES = Uint8Array.of(DEBUG_BITS, 0, 0x01, 0xf8, 0, 0, 0, 0xc0);
/** XFAM: the states of XCR0 and IA32_XSS that guests may have (0 to 2, 5 to 9, 11, 12, 14, 15, 17, 18; 19 is APX). */
const KNOWN_XFAM = Uint8Array.of(0xe7, 0xdb, 0x0e, 0, 0, 0, 0, 0);
const hasOnly = (bytes: Uint8Array, known: Uint8Array) => equal(masked(bytes, known), bytes);

/** The chip is one of the caller's, and the caller demands nothing that a quote does not state. @throws {CheckFailure} cpu_policy_refused */
function checkPolicy({ ppid }: Pck, policy: CpuPolicy): void {
  if (policy.chips !== undefined && (ppid === null || !policy.chips.includes(ppid)))
    throw refused('the chip is not one that the caller accepts');
  if (policy.requireAliasCheck || policy.requireSmtOff || policy.requireCiphertextHiding)
    throw refused('the caller demands what no TDX quote states: an alias check, SMT off or ciphertext hiding');
}

/**
 * @param isOwnHost false behind Azure's paravisor, which handles the exceptions that SEPT_VE_DISABLE turns off.
 * @throws {CheckFailure} debug_enabled, cpu_policy_refused
 */
export function checkTdxMode(
  { body }: TdxQuote,
  { pck }: IntelPath,
  isOwnHost: boolean,
  { policy }: CpuContext,
): Passed<true> {
  const { tdAttributes, xfam, mrServiceTd } = body;
  // TDATTRIBUTES, bits 0 to 7: debugging and profiling from outside. Bits 28 and 29 are in byte 3.
  const [tud = DEBUG_BITS, , , security = MIGRATABLE] = tdAttributes;
  if ((tud & DEBUG_BITS) !== 0) throw new CheckFailure('debug_enabled', 'the host may debug or profile this guest');
  if (!hasOnly(tdAttributes, KNOWN_ATTRIBUTES)) throw refused('TDATTRIBUTES has bits that are not known');
  if (!hasOnly(xfam, KNOWN_XFAM)) throw refused('XFAM has bits that are not known');
  if ((security & MIGRATABLE) !== 0) throw refused('this guest may be migrated');
  if (isOwnHost && (security & SEPT_VE_DISABLE) === 0)
    throw refused('the host can inject exceptions by taking memory away (SEPT_VE_DISABLE is off)');
  if (mrServiceTd !== null && !isZero(mrServiceTd)) throw refused('a service guest is bound to this one');
  checkPolicy(pck, policy);
  return seen('no debugging, no migration, no service guest');
}

const refused = (message: string) => new CheckFailure('cpu_policy_refused', message);

const REFUSED = ['Revoked', 'NotSupported'];

/** The platform's TCB state; null where the collateral is about another platform. */
export function stateOf(quote: TdxQuote, { pck }: IntelPath, collateral: VerifiedCollateral): PlatformTcb | null {
  const { tcbInfo, qeIdentity } = collateral;
  if (tcbInfo.fmspc !== pck.fmspc || tcbInfo.pceId !== pck.pceId) return null;
  return platformTcb(quote.body, pck, tcbInfo, quote.qe.isvSvn, qeIdentity);
}

/** @throws {CheckFailure} collateral_invalid, collateral_expired, tcb_not_accepted */
export function checkTdxTcb(
  quote: TdxQuote,
  path: IntelPath,
  collateral: VerifiedCollateral,
  { policy }: CpuContext,
): Passed<PlatformTcb> {
  const { outdated, tcbInfo, qeIdentity } = collateral;
  const state = stateOf(quote, path, collateral);
  if (state === null) throw new CheckFailure('collateral_invalid', 'the TCB info is about another platform');
  if (outdated !== null) throw new CheckFailure('collateral_expired', outdated);
  const { minTcbEvaluation = 0, tcb: accepted = ['UpToDate'] } = policy;
  if (Math.min(tcbInfo.evaluation, qeIdentity.evaluation) < minTcbEvaluation)
    throw notAccepted(`the collateral is of an evaluation before ${minTcbEvaluation}`);
  const { status, advisories } = state;
  const listed =
    advisories.length > 0 ? ` (${advisories.slice(0, 8).join(', ')}${advisories.length > 8 ? ', …' : ''})` : '';
  if (REFUSED.includes(status) || !accepted.includes(status)) throw notAccepted(`the platform is ${status}${listed}`);
  return passed(`the platform is ${status}${listed}, SVN ${toHex(quote.body.teeTcbSvn.subarray(0, 3))}`, state);
}

const notAccepted = (message: string) => new CheckFailure('tcb_not_accepted', message);

// The TCB level of a platform by Intel's rule (its QuoteVerificationLibrary, §4.1.2.4.17): the first level that is met, the TDX module's
// level, whether a relaunch is advised, the quoting enclave's level.

interface PlatformTcb {
  readonly status: TcbStatus;
  readonly advisories: readonly string[];
}

type Found = { readonly status: TcbStatus; readonly advisories: readonly string[] };
const NONE: Found = { status: 'NotSupported', advisories: [] };
const UP_TO_DATE: Found = { status: 'UpToDate', advisories: [] };

/** @param qeSvn of the quoting enclave that signed. */
function platformTcb(body: TdReport, pck: Pck, tcbInfo: TcbInfo, qeSvn: number, qeIdentity: QeIdentity): PlatformTcb {
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

/** The identity of the TDX module with this version number; undefined where Intel lists none. */
function moduleIdentity(svns: Uint8Array, { moduleIdentities }: TcbInfo) {
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
