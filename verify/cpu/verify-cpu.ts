// Verifies a processor's evidence: the list of checks, read top to bottom.
import { EncodingError, equal, fromHex, toHex } from '../bytes.ts';
import { CheckFailure, CheckList, type CpuCheckName, passed, seen, skipped, VerificationError } from '../checks.ts';
import { type Certificate, parsePem } from '../x509/certificate.ts';
import { type CpuMember, readCpuMember } from './cpu-member.ts';
import type { CpuClaims, CpuContext, CpuExpected, CpuReport, CpuVerifyOptions } from './cpu-options.ts';
import { amdRoots, intelRoots } from './pinned-roots.ts';
import {
  checkSnpChain,
  checkSnpIdentity,
  checkSnpMode,
  checkSnpRevocation,
  checkSnpSignature,
  checkSnpTcb,
} from './snp-checks.ts';
import { parseSnpReport, type SnpReport, tcbOf } from './snp-report.ts';

/**
 * Verifies a processor's bare evidence: that a genuine AMD or Intel processor signed it, for a confidential guest, under
 * firmware that is accepted. What the guest runs, and for whom, is not judged here.
 *
 * ```ts
 * const { claims } = await verifyCpu(text, { expected: { reportData: nonce } });
 * ```
 * @param input the member `cpu` of an attestation: its JSON text, or parsed.
 * @throws {VerificationError} with the list of checks. @throws {TypeError} for options that cannot be used.
 */
export async function verifyCpu(input: unknown, options: CpuVerifyOptions = {}): Promise<CpuReport> {
  const report = await appraiseCpu(input, options);
  if (!report.valid) throw new VerificationError<CpuCheckName>(report.checks);
  return report;
}

/** As {@link verifyCpu}, but a failed check is in what is returned. */
export async function appraiseCpu(input: unknown, options: CpuVerifyOptions = {}): Promise<CpuReport> {
  const context = readCpuOptions(options);
  const list = new CheckList<CpuCheckName>(options.stopAtFailure);
  let claims: CpuClaims | null = null;
  const member = await list.run('cpu_form', [], () => formOf(readCpuMember(input)));
  if (member !== null) claims = await checkSnp(list, member, context, options.expected ?? {});
  return { valid: list.valid, checks: list.checks, claims };
}

function readCpuOptions(options: CpuVerifyOptions): CpuContext {
  const { at = new Date(), roots = {}, simulatedRoots, policy = {}, collateral = {}, without = {} } = options;
  if (!(at instanceof Date) || Number.isNaN(at.getTime())) throw new TypeError('at is not a time');
  return {
    at,
    amdRoots: roots.amd === undefined ? amdRoots() : pem(roots.amd, 'roots.amd'),
    intelRoots: roots.intel === undefined ? intelRoots() : pem(roots.intel, 'roots.intel'),
    simulatedRoots: simulatedRoots === undefined ? [] : pem(simulatedRoots, 'simulatedRoots'),
    policy,
    collateral,
    withoutRevocation: without.revocation === true,
  };
}

function pem(text: string, name: string): readonly Certificate[] {
  try {
    return parsePem(text);
  } catch (cause) {
    throw new TypeError(`${name} is not a PEM certificate`, { cause });
  }
}

function formOf(member: CpuMember) {
  const snp = parseSnpReport(member.report);
  return passed(`an SEV-SNP report of version ${snp.version}`, { ...member, snp });
}

type Read = CpuMember & { readonly snp: SnpReport };

async function checkSnp(
  list: CheckList<CpuCheckName>,
  { type, snp, certificates, crl }: Read,
  context: CpuContext,
  expected: CpuExpected,
): Promise<CpuClaims> {
  const grounds = ['cpu_signature', 'cpu_chain'] as const;
  await list.run('cpu_signature', ['cpu_form'], () => checkSnpSignature(snp, certificates[0] as Certificate));
  const path = await list.run('cpu_chain', ['cpu_form'], () => checkSnpChain(certificates, context));
  const on = <T>(check: (trusted: NonNullable<typeof path>) => T): T => check(path as NonNullable<typeof path>);
  await list.run('cpu_identity', grounds, () => on((trusted) => checkSnpIdentity(snp, trusted, context)));
  await list.run('cpu_revocation', grounds, () => on((trusted) => checkSnpRevocation(trusted, crl, context)));
  await list.run('cpu_binding', ['cpu_form'], () => checkReportData(snp.reportData, expected));
  await list.run('cpu_mode', grounds, () => on((trusted) => checkSnpMode(snp, trusted, context)));
  await list.run('cpu_tcb', grounds, () => on((trusted) => checkSnpTcb(snp, trusted, context)));
  return {
    type,
    simulated: path?.simulated ?? false,
    product: path?.product ?? null,
    chip_id: toHex(snp.chipId),
    vmpl: snp.vmpl,
    report_data: toHex(snp.reportData),
    measurement: toHex(snp.measurement),
    rtmrs: null,
    host_data: toHex(snp.hostData),
    id_key_digest: toHex(snp.idKeyDigest),
    tcb: path === null ? null : tcbOf(snp.tcb.reported, path.product),
    fmspc: null,
    tcb_status: null,
    advisories: [],
    pcrs: null,
  };
}

function checkReportData(reportData: Uint8Array, { reportData: wanted }: CpuExpected) {
  if (wanted === undefined) return skipped('the caller expects no REPORTDATA');
  const bytes = hex(wanted, 'expected.reportData');
  if (bytes.length > reportData.length) throw new TypeError('expected.reportData has more than 64 bytes');
  const full = new Uint8Array(reportData.length);
  full.set(bytes);
  if (!equal(full, reportData)) throw new CheckFailure('cpu_binding_mismatch', 'the report is over other data');
  return seen('the report is over what the caller expects');
}

function hex(text: string, name: string): Uint8Array {
  try {
    return fromHex(text);
  } catch (cause) {
    throw cause instanceof EncodingError ? new TypeError(`${name} is not hex`) : cause;
  }
}
