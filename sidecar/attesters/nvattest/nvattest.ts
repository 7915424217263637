// ATTESTER=nvattest: NVIDIA's C++ command line, for drivers that the Python SDK does not read (docs/operate.md).
import { randomBytes, X509Certificate } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import { CheckFailure } from '../../../verify/index.ts';
import { parseToken } from '../../../verify/service.ts';
import { type Attester, AttesterError, type Device, failed } from '../../common/attester.ts';
import { type ProgramEnvironment, withTemporaryFolder } from '../../common/program.ts';
import { attest, collectEvidence, type NvattestCommand, type PrintedEvidence, version } from './command.ts';

interface NvattestOptions {
  /** The setting `nvattest_environment`. */
  readonly environment: ProgramEnvironment;
  /** A path, or a name to be found in PATH. */
  readonly program: string;
  readonly rim_url?: string | undefined;
  readonly ocsp_url?: string | undefined;
  /** For each run of the program (an attestation is two runs); 30 s by default, NVIDIA's own limit for one NVML call. */
  readonly run_deadline_ms?: number;
  /** Called once, before the first collection, with the version of `nvattest`. */
  readonly onVersion?: (version: string) => void;
}

const POLICY = fileURLToPath(new URL('./policy.rego', import.meta.url));
const FOLDER_PREFIX = 'countersign-nvattest-';

/** Returns once evidence was collected over a nonce of its own. @throws {AttesterError} when that cannot be done here. */
export async function createNvattestAttester(options: NvattestOptions): Promise<Attester> {
  const { environment, program, run_deadline_ms = 30_000, rim_url, ocsp_url } = options;
  const command: NvattestCommand = { program, environment, deadline_ms: run_deadline_ms };
  const devices = await withTemporaryFolder(FOLDER_PREFIX, async (cwd) => {
    options.onVersion?.(await version(command, { cwd }));
    const nonce = randomBytes(32).toString('hex');
    return checked(await collectEvidence(command, nonce, { cwd }), nonce).map(deviceOf);
  }).catch((cause: unknown) => {
    throw cause instanceof AttesterError ? cause.at('ATTESTER=nvattest cannot run here') : cause;
  });
  const closing = new AbortController();

  return {
    name: 'nvattest',
    devices,
    simulated: null,
    async attest(nonce: Nonce, signal: AbortSignal) {
      const either = AbortSignal.any([signal, closing.signal]);
      return withTemporaryFolder(FOLDER_PREFIX, async (cwd) => {
        const run = { cwd, signal: either };
        const evidences = checked(await collectEvidence(command, nonce, run), nonce, devices.length);
        const evidence_file = join(cwd, 'evidence.json');
        await writeFile(evidence_file, JSON.stringify(evidences), { mode: 0o600 });
        const request = { nonce, evidence_file, policy_file: POLICY, rim_url, ocsp_url };
        const token = await attest(command, request, run);
        checkToken(token, nonce, devices.length);
        const evidence = evidences.map((one) => ({
          arch: one.arch,
          report: one.evidence,
          certificate_chain: one.certificate,
        }));
        return { token, evidence };
      });
    },
    async close() {
      closing.abort(failed('collection_failed', 'nvattest_died', 'the sidecar is stopping', 'retry'));
    },
  };
}

function checked(evidences: PrintedEvidence[], nonce: string, count = evidences.length): PrintedEvidence[] {
  if (evidences.some((one) => one.nonce.toLowerCase() !== nonce))
    throw failed('appraisal_failed', 'wrong_nonce', 'nvattest collected evidence over another nonce', 'stop');
  if (evidences.length !== count) {
    const words = `evidence of ${evidences.length} GPUs where there were ${count} at the start; restart the sidecar`;
    throw failed('appraisal_failed', 'wrong_device_count', words, 'stop');
  }
  return evidences;
}

/** nvattest does not name the model; the leaf's issuer names the chip, as `hwmodel` does: "GH100 A01 GSP BROM". */
function deviceOf({ arch, certificate }: PrintedEvidence): Device {
  try {
    const { issuer } = new X509Certificate(Buffer.from(certificate, 'base64'));
    return { arch, model: /^CN=(.{1,100})$/m.exec(issuer)?.[1] ?? arch };
  } catch (cause) {
    const words = 'nvattest gave a certificate chain that cannot be read';
    throw failed('collection_failed', 'nvattest_garbage', words, 'retry', { cause });
  }
}

/** signing/evidence-check.ts checks the reports too; this names what is wrong with the program's own result. */
function checkToken(token: string, nonce: Nonce, count: number): void {
  try {
    const { nonces, overallResult, devices } = parseToken(token);
    if (nonces.length === 0 || nonces.some((one) => one !== nonce))
      throw failed('appraisal_failed', 'wrong_nonce', 'the token is about another nonce', 'stop');
    if (overallResult !== true)
      throw failed('appraisal_failed', 'refused', "the token does not say that NVIDIA's verifier agreed", 'stop');
    if (devices.length !== count) {
      const words = `the token speaks of ${devices.length} GPUs of ${count}`;
      throw failed('appraisal_failed', 'wrong_device_count', words, 'stop');
    }
  } catch (cause) {
    if (!(cause instanceof CheckFailure)) throw cause;
    throw failed('appraisal_failed', 'token_refused', `the token cannot be read: ${cause.message}`, 'stop', { cause });
  }
}
