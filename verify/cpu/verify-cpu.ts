// Verifies a processor's evidence: the list of checks, read top to bottom.

import { equal, fromHex, isZero, toHex } from '../common/bytes.ts';
import {
  CheckFailure,
  CheckList,
  type Outcome,
  type Passed,
  passed,
  type Settled,
  seen,
  settle,
  skipped,
  VerificationError,
} from '../common/checks.ts';
import { requireWebCrypto } from '../common/webcrypto.ts';
import { type Certificate, parsePem } from '../x509/certificate.ts';
import { type CpuMember, readCpuMember, readTdxCollateral } from './cpu-member.ts';
import {
  type CpuClaims,
  type CpuContext,
  type CpuPolicy,
  type CpuReport,
  type CpuSoftware,
  type CpuVerifyOptions,
  type ReleasedCpuOptions,
  refuseUnknownCpuOptions,
} from './cpu-options.ts';
import {
  checkVtpm,
  type HclReport,
  parseHclReport,
  parseTpmAttest,
  type TpmAttest,
  type TpmQuote,
} from './evidence/azure-vtpm.ts';
import { checkEventLog } from './evidence/event-log.ts';
import { parseSnpReport, type SnpReport, tcbOf } from './evidence/snp-report.ts';
import { parseTdxQuote, type TdxQuote } from './evidence/tdx-quote.ts';
import { amdRoots, intelRoots } from './pinned-roots.ts';
import { checkLaunch, checkMeasurement, type NamedLaunch, readReference } from './reference.ts';
import {
  type AmdPath,
  checkSnpChain,
  checkSnpIdentity,
  checkSnpMode,
  checkSnpRevocation,
  checkSnpSignature,
  checkSnpTcb,
} from './snp-checks.ts';
import {
  checkTdxChain,
  checkTdxIdentity,
  checkTdxMode,
  checkTdxRevocation,
  checkTdxSignature,
  checkTdxTcb,
  type IntelPath,
  stateOf,
} from './tdx-checks.ts';
import { findCollateral, type VerifiedCollateral } from './tdx-collateral.ts';
import { checkWeights, readWeights } from './weights.ts';

/**
 * Verifies a processor's bare evidence: that a genuine AMD or Intel processor signed it, for a confidential guest, under
 * firmware that is accepted; with `reference` also that the guest is one that the caller knows.
 *
 * ```ts
 * const { claims } = await verifyCpu(text, { expected: { reportData: nonce } });
 * ```
 * @param input the member `cpu` of an attestation: its JSON text, or parsed.
 * @throws {VerificationError} with the list of checks. @throws {TypeError} for options that cannot be used.
 */
export async function verifyCpu(input: unknown, options: CpuVerifyOptions = {}): Promise<CpuReport> {
  const report = await appraiseCpu(input, options);
  if (!report.valid) throw new VerificationError(report.checks);
  return report;
}

/** As {@link verifyCpu}, but a failed check is part of the report and not thrown. */
export async function appraiseCpu(input: unknown, options: CpuVerifyOptions = {}): Promise<CpuReport> {
  await requireWebCrypto();
  refuseUnknownCpuOptions(options);
  const { context, binding } = readCpuOptions(options);
  const list = new CheckList(options.stopAtFailure);
  const evidence = await list.run('cpu_form', [], () => readCpuEvidence(input));
  const claims = await checkCpuEvidence(list, evidence, context, binding);
  if (context.weights !== null)
    await list.run('cpu_weights', ['cpu_software'], () => checkWeights(context.weights, claims?.software ?? null));
  return { valid: list.valid, incomplete: list.incomplete, checks: list.checks, claims };
}

/** The report data that the processor must have signed. */
interface Binding {
  /** REPORTDATA without its zeros at the end. */
  readonly reportData: Uint8Array;
  /** Who expects it, for the check's detail. */
  readonly source: string;
  /** The launch file that the statement names. */
  readonly launch?: NamedLaunch;
  /** A further check. @returns words for the check's detail. @throws {CheckFailure} */
  readonly also?: () => string;
}

