// The nvattest command line, as its releases since 1.0.0 have it (docs.nvidia.com/attestation, SDK CLI, command reference).

import { isAbsolute } from 'node:path';
import type { ZodType } from 'zod';
import * as z from 'zod';
import { MAX_DEVICES } from '../../../proto/attestation/attestation.ts';
import { base64Schema } from '../../../proto/attestation/attestation-schema.ts';
import { isObject } from '../../../proto/json.ts';
import { type AttesterError, failed, type Reason } from '../../common/attester.ts';
import { type Finished, lastLineOf, type ProgramEnvironment, RunError, runProgram } from '../../common/program.ts';

// What nvattest prints on stdout with `--format json`, read strictly where we rely on it.

const result = { result_code: z.int().min(0).max(65_535), result_message: z.string().max(4096).default('') };

/** One device's evidence. Other members differ by release (version, vbios_version, driver_version) and are kept for `attest`. */
const printedEvidence = z.looseObject({
  arch: z.string().min(1).max(32),
  nonce: z.string().regex(/^[0-9a-fA-F]{64}$/),
  /** base64: the SPDM request and its signed response. */
  evidence: base64Schema,
  /** base64 of the PEM chain, leaf first. */
  certificate: base64Schema,
});
export type PrintedEvidence = z.infer<typeof printedEvidence>;

const resultOutput = z.looseObject(result);
/** `nvattest collect-evidence`; without evidences where it failed. */
const collectOutput = z.looseObject({ ...result, evidences: z.array(printedEvidence).min(1).max(MAX_DEVICES) });
/** `nvattest attest`; both empty objects where it failed. parseToken reads their contents. */
const attestOutput = z.looseObject({
  ...result,
  claims: z.array(z.unknown()),
  detached_eat: z.array(z.unknown()),
});
/** `nvattest version` */
const versionOutput = z.looseObject({ nvattest: z.string().min(1).max(64) });

export interface NvattestCommand {
  /** A path, or a name to be found in `environment.PATH`. */
  readonly program: string;
  readonly environment: ProgramEnvironment;
  readonly deadline_ms: number;
}

/** Working directory and abort of one run. */
interface Run {
  readonly cwd: string;
  readonly signal?: AbortSignal;
}

interface AttestArguments {
  readonly nonce: string;
  readonly evidence_file: string;
  readonly policy_file: string;
  readonly rim_url?: string | undefined;
  readonly ocsp_url?: string | undefined;
}

/** Room for 64 GPUs' evidence or claims. */
const MAX_OUTPUT_BYTES = 8 * 1024 * 1024;
const OPTIONS = ['--format', 'json', '--log-level', 'error'] as const;
/** CLI11's exit codes for a command line that it does not understand. A result may have the same code, but prints JSON. */
const isUsageExit = (exit_code: number | null) => exit_code !== null && exit_code >= 100 && exit_code <= 127;

/** `nvattest version`: "1.1.0". @throws {AttesterError} nvattest is missing, or is another program. */
export async function version(command: NvattestCommand, run: Run): Promise<string> {
  const finished = await execute(command, ['version'], run);
  return read(finished, versionOutput).nvattest;
}

/** Evidence of every GPU over `nonce`, through NVML. @throws {AttesterError} */
export async function collectEvidence(command: NvattestCommand, nonce: string, run: Run): Promise<PrintedEvidence[]> {
  const args = ['collect-evidence', '--device', 'gpu', '--gpu-evidence-source', 'nvml', '--nonce', nonce, ...OPTIONS];
  const finished = await execute(command, args, run);
  checkResult(finished);
  return read(finished, collectOutput).evidences;
}

/** Appraises collected evidence with NVIDIA's local verifier. @returns its output, the attestation token. @throws {AttesterError} */
export async function attest(command: NvattestCommand, request: AttestArguments, run: Run): Promise<string> {
  const args = ['attest', '--device', 'gpu', '--verifier', 'local', '--nonce', request.nonce];
  args.push('--gpu-evidence-source', 'file', '--gpu-evidence-file', request.evidence_file);
  args.push('--relying-party-policy', request.policy_file);
  if (request.rim_url !== undefined) args.push('--rim-url', request.rim_url);
  if (request.ocsp_url !== undefined) args.push('--ocsp-url', request.ocsp_url);
  const finished = await execute(command, [...args, ...OPTIONS], run);
  checkResult(finished);
  read(finished, attestOutput);
  return finished.stdout.trim();
}

