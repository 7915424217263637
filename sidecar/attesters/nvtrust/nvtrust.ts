// ATTESTER=nvtrust: NVIDIA's Python SDK with its local verifier, in one-shot workers kept warm (docs/operate.md).
import { createHash } from 'node:crypto';
import { accessSync, constants, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { LRUCache } from 'lru-cache';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import { CheckFailure } from '../../../verify/index.ts';
import { type ParsedToken, parseToken } from '../../../verify/service.ts';
import { type Attester, AttesterError, type Collected, type Device } from '../../common/attester.ts';
import { fetchThrough } from '../../common/http.ts';
import { type ProgramEnvironment, unreffed } from '../../common/program.ts';
import { backoffMs, WORKER_START } from '../../common/retry.ts';
import { createWaiters } from '../../common/waiters.ts';
import { createStore } from '../native/kept-collateral.ts';
import { failure } from './failures.ts';
import { startKeptServices } from './services.ts';
import { EXIT_GRACE_MS, startWorker, type Worker, type WorkerResult } from './worker.ts';

export interface NvtrustOptions {
  /** The virtual environment that `sidecar/attesters/nvtrust/python/install.sh` made. */
  readonly venv: string;
  /** The setting `worker_environment`: the addresses of NVIDIA's RIM and OCSP services, the service key, proxies. */
  readonly environment: ProgramEnvironment;
  /** Where reference values and OCSP responses are kept across restarts; without it, in memory. */
  readonly cache_dir?: string;
  /** Worker processes kept at all times. With two, one is at work and one warm. */
  readonly workers: number;
  /** From the nonce to the result; 45 s by default: NVIDIA's own limit for one NVML call is 30 s. */
  readonly answer_deadline_ms?: number;
  /** From a worker's start until it is warm; 60 s by default. */
  readonly start_deadline_ms?: number;
  /** The delay before a start that follows a failed one; 250 ms by default, doubled up to 30 s. */
  readonly backoff_ms?: number;
  /** The command to start in place of NVIDIA's SDK, for tests of the pool. */
  readonly command?: readonly [string, ...string[]];
  /** Called when a worker could not start, or ended while it waited. */
  readonly onFailure?: (error: Error) => void;
}

const WORKER = fileURLToPath(new URL('./python/worker.py', import.meta.url));

/** Returns once a worker is warm. @throws {AttesterError} when no worker can start: no SDK, no driver, CC mode off. */
export async function createNvtrustAttester(options: NvtrustOptions): Promise<Attester> {
  const {
    workers,
    answer_deadline_ms = 45_000,
    start_deadline_ms = 60_000,
    backoff_ms = WORKER_START.first_ms,
  } = options;
  const command = options.command ?? [interpreter(options.venv), WORKER];
  const onStoreFailure = (message: string) => options.onFailure?.(new Error(message));
  const services = await startKeptServices({
    environment: options.environment,
    store:
      options.cache_dir === undefined ? null : createStore({ folder: options.cache_dir, onFailure: onStoreFailure }),
    fetch: fetchThrough(options.environment),
  });
  const folder = makeWorkerFolder();
  const pool = createPool({
    size: workers,
    backoff_ms,
    max_backoff_ms: WORKER_START.max_ms,
    onFailure: options.onFailure,
    start: () =>
      startWorker({
        command,
        environment: services.environment,
        folder: folder.path,
        start_deadline_ms,
        answer_deadline_ms,
      }),
  });
  const close = async () => {
    await pool.close();
    await services.close();
    await folder.remove();
  };
  const devices = await pool.devices.catch(async (cause: AttesterError) => {
    await close();
    throw cause.at('ATTESTER=nvtrust cannot run here');
  });
  const checked = createResultCheck();

  return {
    name: 'nvtrust',
    devices,
    simulated: null,
    async attest(nonce: Nonce, signal: AbortSignal) {
      const worker = await pool.take(signal);
      const listed = await worker.ready;
      try {
        return checked(await worker.attest(nonce, signal), nonce, listed.length);
      } catch (error) {
        // Documents that are kept may be the reason: they are fetched again at the next attempt.
        if (error instanceof AttesterError && error.code === 'appraisal_failed' && !error.retryable)
          await services.forget();
        throw error;
      }
    },
    close,
  };
}

function interpreter(venv: string): string {
  const path = join(venv, 'bin', 'python');
  try {
    accessSync(path, constants.X_OK);
  } catch (cause) {
    const message = `${path} is not there; NVTRUST_VENV names the folder that sidecar/attesters/nvtrust/python/install.sh made`;
    throw failure('no_sdk', message, { cause });
  }
  return path;
}

// Checks a worker's result before the attester returns it: about this nonce, positive, about every device, and new.

/** How many of the last attestation tokens are remembered, by digest. */
const REMEMBERED = 1024;

/** `device_count`: GPUs and switches when the worker started. `signing/evidence-check.ts` checks the signatures of reports. */
type ResultCheck = (result: WorkerResult, nonce: Nonce, device_count: number) => Collected;

function createResultCheck(): ResultCheck {
  const returned = new LRUCache<string, true>({ max: REMEMBERED });
  return ({ nonce: stated, token, evidence }, nonce, device_count) => {
    if (stated !== nonce) throw failure('wrong_nonce', 'the worker answered for another nonce');
    const digest = createHash('sha256').update(token).digest('base64');
    if (returned.has(digest)) throw failure('previous_token', 'the worker returned a token that was given before');
    const parsed = read(token);
    // NVIDIA's SDK keeps its last token, about another nonce, and returns it after a failure.
    if (parsed.nonces.length === 0 || parsed.nonces.some((one) => one !== nonce))
      throw failure('previous_token', 'the token is about another nonce');
    if (parsed.overallResult !== true)
      throw failure('token_refused', "the token does not say that NVIDIA's verifier agreed");
    if (evidence.length !== device_count)
      throw failure('wrong_device_count', `evidence of ${evidence.length} devices where there are ${device_count}`);
    if (parsed.devices.length !== device_count)
      throw failure('wrong_device_count', `the token speaks of ${parsed.devices.length} devices of ${device_count}`);
    returned.set(digest, true);
    return { token, evidence };
  };
}

function read(token: string): ParsedToken {
  try {
    return parseToken(token);
  } catch (cause) {
    if (!(cause instanceof CheckFailure)) throw cause;
    throw failure('token_refused', `the token cannot be read: ${cause.message}`, { cause });
  }
}

// The folder that holds the workers' folders. It is removed when this process ends, or by the next process where this one was killed.

const PREFIX = 'countersign-nvtrust-';

interface WorkerFolder {
  readonly path: string;
  remove(): Promise<void>;
}

/** Mode 0700, as mkdtemp makes it. */
function makeWorkerFolder(): WorkerFolder {
  const parent = tmpdir();
  sweep(parent);
  const path = mkdtempSync(join(parent, `${PREFIX}${process.pid}-`));
  return { path, remove: () => rm(path, { recursive: true, force: true }) };
}

function sweep(parent: string): void {
  for (const name of readdirSync(parent)) {
    const pid = new RegExp(`^${PREFIX}([1-9][0-9]*)-`).exec(name)?.[1];
    if (pid === undefined || isAlive(Number(pid))) continue;
    try {
      rmSync(join(parent, name), { recursive: true, force: true });
    } catch {
      // The folder belongs to another user, who removes it.
    }
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

// The pool of workers: always `size` processes, each starting, warm or at work. A worker that ends is replaced.

interface PoolOptions {
  readonly size: number;
  readonly start: () => Worker;
  /** The delay before the start after a failed one; doubled at each further failure, up to the maximum. */
  readonly backoff_ms: number;
  readonly max_backoff_ms: number;
  /** Called when a start failed or a warm worker ended, for the log. */
  readonly onFailure?: ((error: Error) => void) | undefined;
}

interface Pool {
  /** The devices that the first warm worker sees. @throws {AttesterError} when it cannot start. */
  readonly devices: Promise<readonly Device[]>;
  /** A warm worker, for one request; the caller must use it or kill it. @throws {AttesterError} when none can start. */
  take(signal: AbortSignal): Promise<Worker>;
  close(): Promise<void>;
}

export function createPool(options: PoolOptions): Pool {
  const alive = new Set<Worker>();
  const starting = new Set<Worker>();
  const warm = new Set<Worker>();
  const waiters = createWaiters<Worker>();
  const first = Promise.withResolvers<readonly Device[]>();
  first.promise.catch(() => {});
  let failures = 0;
  let last: AttesterError | null = null;
  let timer: NodeJS.Timeout | null = null;
  let closed = false;

  function fill(): void {
    // After a failure workers start one at a time: two do not help a node without a driver.
    while (!closed && timer === null && alive.size < options.size && !(failures > 0 && starting.size > 0)) add();
  }

  function add(): void {
    const worker = options.start();
    alive.add(worker);
    starting.add(worker);
    worker.ready.then(
      (devices) => {
        starting.delete(worker);
        if (!alive.has(worker)) return;
        failures = 0;
        first.resolve(devices);
        if (!waiters.give(worker)) warm.add(worker);
        fill();
      },
      (error: AttesterError) => {
        starting.delete(worker);
        first.reject(error);
        report(error);
      },
    );
    void worker.gone.then(() => {
      alive.delete(worker);
      if (warm.delete(worker)) report(failure('worker_died', 'a worker left while it waited'));
      if (!starting.has(worker)) fill(); // else `ready` is about to report the failure
    });
  }

  function report(error: AttesterError): void {
    if (closed) return;
    last = error;
    options.onFailure?.(error);
    const wait_ms = backoffMs({ first_ms: options.backoff_ms, max_ms: options.max_backoff_ms }, failures++);
    timer ??= setTimeout(() => {
      timer = null;
      fill();
    }, wait_ms);
    if (warm.size === 0 && starting.size === 0) waiters.refuseAll(error);
  }

  fill();
  return {
    devices: first.promise,
    take(signal) {
      const [worker] = warm;
      if (worker !== undefined) {
        warm.delete(worker);
        return Promise.resolve(worker);
      }
      if (closed) return Promise.reject(failure('worker_died', 'the workers have been dismissed'));
      if (last !== null && timer !== null && starting.size === 0) return Promise.reject(last);
      return waiters.wait(signal);
    },
    async close() {
      closed = true;
      if (timer !== null) clearTimeout(timer);
      waiters.refuseAll(failure('worker_died', 'the workers have been dismissed'));
      warm.clear();
      for (const worker of alive) worker.kill();
      await Promise.race([Promise.all([...alive].map((worker) => worker.gone)), unreffed(EXIT_GRACE_MS)]);
    },
  };
}