const REPORT_DATA_BYTES = 64;

/** @throws {TypeError} naming the option that cannot be used. */
export function readCpuOptions(options: ReleasedCpuOptions): { context: CpuContext; binding: Binding | null } {
  const { at = new Date(), roots = {}, simulatedRoots, policy = {}, collateral = {}, without = {} } = options;
  const { reportData } = options.expected ?? {};
  if (!(at instanceof Date) || Number.isNaN(at.getTime())) throw new TypeError('at is not a time');
  if (collateral.tdx !== undefined) usable('collateral.tdx', () => readTdxCollateral(collateral.tdx));
  checkPolicyOption(policy);
  const context = {
    at,
    amdRoots: roots.amd === undefined ? amdRoots() : pem(roots.amd, 'roots.amd'),
    intelRoots: roots.intel === undefined ? intelRoots() : pem(roots.intel, 'roots.intel'),
    simulatedRoots: simulatedRoots === undefined ? [] : pem(simulatedRoots, 'simulatedRoots'),
    policy,
    collateral,
    withoutRevocation: without.revocation === true,
    reference: options.reference === undefined ? null : readReference(options.reference),
    release: options.release ?? null,
    weights: options.weights === undefined ? null : readWeights(options.weights),
    ownRoots: options.roots !== undefined,
  };
  if (reportData === undefined) return { context, binding: null };
  const bytes = hex(reportData, 'expected.reportData');
  return { context, binding: { reportData: bytes, source: 'what the caller expects' } };
}

/** AMD's chip ids and Intel's PPIDs. */
const CHIP = /^([0-9a-f]{128}|[0-9a-f]{32})$/;

function checkPolicyOption({ minTcbEvaluation, chips }: CpuPolicy): void {
  // Comparisons with NaN are false, so it would disable the check.
  if (minTcbEvaluation !== undefined && !(minTcbEvaluation >= 0))
    throw new TypeError('policy.minTcbEvaluation is not a number');
  if (chips !== undefined && !(Array.isArray(chips) && chips.every((chip) => CHIP.test(chip))))
    throw new TypeError('policy.chips is not a list of 128 (AMD) or 32 (Intel) lowercase hex digits');
}

const pem = (text: string, name: string): readonly Certificate[] => usable(name, () => parsePem(text));

function usable<T>(name: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new TypeError(`${name} cannot be used: ${cause instanceof Error ? cause.message : ''}`, { cause });
  }
}

function hex(text: string, name: string): Uint8Array {
  const bytes = usable(name, () => fromHex(text));
  if (bytes.length > REPORT_DATA_BYTES) throw new TypeError(`${name} has more than ${REPORT_DATA_BYTES} bytes`);
  return bytes;
}

/** Parsed evidence, not yet trusted. */
export interface CpuEvidence {
  readonly member: CpuMember;
  readonly snp: SnpReport | null;
  readonly tdx: TdxQuote | null;
  readonly reportData: Uint8Array;
  readonly vtpm: Vtpm | null;
}

/** The evidence of the vTPM, for Azure's types. */
interface Vtpm {
  readonly hcl: HclReport;
  readonly quote: TpmQuote;
  readonly attest: TpmAttest;
}

/** @param input the member `cpu`, as JSON text or parsed. @throws {CheckFailure} cpu_malformed, cpu_unsupported */
export function readCpuEvidence(input: unknown): Passed<CpuEvidence> {
  const member = readCpuMember(input);
  const { type, report, quote, tpm } = member;
  const isAmd = type === 'SEV_SNP' || type === 'AZURE_SEV_SNP';
  const vtpm = tpm === null ? null : { hcl: parseHclReport(report), quote: tpm, attest: parseTpmAttest(tpm.message) };
  if (vtpm !== null && (vtpm.hcl.type === 'SEV_SNP') !== isAmd)
    throw new CheckFailure('cpu_malformed', 'the HCL report is of another processor');
  const behind = vtpm === null ? '' : ' behind a paravisor';
  if (isAmd) {
    const snp = parseSnpReport(vtpm?.hcl.hardware ?? report);
    const { version, reportData } = snp;
    return passed(`an SEV-SNP report of version ${version}${behind}`, { member, snp, tdx: null, reportData, vtpm });
  }
  const tdx = parseTdxQuote(quote ?? report);
  const { reportData } = tdx.body;
  return passed(`a TDX quote of version ${tdx.version}${behind}`, { member, snp: null, tdx, reportData, vtpm });
}