async function execute(command: NvattestCommand, args: readonly string[], run: Run): Promise<Finished> {
  const { program, environment, deadline_ms } = command;
  const env = { ...environment, HOME: run.cwd, TMPDIR: run.cwd };
  try {
    return await runProgram(program, args, { ...run, env, deadline_ms, max_output_bytes: MAX_OUTPUT_BYTES });
  } catch (cause) {
    if (!(cause instanceof RunError)) throw cause;
    if (cause.reason === 'too_slow' || cause.reason === 'too_much') {
      const reason = cause.reason === 'too_slow' ? 'nvattest_timeout' : 'nvattest_garbage';
      throw failed('collection_failed', reason, `nvattest ${args[0]}: ${cause.message}`, 'retry', { cause });
    }
    const where = isAbsolute(program) ? program : `${program} (in PATH)`;
    const words = `${where} cannot be run (${cause.reason}); install the package nvattest`;
    throw failed('collection_failed', 'no_nvattest', words, 'stop', { cause });
  }
}

/** `result_code` decides; an exit status that does not agree with it is a failure too. */
function checkResult(finished: Finished): void {
  const { exit_code, exit_signal, stdout, stderr } = finished;
  const detail = lastLineOf(stderr);
  if (exit_signal !== null)
    throw failed('collection_failed', 'nvattest_died', `nvattest ended by ${exit_signal}`, 'retry');
  if (stdout.trim() === '' && isUsageExit(exit_code)) {
    const words = `nvattest does not know an option of release 1.0.0 (${detail}); install a newer one`;
    throw failed('collection_failed', 'nvattest_usage', words, 'stop');
  }
  const output = read(finished, resultOutput);
  const { result_code, result_message } = output;
  if (result_code !== 0)
    throw resultError(result_code, refusalReasons(output) || result_message.slice(0, 200) || detail);
  if (exit_code !== 0)
    throw failed(
      'collection_failed',
      'nvattest_died',
      `nvattest said Ok and ended with exit code ${exit_code}`,
      'retry',
    );
}

function read<T>({ stdout, stderr, exit_code }: Finished, schema: ZodType<T>): T {
  try {
    return schema.parse(JSON.parse(stdout));
  } catch (cause) {
    const detail = lastLineOf(stderr);
    const words = `nvattest printed something else than its JSON (exit code ${exit_code}${detail === '' ? '' : `: ${detail}`})`;
    throw failed('collection_failed', 'nvattest_garbage', words, 'retry', { cause });
  }
}

// What nvattest's result codes mean to an operator: a reason, whether a retry can help, and what to do.
// The codes are those of `nvat_rc_t` in nvat.h of NVIDIA/attestation-sdk. Newer releases may add others. The process's exit status
// is the code cut to eight bits, so only `result_code` in the JSON identifies it.

type Code = AttesterError['code'];
type Again = 'retry' | 'stop';
type Meaning = readonly [reason: Reason, code: Code, again: Again, words: string];

const SERVICE_KEY = 'NVIDIA asks for a service key: name it in NRAS_SERVICE_KEY_FILE';
const RIM_AWAY = 'the RIM service cannot be reached; look at RIM_URL and the network';
const UPDATE = 'install a newer nvattest';
const FOR_NEW_DRIVERS = 'drivers of CUDA 13.5 and later need nvattest 2.0.0';

