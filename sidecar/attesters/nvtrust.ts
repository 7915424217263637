// ATTESTER=nvtrust: NVIDIA's Python SDK with its local verifier, in one-shot workers kept warm (DESIGN §10).
import { accessSync, constants } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Nonce } from '../../proto/raw.ts';
import { type Attester, AttesterError } from '../attester.ts';
import { createAnswerCheck } from '../nvtrust/answer.ts';
import type { WorkerEnvironment } from '../nvtrust/environment.ts';
import { failure } from '../nvtrust/failure.ts';
import { makeWorkerFolder } from '../nvtrust/folder.ts';
import { createPool } from '../nvtrust/pool.ts';
import { startWorker } from '../nvtrust/worker.ts';

export interface NvtrustOptions {
  /** The virtual environment that `sidecar/nvtrust/install.sh` made. */
  readonly venv: string;
  /** From `workerEnvironment`: where NVIDIA's RIM and OCSP services are, the service key, the way to the network. */
  readonly environment: WorkerEnvironment;
  /** Worker processes kept at all times, 1 to 16; 2 by default: one at work, one warm. */
  readonly workers?: number;
  /** From the nonce to the answer; 45 s by default: NVIDIA's own limit for one NVML call is 30 s. */
  readonly answer_deadline_ms?: number;
  /** From a worker's start to its being warm; 60 s by default. */
  readonly start_deadline_ms?: number;
  /** Before a start that follows a failed one; 250 ms by default, doubled up to 30 s. */
  readonly backoff_ms?: number;
  /** What is started in place of NVIDIA's SDK: for tests of the pool. */
  readonly command?: readonly [string, ...string[]];
  /** A worker could not start, or left while it waited. */
  readonly onTrouble?: (error: Error) => void;
}

const WORKER = fileURLToPath(new URL('../nvtrust/worker.py', import.meta.url));
const MAX_WORKERS = 16;
const MAX_BACKOFF_MS = 30_000;

/** Returns once a worker is warm. @throws {AttesterError} when none can be: no SDK, no driver, CC mode off. */
export async function createNvtrustAttester(options: NvtrustOptions): Promise<Attester> {
  const { workers = 2, answer_deadline_ms = 45_000, start_deadline_ms = 60_000, backoff_ms = 250 } = options;
  if (!Number.isInteger(workers) || workers < 1 || workers > MAX_WORKERS)
    throw new AttesterError('collection_failed', `nvtrust runs 1 to ${MAX_WORKERS} workers`, false);
  const command = options.command ?? [interpreter(options.venv), WORKER];
  const folder = makeWorkerFolder();
  const pool = createPool({
    size: workers,
    backoff_ms,
    max_backoff_ms: MAX_BACKOFF_MS,
    onTrouble: options.onTrouble,
    start: () =>
      startWorker({
        command,
        environment: options.environment,
        folder: folder.path,
        start_deadline_ms,
        answer_deadline_ms,
      }),
  });
  const close = async () => {
    await pool.close();
    await folder.remove();
  };
  const devices = await pool.devices.catch(async (cause: AttesterError) => {
    await close();
    throw new AttesterError(cause.code, `ATTESTER=nvtrust cannot run here: ${cause.message}`, cause.retryable, {
      cause,
    });
  });
  const checked = createAnswerCheck();

  return {
    name: 'nvtrust',
    devices,
    simulated: null,
    async attest(nonce: Nonce, signal: AbortSignal) {
      const worker = await pool.take(signal);
      const listed = await worker.ready;
      return checked(await worker.attest(nonce, signal), nonce, listed.length);
    },
    close,
  };
}

function interpreter(venv: string): string {
  const path = join(venv, 'bin', 'python');
  try {
    accessSync(path, constants.X_OK);
  } catch (cause) {
    const message = `${path} is not there; NVTRUST_VENV names the folder that sidecar/nvtrust/install.sh made`;
    throw failure('no_sdk', message, { cause });
  }
  return path;
}