/** The checks of the evidence itself. */
const OF_EVIDENCE = [
  'cpu_signature',
  'cpu_chain',
  'cpu_identity',
  'cpu_revocation',
  'cpu_mode',
  'cpu_tcb',
  'cpu_measurement',
  'cpu_software',
] as const;

/** Lists the checks of the evidence as skips, for this reason, or because cpu_form failed. */
export async function skipCpuEvidence(list: CheckList, reason: string): Promise<void> {
  for (const name of OF_EVIDENCE) await list.run(name, ['cpu_form'], () => skipped(reason));
}

/**
 * Runs every check of the evidence but that of its form.
 * @param evidence null: cpu_form failed. @param binding null: the caller expects no particular report data.
 */
export async function checkCpuEvidence(
  list: CheckList,
  evidence: CpuEvidence | null,
  context: CpuContext,
  binding: Binding | null,
): Promise<CpuClaims | null> {
  if (evidence === null) {
    const reason = 'cpu_form failed';
    await skipCpuEvidence(list, reason);
    await list.run('cpu_binding', ['cpu_form'], () => skipped(reason));
    return null;
  }
  const { snp, tdx } = evidence;
  const found = snp === null ? null : await checkSnp(list, snp, evidence, context);
  const judged = tdx === null ? found : await checkTdx(list, tdx, evidence, context);
  await checkBinding(list, evidence, binding);
  const software = await checkSoftware(list, evidence, context, binding?.launch);
  return { ...claimsOf(evidence), ...judged, software };
}

type Judged = Partial<CpuClaims>;

/** Prerequisites of most checks: the evidence is signed under a trusted root. */
const SIGNED = ['cpu_signature', 'cpu_chain'] as const;

async function checkSnp(list: CheckList, snp: SnpReport, evidence: CpuEvidence, context: CpuContext): Promise<Judged> {
  const { certificates, crl } = evidence.member;
  await list.run('cpu_signature', ['cpu_form'], () => checkSnpSignature(snp, certificates[0] as Certificate));
  const path = (await list.run('cpu_chain', ['cpu_form'], () => checkSnpChain(certificates, context))) as AmdPath;
  await list.run('cpu_identity', SIGNED, () => checkSnpIdentity(snp, path, context));
  await list.run('cpu_revocation', SIGNED, () => checkSnpRevocation(path, crl, context));
  await list.run('cpu_mode', SIGNED, () => checkSnpMode(snp, path, context));
  await list.run('cpu_tcb', SIGNED, () => checkSnpTcb(snp, path, context));
  if (path === null) return {};
  const { product, simulated } = path;
  return { product, simulated, tcb: tcbOf(snp.tcb.reported, product) };
}

async function checkTdx(list: CheckList, tdx: TdxQuote, evidence: CpuEvidence, context: CpuContext): Promise<Judged> {
  await list.run('cpu_signature', ['cpu_form'], () => checkTdxSignature(tdx));
  const path = (await list.run('cpu_chain', ['cpu_form'], () => checkTdxChain(tdx, context))) as IntelPath;
  const collateral =
    path === null ? null : await settle(() => findCollateral(evidence.member.collateral, path.root, context));
  const verified = collateral?.value ?? null;
  await list.run('cpu_identity', SIGNED, () => checkTdxIdentity(tdx, verified));
  await list.run('cpu_revocation', SIGNED, () => checkTdxRevocation(path, verified, context));
  await list.run('cpu_mode', SIGNED, () => checkTdxMode(tdx, path, evidence.vtpm === null, context));
  await list.run('cpu_tcb', SIGNED, () =>
    checkTdxTcb(tdx, path, (collateral as Settled<VerifiedCollateral>).get(), context),
  );
  if (path === null) return {};
  const state = verified === null ? null : stateOf(tdx, path, verified);
  const { simulated, pck } = path;
  return {
    simulated,
    ppid: pck.ppid,
    fmspc: pck.fmspc,
    tcb_status: state?.status ?? null,
    advisories: state?.advisories ?? [],
  };
}