const MEANINGS: Readonly<Record<number, Meaning>> = {
  1: ['nvattest_failed', 'appraisal_failed', 'retry', 'nvattest failed without saying why'],
  2: ['nvattest_failed', 'appraisal_failed', 'retry', 'nvattest failed inside'],
  4: ['nvattest_usage', 'collection_failed', 'stop', `nvattest refused an argument; ${UPDATE}`],
  5: ['nvattest_failed', 'collection_failed', 'retry', 'nvattest ran out of memory'],
  6: ['nvattest_build', 'collection_failed', 'stop', "this nvattest was built without NVML; install NVIDIA's package"],
  7: ['nvattest_build', 'collection_failed', 'stop', 'nvattest cannot load libxml2 or xmlsec; install them'],
  8: ['nvattest_build', 'collection_failed', 'stop', 'nvattest cannot load libcurl; install it'],
  11: [
    'policy_refused',
    'appraisal_failed',
    'stop',
    'the claims do not satisfy sidecar/attesters/nvattest/policy.rego',
  ],
  12: ['refused', 'appraisal_failed', 'stop', "NVIDIA's verifier says that the device does not pass"],
  15: ['rate_limited', 'appraisal_failed', 'retry', 'NVIDIA limits the rate of requests; wait some minutes'],
  16: ['report_invalid', 'appraisal_failed', 'stop', 'the evidence cannot be read'],
  17: ['report_signature', 'appraisal_failed', 'stop', "the report's signature does not verify"],
  18: ['nonce_mismatch', 'appraisal_failed', 'stop', 'the evidence is over another nonce'],
  19: ['nonce_mismatch', 'appraisal_failed', 'stop', 'the token is about another nonce'],
  101: ['rim_forbidden', 'appraisal_failed', 'stop', SERVICE_KEY],
  102: ['rim_unreachable', 'appraisal_failed', 'retry', 'the RIM service has an error of its own'],
  103: ['rim_unreachable', 'appraisal_failed', 'retry', RIM_AWAY],
  104: ['rim_not_found', 'appraisal_failed', 'stop', 'no reference values for this driver or VBIOS; use one that has'],
  105: ['rim_refused', 'appraisal_failed', 'stop', "the reference values' signature does not verify"],
  106: ['rim_refused', 'appraisal_failed', 'stop', 'the reference values are not in their format'],
  107: ['measurement_mismatch', 'appraisal_failed', 'stop', 'a measurement is missing in the reference values'],
  108: ['measurement_mismatch', 'appraisal_failed', 'stop', 'driver and VBIOS reference values contradict each other'],
  // It is not documented which of the two an unreachable responder causes: both may be retried.
  201: ['ocsp_unreachable', 'appraisal_failed', 'retry', 'no usable OCSP answer; look at OCSP_URL and the network'],
  202: ['ocsp_unreachable', 'appraisal_failed', 'retry', 'the OCSP responder has an error of its own'],
  203: ['ocsp_refused', 'appraisal_failed', 'stop', 'the OCSP responder refused the request; look at OCSP_URL'],
  204: ['ocsp_revoked', 'appraisal_failed', 'stop', 'a certificate is revoked or not known to its issuer'],
  205: ['ocsp_forbidden', 'appraisal_failed', 'stop', SERVICE_KEY],
  301: ['policy_broken', 'appraisal_failed', 'stop', `nvattest cannot evaluate policy.rego; ${UPDATE}`],
  402: ['new_format', 'appraisal_failed', 'stop', `the report's opaque data cannot be read; ${FOR_NEW_DRIVERS}`],
  500: ['no_driver', 'collection_failed', 'stop', 'the NVIDIA driver is not loaded; look at nvidia-smi'],
  // NVML's own code is not reported: the GPU may have been busy, or may be gone.
  501: ['nvml_error', 'collection_failed', 'retry', 'the driver gave no report; look at nvidia-smi and dmesg'],
  502: ['unsupported_gpu', 'collection_failed', 'stop', 'a GPU here cannot attest; Hopper and Blackwell can'],
  503: ['report_invalid', 'appraisal_failed', 'stop', 'the evidence is not valid'],
  504: ['nonce_mismatch', 'appraisal_failed', 'stop', 'the report is over another nonce'],
  505: ['version_mismatch', 'appraisal_failed', 'stop', 'the reference values are for another driver'],
  506: ['version_mismatch', 'appraisal_failed', 'stop', 'the reference values are for another VBIOS'],
  507: ['firmware_id', 'appraisal_failed', 'stop', "the report's firmware is not the certificate's"],
  508: ['report_signature', 'appraisal_failed', 'stop', "the report's signature does not verify"],
  509: ['cc_off', 'collection_failed', 'stop', 'confidential computing is off; turn it on from the host and restart'],
  510: ['unsupported_firmware', 'collection_failed', 'stop', `nvattest does not know this firmware; ${UPDATE}`],
  800: ['firmware_id', 'appraisal_failed', 'stop', "the device's certificate names no firmware"],
  801: ['certificate_chain', 'appraisal_failed', 'stop', 'a certificate is missing in the chain'],
  802: ['certificate_chain', 'appraisal_failed', 'stop', 'the certificate chain does not verify'],
};

