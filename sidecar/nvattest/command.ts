// The nvattest command line, as its releases since 1.0.0 have it (docs.nvidia.com/attestation, SDK CLI, command reference).
import { isAbsolute } from 'node:path';
import type { ZodType } from 'zod';
import { type Finished, RunError, runProgram } from '../program.ts';
import type { NvattestEnvironment } from './environment.ts';
import { attestOutput, collectOutput, lastWords, type PrintedEvidence, resultOutput, versionOutput } from './output.ts';
import { failure, resultError } from './result.ts';
import { whyRefused } from './why.ts';

export interface NvattestCommand {
  /** A path, or a name to be found in `environment.PATH`. */
  readonly program: string;
  readonly environment: NvattestEnvironment;
  readonly deadline_ms: number;
}

/** Working directory and abort of one run. */
export interface Run {
  readonly cwd: string;
  readonly signal?: AbortSignal;
}

export interface AttestArguments {
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
      throw failure('collection_failed', reason, `nvattest ${args[0]}: ${cause.message}`, 'retry', { cause });
    }
    const where = isAbsolute(program) ? program : `${program} (in PATH)`;
    const words = `${where} cannot be run (${cause.reason}); install the package nvattest, or name the program in NVATTEST`;
    throw failure('collection_failed', 'no_nvattest', words, 'stop', { cause });
  }
}

/** `result_code` decides; an exit status that does not agree with it is a failure too. */
function checkResult(finished: Finished): void {
  const { exit_code, exit_signal, stdout, stderr } = finished;
  const said = lastWords(stderr);
  if (exit_signal !== null)
    throw failure('collection_failed', 'nvattest_died', `nvattest ended by ${exit_signal}`, 'retry');
  if (stdout.trim() === '' && isUsageExit(exit_code)) {
    const words = `nvattest does not know an option of release 1.0.0 (${said}); install a newer one`;
    throw failure('collection_failed', 'nvattest_usage', words, 'stop');
  }
  const output = read(finished, resultOutput);
  const { result_code, result_message } = output;
  if (result_code !== 0) throw resultError(result_code, whyRefused(output) || result_message.slice(0, 200) || said);
  if (exit_code !== 0)
    throw failure(
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
    throw failure('collection_failed', 'nvattest_garbage', words, 'retry', { cause });
  }
}