/** Compares the signed report data, or the vTPM's extra data, with the expected bytes. */
async function checkBinding(list: CheckList, { vtpm, reportData }: CpuEvidence, binding: Binding | null) {
  if (vtpm !== null)
    await list.run('cpu_vtpm', ['cpu_form'], () => checkVtpm(vtpm.hcl, vtpm.quote, vtpm.attest, reportData));
  const grounds = ['cpu_form', ...(vtpm === null ? [] : (['cpu_vtpm'] as const))] as const;
  await list.run('cpu_binding', grounds, () => {
    if (binding === null) return skipped('the caller does not say what was given to be signed');
    const { reportData: expected, source, also } = binding;
    const isIt =
      vtpm === null
        ? equal(reportData.subarray(0, expected.length), expected) && isZero(reportData.subarray(expected.length))
        : equal(vtpm.attest.extraData, expected);
    if (!isIt) throw new CheckFailure('cpu_binding_mismatch', `what was given to be signed is not ${source}`);
    const more = also?.();
    return seen(`what was given to be signed is ${source}${more === undefined ? '' : `; ${more}`}`);
  });
}

/** Compares the guest, and the launch file that it was started with, with the caller's reference values. */
async function checkSoftware(
  list: CheckList,
  { member, snp, tdx, vtpm }: CpuEvidence,
  { reference }: CpuContext,
  named: NamedLaunch = { sha256: null, file: null },
): Promise<CpuSoftware | null> {
  const { type, eventLog } = member;
  const pcrs = vtpm?.quote.pcrs ?? null;
  const measured = { type, snp, tdx: tdx?.body ?? null, pcrs, hasEventLog: eventLog !== null };
  const grounds = vtpm === null ? SIGNED : ([...SIGNED, 'cpu_vtpm'] as const);
  const guest = await list.run('cpu_measurement', grounds, () =>
    reference === null ? skipped('the caller gave no reference values') : checkMeasurement(measured, reference),
  );
  return list.run('cpu_software', [...SIGNED, 'cpu_measurement'], async (): Promise<Outcome<CpuSoftware | null>> => {
    const replayed = tdx === null || eventLog === null ? null : await checkEventLog(tdx.body.rtmrs, eventLog);
    if (guest !== null && reference !== null) return checkLaunch({ guest, reference, measured, named, replayed });
    return replayed === null
      ? skipped('no event log, and the caller gave no reference values')
      : { ...replayed, value: null };
  });
}

function claimsOf({ member, snp, tdx, reportData, vtpm }: CpuEvidence): CpuClaims {
  const [measurement, hostData] = [snp?.measurement ?? tdx?.body.mrTd, snp?.hostData ?? tdx?.body.mrConfigId];
  return {
    type: member.type,
    simulated: false,
    product: null,
    chip_id: snp === null ? null : toHex(snp.chipId),
    ppid: null,
    vmpl: snp?.vmpl ?? null,
    report_data: toHex(reportData),
    measurement: toHex(measurement ?? new Uint8Array()),
    rtmrs: tdx?.body.rtmrs.map(toHex) ?? null,
    host_data: toHex(hostData ?? new Uint8Array()),
    id_key_digest: snp === null ? null : toHex(snp.idKeyDigest),
    tcb: null,
    fmspc: null,
    tcb_status: null,
    advisories: [],
    pcrs: vtpm?.quote.pcrs.map(toHex) ?? null,
    software: null,
  };
}
