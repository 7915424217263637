// Verifies a session by itself: the statement that devices and processor both signed, before any response or for many.
import type { Evidence } from '../proto/attestation/attestation.ts';
import { readStatement } from '../proto/attestation/statement.ts';
import { isObject } from '../proto/json.ts';
import { readSessionEvidence } from './binding/input.ts';
import { digest, toHex, utf8 } from './common/bytes.ts';
import { CheckFailure, CheckList, type CheckName, type Passed, passed, VerificationError } from './common/checks.ts';
import { requireWebCrypto } from './common/webcrypto.ts';
import {
  type CpuForm,
  checkCpu,
  checkDevices,
  checkSignature,
  readHeld,
  readSession,
  signatureOf,
} from './cpu/binding.ts';
import { parseCpu } from './cpu/cpu-member.ts';
import type { CpuClaims, VerifiedSession } from './cpu/cpu-options.ts';
import { readCpuOptions } from './cpu/verify-cpu.ts';
import { inputOf } from './gpu/device-evidence.ts';
import { verifyDevices } from './gpu/devices.ts';
import { REQUIRED_OF_DEVICES } from './gpu/report-check.ts';
import {
  cpuOptionsOf,
  readOptions,
  refuseUnknownOptions,
  type VerificationReport,
  type VerifyOptions,
} from './policy/options.ts';
import { checkPolicy, concluded, type Findings } from './policy/verdict.ts';

export interface SessionReport extends VerificationReport {
  /** For `options.session` of later verifications; null unless valid. */
  readonly session: VerifiedSession | null;
}

/**
 * Verifies what `GET /v1/attestation/session` returns: that genuine devices and a genuine processor signed one statement, with
 * the key that signs responses.
 *
 * ```ts
 * const { session } = await verifySession(text, { expected: { challenge } });
 * const verified = await verifyAttestation(response, { session });
 * ```
 * @param input its JSON text, or parsed.
 * @throws {VerificationError} with the list of checks. @throws {TypeError} for options that cannot be used.
 */
export async function verifySession(
  input: unknown,
  options: VerifyOptions = {},
): Promise<SessionReport & { readonly session: VerifiedSession }> {
  const report = await appraiseSession(input, options);
  if (report.session === null) throw new VerificationError(report.checks);
  return { ...report, session: report.session };
}

/** As {@link verifySession}, but returns failed checks in the report. */
export async function appraiseSession(input: unknown, options: VerifyOptions = {}): Promise<SessionReport> {
  refuseUnknownOptions(options);
  await requireWebCrypto();
  const context = readOptions(options);
  const list = new CheckList(options.stopAtFailure);
  const release =
    options.release === undefined
      ? null
      : await (await import('./release/check.ts')).checkRelease(list, options.release, { at: context.at });
  const { context: cpuContext } = readCpuOptions(cpuOptionsOf(context, release));
  const given = await list.run('form', [], () => formOf(input));
  const nonce = given === null ? null : toHex(await digest('SHA-256', utf8(given.statement)));
  const evidence = given?.gpu ?? [];
  const devices = await verifyDevices(list, evidence.map(inputOf), nonce, [], context);
  const form = await list.run('cpu_form', ['form'], async () =>
    ofAllListed(await readSession(given?.member, evidence), evidence.length),
  );
  const expected = { session: null, challenge: options.expected?.challenge, at: context.at };
  const findings: Findings = {
    list,
    devices,
    token: null,
    appraised: [],
    nonce,
    batch: null,
    timestamp: null,
    cpu: await checkCpu(list, form, { rawHash: null, timestamp: null, evidence }, expected, cpuContext),
    release: release?.claims ?? null,
    about: 'session',
    nvidia: context.nvidia,
    namesSession: false,
  };
  await list.run('policy', ['form'], () => checkPolicy(findings, context));
  const report = concluded(findings);
  return { ...report, session: report.valid ? sessionOf(given, findings.cpu?.claims ?? null) : null };
}

/**
 * Every device that the statement lists must have signed it: cpu_devices checks that no other did, and report_form that none did twice.
 * @throws {CheckFailure} cpu_devices_mismatch
 */
function ofAllListed(form: Passed<CpuForm>, signed: number): Passed<CpuForm> {
  const { devices } = form.value.session.statement;
  if (devices.length > signed)
    throw new CheckFailure(
      'cpu_devices_mismatch',
      `the statement lists ${devices.length} devices, and ${signed} signed it`,
    );
  return form;
}

function sessionOf(given: Given | null, cpu: CpuClaims | null): VerifiedSession | null {
  if (given === null || cpu === null) return null;
  const { statement } = given;
  return { statement, cpu, hpke: readStatement(statement).hpke };
}

interface Given {
  readonly member: object;
  readonly statement: string;
  readonly gpu: readonly Evidence[];
}

/** @throws {CheckFailure} not_an_attestation, cpu_malformed */
function formOf(input: unknown) {
  const value = typeof input === 'string' ? parseCpu(input) : input;
  if (!isObject(value)) throw new CheckFailure('not_an_attestation', 'a session is an object');
  const { gpu, statement } = value;
  if (typeof statement !== 'string') throw new CheckFailure('not_an_attestation', 'the session has no statement');
  const evidence = readSessionEvidence(gpu);
  return passed<Given>(
    `a session with evidence of ${evidence.length} ${evidence.length === 1 ? 'device' : 'devices'}`,
    {
      member: value,
      statement,
      gpu: evidence,
    },
  );
}

// For sidecar and gateway: the checks before a session, or a response that is signed in it, is forwarded.

/** The checks that a session must pass. The relying party judges firmware levels, revocation and modes. */
const REQUIRED_CHECKS: ReadonlySet<CheckName> = new Set([
  'form',
  ...REQUIRED_OF_DEVICES,
  'cpu_form',
  'cpu_signature',
  'cpu_chain',
  'cpu_identity',
  'cpu_binding',
  'cpu_devices',
]);

/**
 * @param simulatedRoot PEM of the roots of simulated devices and processors; null: genuine ones alone.
 * @throws {CheckFailure} of the first check that failed.
 */
export async function checkSession(
  input: unknown,
  simulatedRoot: string | null,
  challenge?: string,
  at?: Date,
): Promise<void> {
  const { checks } = await appraiseSession(input, {
    at,
    expected: { challenge },
    without: { referenceValues: true, revocation: true },
    ...(simulatedRoot === null ? {} : { simulatedRoot }),
  });
  const failed = checks.find(({ name, status }) => status === 'fail' && REQUIRED_CHECKS.has(name));
  if (failed?.code !== undefined) throw new CheckFailure(failed.code, failed.detail);
}

/** @throws {CheckFailure} cpu_malformed, answer_signature_invalid */
export type CheckAnswer = (signature: string, rawHash: string) => Promise<void>;

/**
 * Checks a session and the devices once, for all responses of a batch.
 * @param statement of a session that was checked. @param evidence of the devices that signed.
 * @returns the check of one response: `signature` in base64, `rawHash` the SHA-256 of raw in hex.
 * @throws {CheckFailure} cpu_malformed, cpu_devices_mismatch
 */
export async function answerChecker(statement: string, evidence: readonly Evidence[]): Promise<CheckAnswer> {
  const session = await readHeld(statement);
  await checkDevices(session, evidence);
  return async (signature, rawHash) => {
    const answer = { rawHash, evidence, timestamp: null };
    await checkSignature({ ...session, signature: signatureOf(signature) }, answer);
  };
}