const RANGES: readonly (readonly [from: number, reason: Reason, code: Code])[] = [
  [900, 'nvattest_failed', 'appraisal_failed'],
  [800, 'certificate_chain', 'appraisal_failed'],
  [700, 'nras_error', 'appraisal_failed'],
  [600, 'switch_error', 'collection_failed'],
  [500, 'gpu_error', 'collection_failed'],
  [400, 'report_invalid', 'appraisal_failed'],
  [300, 'policy_broken', 'appraisal_failed'],
  [200, 'ocsp_refused', 'appraisal_failed'],
  [100, 'rim_refused', 'appraisal_failed'],
  [0, 'nvattest_failed', 'appraisal_failed'],
];

/** For a `result_code` that is not 0. @param detail the reasons in the claims, or nvattest's own words. */
function resultError(result_code: number, detail: string): AttesterError {
  const [reason, code, again, words] = MEANINGS[result_code] ?? unknown(result_code);
  const quoted = detail === '' ? '' : `: ${detail.slice(0, 500)}`;
  return failed(code, reason, `${words} (nvattest ${result_code}${quoted})`, again);
}

function unknown(result_code: number): Meaning {
  const range = RANGES.find(([from]) => result_code >= from);
  const [, reason, code] = range ?? ([0, 'nvattest_failed', 'appraisal_failed'] as const);
  return [reason, code, 'stop', 'a result that we do not know; look at the release notes of nvattest'];
}

// The reasons of NVIDIA's verifier: results 11 and 12 name none, but the claims that are printed with them do.

/** Reasons are for operators: enough of them to see where to look. */
const MAX_REASONS = 6;

/** "GPU 0: measurements 9, 52 differ; ocsp revoked", or '' where the claims name no reason. @param output what nvattest printed. */
function refusalReasons(output: unknown): string {
  const claims = isObject(output) && Array.isArray(output.claims) ? output.claims : [];
  return claims
    .slice(0, MAX_DEVICES)
    .map((device: unknown, i) => [i, isObject(device) ? reasonsOf(device) : []] as const)
    .filter(([, reasons]) => reasons.length > 0)
    .map(([i, reasons]) => `GPU ${i}: ${reasons.slice(0, MAX_REASONS).join('; ')}`)
    .join('. ');
}

function reasonsOf(device: Readonly<Record<string, unknown>>): string[] {
  const reasons: string[] = [];
  const different = device['x-nvidia-mismatch-measurement-records'];
  if (Array.isArray(different))
    reasons.push(`measurements ${different.slice(0, 8).map(indexOf).join(', ')} differ from the reference values`);
  else if (device.measres !== undefined && device.measres !== 'success')
    reasons.push(`measres ${word(device.measres)}`);
  if (Array.isArray(device['x-nvidia-mismatch-opaque-data-records'])) reasons.push('opaque data differs');
  if (device.dbgstat !== undefined && device.dbgstat !== 'disabled') reasons.push(`dbgstat ${word(device.dbgstat)}`);
  for (const [name, value] of Object.entries(device)) {
    const short = word(name.replace(/^x-nvidia-(gpu-)?/, ''));
    if (value === false) reasons.push(`${short} is false`);
    if (!isObject(value) || !name.endsWith('-cert-chain')) continue;
    const status = value['x-nvidia-cert-status'];
    const revocation = value['x-nvidia-cert-ocsp-status'];
    if (status !== 'valid') reasons.push(`${short} ${word(status)}`);
    if (revocation !== 'good') reasons.push(`${short}: ocsp ${word(revocation)}`);
  }
  return reasons;
}

const indexOf = (record: unknown) => (isObject(record) && typeof record.index === 'number' ? record.index : '?');
const word = (value: unknown) =>
  String(value)
    .replace(/[^\w .:-]/g, '')
    .slice(0, 64);
