// The nvattest command line, as its releases since 1.0.0 have it (docs.nvidia.com/attestation, SDK CLI, command reference).
import { isAbsolute } from 'node:path';
import type { ZodType } from 'zod';
import * as z from 'zod';
import { failed } from '../attester.ts';
import type { NvattestEnvironment } from '../program.ts';
import { type Finished, RunError, runProgram } from '../program.ts';
import { resultError, whyRefused } from './failures.ts';

// What nvattest prints on stdout with `--format json`, read strictly where we rely on it.

const result = { result_code: z.int().min(0).max(65_535), result_message: z.string().max(4096).default('') };
const base64 = z
  .string()
  .min(4)
  .max(4_000_000)
  .regex(/^[A-Za-z0-9+/]+={0,2}$/);

/** One device's evidence. Releases differ in what else it holds (version, vbios_version, driver_version): kept for `attest`. */
const printedEvidence = z.looseObject({
  arch: z.string().min(1).max(32),
  nonce: z.string().regex(/^[0-9a-fA-F]{64}$/),
  /** base64: the SPDM request and its signed response. */
  evidence: base64,
  /** base64 of the PEM chain, leaf first. */
  certificate: base64,
});
export type PrintedEvidence = z.infer<typeof printedEvidence>;

const resultOutput = z.looseObject(result);
/** `nvattest collect-evidence`; without evidences where it failed. */
const collectOutput = z.looseObject({ ...result, evidences: z.array(printedEvidence).min(1).max(64) });
/** `nvattest attest`; both empty objects where it failed. What is in them is for the token's reader. */
const attestOutput = z.looseObject({
  ...result,
  claims: z.array(z.unknown()),
  detached_eat: z.array(z.unknown()),
});
/** `nvattest version` */
const versionOutput = z.looseObject({ nvattest: z.string().min(1).max(64) });

/** The last line that nvattest wrote on stderr, where it logs in colour and ends with a backtrace; '' when it wrote none. */
function lastWords(stderr: string): string {
  const lines = stderr
    // biome-ignore lint/suspicious/noControlCharactersInRegex: terminal colours begin with one
    .replace(/\x1b\[[0-9;]*m/g, '')
    .split('\n')
    .map((line) => line.replace(/[^\x20-\x7e]+/g, ' ').trim())
    .filter((line) => line !== '');
  return (lines.at(-1) ?? '').slice(0, 300);
}

export interface NvattestCommand {
  /** A path, or a name to be found in `environment.PATH`. */
  readonly program: string;
  readonly environment: NvattestEnvironment;
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
const COMMON = ['--format', 'json', '--log-level', 'error'] as const;
/** CLI11's exit codes for a command line that it does not understand. Results may have the same, but print JSON. */
const isUsageExit = (exit_code: number | null) => exit_code !== null && exit_code >= 100 && exit_code <= 127;

/** `nvattest version`: "1.1.0". @throws {AttesterError} nvattest is not there, or is something else. */
export async function version(command: NvattestCommand, run: Run): Promise<string> {
  const finished = await execute(command, ['version'], run);
  return read(finished, versionOutput).nvattest;
}

/** Evidence of every GPU over `nonce`, through NVML. @throws {AttesterError} */
export async function collectEvidence(command: NvattestCommand, nonce: string, run: Run): Promise<PrintedEvidence[]> {
  const args = ['collect-evidence', '--device', 'gpu', '--gpu-evidence-source', 'nvml', '--nonce', nonce, ...COMMON];
  const finished = await execute(command, args, run);
  checkResult(finished);
  return read(finished, collectOutput).evidences;
}

/** Appraises collected evidence with NVIDIA's local verifier. @returns what it printed: the token. @throws {AttesterError} */
export async function attest(command: NvattestCommand, over: AttestArguments, run: Run): Promise<string> {
  const args = ['attest', '--device', 'gpu', '--verifier', 'local', '--nonce', over.nonce];
  args.push('--gpu-evidence-source', 'file', '--gpu-evidence-file', over.evidence_file);
  args.push('--relying-party-policy', over.policy_file);
  if (over.rim_url !== undefined) args.push('--rim-url', over.rim_url);
  if (over.ocsp_url !== undefined) args.push('--ocsp-url', over.ocsp_url);
  const finished = await execute(command, [...args, ...COMMON], run);
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
    const words = `${where} cannot be run (${cause.reason}); install the package nvattest, or name the program in NVATTEST`;
    throw failed('collection_failed', 'no_nvattest', words, 'stop', { cause });
  }
}

/** `result_code` decides; an exit status that does not agree with it is a failure too. */
function checkResult(finished: Finished): void {
  const { exit_code, exit_signal, stdout, stderr } = finished;
  const said = lastWords(stderr);
  if (exit_signal !== null)
    throw failed('collection_failed', 'nvattest_died', `nvattest ended by ${exit_signal}`, 'retry');
  if (stdout.trim() === '' && isUsageExit(exit_code)) {
    const words = `nvattest does not know an option of release 1.0.0 (${said}); install a newer one`;
    throw failed('collection_failed', 'nvattest_usage', words, 'stop');
  }
  const output = read(finished, resultOutput);
  const { result_code, result_message } = output;
  if (result_code !== 0) throw resultError(result_code, whyRefused(output) || result_message.slice(0, 200) || said);
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
    const said = lastWords(stderr);
    const words = `nvattest printed something else than its JSON (exit code ${exit_code}${said === '' ? '' : `: ${said}`})`;
    throw failed('collection_failed', 'nvattest_garbage', words, 'retry', { cause });
  }
}
