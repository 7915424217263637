import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { failure } from '../../../../sidecar/attesters/nvtrust/failures.ts';
import {
  createNvtrustAttester,
  createPool,
  type NvtrustOptions,
} from '../../../../sidecar/attesters/nvtrust/nvtrust.ts';
import type { Attester } from '../../../../sidecar/common/attester.ts';
import { loadConfig } from '../../../../sidecar/common/config.ts';
import { freshNonce, never } from '../../../support/attest.ts';
import { eventually, type Folder, temporaryFolder } from '../../../support/harness.ts';

const FAKE = fileURLToPath(new URL('nvtrust-fake-worker.ts', import.meta.url));

let folder: Folder;
let attester: Attester | null = null;
let trouble: string[];

beforeEach(() => {
  folder = temporaryFolder();
  trouble = [];
});
afterEach(async () => {
  await attester?.close();
  attester = null;
  expect(leftovers()).toEqual([]);
  expect(processes().filter(alive)).toEqual([]);
  folder.remove();
});

/** Folders of this process's workers that are still there. */
const leftovers = () => readdirSync(tmpdir()).filter((name) => name.startsWith(`countersign-nvtrust-${process.pid}-`));
const read = (file: string) =>
  existsSync(join(folder.path, file)) ? readFileSync(join(folder.path, file), 'utf8') : '';
const tell = (file: 'start' | 'behaviour', what: string) => writeFileSync(join(folder.path, file), what);
const started = () => read('started').split('\n').filter(Boolean);
const processes = () => started().map((line) => Number.parseInt(line, 10));

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z ');
  } catch {
    return false;
  }
}

async function start(options: Partial<NvtrustOptions> = {}): Promise<Attester> {
  attester = await createNvtrustAttester({
    venv: '/nowhere',
    environment: loadConfig({ PATH: process.env.PATH }).worker_environment,
    workers: 2,
    command: [process.execPath, '--disable-warning=ExperimentalWarning', FAKE, folder.path],
    backoff_ms: 20,
    onFailure: (error) => trouble.push(error.message),
    ...options,
  });
  return attester;
}

describe('the workers of nvtrust', () => {
  it('are warm before the first request, serve one each, and are replaced', async () => {
    const warm = await start();
    expect(warm).toMatchObject({ name: 'nvtrust', devices: [{ arch: 'HOPPER', model: 'FAKE' }], simulated: null });
    const nonces = Array.from({ length: 5 }, freshNonce);
    for (const one of nonces) expect((await warm.attest(one, never)).token).toContain('JWT');
    expect(read('asked').split('\n').filter(Boolean)).toEqual(nonces);
    await eventually(() => started().length === 7);
    expect(new Set(processes()).size).toBe(7);
    expect(processes().filter(alive)).toHaveLength(2);
    expect(trouble).toEqual([]);
  });

  it('work in private folders that go with them', async () => {
    const warm = await start({ workers: 1 });
    const [, cwd = ''] = started()[0]?.split(' ') ?? [];
    expect(existsSync(join(cwd, 'attestation_sdk.log'))).toBe(true);
    await warm.attest(freshNonce(), never);
    await eventually(() => !existsSync(cwd));
  });

  it.each([
    ['dies', 'die', 'worker_died: the worker ended by SIGSEGV', true],
    ['ends without a word', 'silent', 'worker_died: the worker ended with exit code 0', true],
    ['prints garbage', 'garbage', 'worker_garbage', true],
    ['breaks off in its answer', 'half', 'worker_garbage', true],
    ['answers with a member that is not known', 'unknown_member', 'worker_garbage', true],
    ['never ends its line', 'huge', 'worker_garbage: a line is longer', true],
    ['answers twice', 'twice', 'worker_second_answer', true],
    ['goes on after its answer', 'then_garbage', 'worker_second_answer', true],
    ['answers for another nonce', 'other_nonce', 'wrong_nonce', false],
    ["returns another request's token", 'other_token', 'previous_token: the token is about another nonce', false],
    ['returns a token that says no', 'says_no', 'token_refused', false],
    ['returns no token', 'no_token', 'token_refused', false],
    ['brings evidence of more GPUs than there are', 'one_gpu_too_many', 'wrong_device_count', false],
    ['gives a reason that is not known', 'unknown_reason', 'worker_garbage', true],
    ['hangs', 'hang', 'worker_timeout: no answer within 700 ms', true],
    ['answers and does not end', 'answers_and_stays', 'worker_timeout', true],
    ['hangs with a process of its own', 'with_child', 'worker_timeout', true],
    ['says that the GPU is busy', 'failed:gpu_busy', 'gpu_busy: as told', true],
    ['says that measurements do not match', 'failed:measurement_mismatch', 'measurement_mismatch: as told', false],
  ])('one that %s is a coded error, and the next one answers', async (_what, behaviour, message, retryable) => {
    const warm = await start({ answer_deadline_ms: 700 });
    tell('behaviour', behaviour);
    await expect(warm.attest(freshNonce(), never)).rejects.toMatchObject({
      name: 'AttesterError',
      message: expect.stringContaining(message),
      retryable,
    });
    tell('behaviour', 'good');
    expect((await warm.attest(freshNonce(), never)).evidence).toHaveLength(1);
  });

  it('never give a token twice', async () => {
    const warm = await start();
    tell('behaviour', 'same_token');
    const one = freshNonce();
    await warm.attest(one, never);
    await expect(warm.attest(one, never)).rejects.toMatchObject({ message: expect.stringContaining('previous_token') });
  });

  it('are killed when nobody waits any more', async () => {
    const warm = await start({ workers: 1 });
    tell('behaviour', 'hang');
    const leave = new AbortController();
    const asked = warm.attest(freshNonce(), leave.signal);
    await eventually(() => read('asked') !== '');
    const [pid = 0] = processes();
    leave.abort(new Error('cancelled'));
    await expect(asked).rejects.toThrow('cancelled');
    expect(alive(pid)).toBe(false);
  });

  it.each([
    ['dies', 'die', 'worker_died: the worker ended with exit code 3 without an answer: libnvidia-ml is not well'],
    ['prints garbage', 'garbage', 'worker_garbage'],
    ['hangs', 'hang', 'worker_start_timeout: no answer within 500 ms'],
    ['says CC mode is off', 'failed:cc_off', 'cc_off: as told'],
  ])('whose first %s at its start keep the sidecar from starting, in words', async (_what, how, message) => {
    tell('start', how);
    // Only what hangs is to meet the deadline: starting a process takes as long as the machine is busy.
    await expect(start({ start_deadline_ms: how === 'hang' ? 500 : 30_000 })).rejects.toMatchObject({
      name: 'AttesterError',
      message: expect.stringMatching(new RegExp(`^ATTESTER=nvtrust cannot run here: ${message}`)),
    });
  });

  it('that cannot be started at all say what is missing', async () => {
    await expect(start({ command: ['/nowhere/python'] })).rejects.toMatchObject({
      message: expect.stringContaining('worker_not_started'),
    });
    await expect(createNvtrustAttester({ venv: '/nowhere', environment: {}, workers: 2 })).rejects.toMatchObject({
      message: expect.stringContaining('NVTRUST_VENV'),
    });
  });

  it('that stop coming up are tried ever more seldom, refuse at once, and come back by themselves', async () => {
    const warm = await start({ workers: 1, start_deadline_ms: 2_000, backoff_ms: 100 });
    tell('start', 'failed:no_driver');
    await warm.attest(freshNonce(), never);
    await eventually(() => trouble.length >= 3);
    const begin = performance.now();
    await expect(warm.attest(freshNonce(), never)).rejects.toMatchObject({
      message: 'no_driver: as told',
      retryable: false,
    });
    expect(performance.now() - begin).toBeLessThan(1_900);
    expect(started().length).toBeLessThanOrEqual(7);
    tell('start', 'good');
    await eventually(
      () =>
        warm.attest(freshNonce(), never).then(
          () => true,
          () => false,
        ),
      10_000,
    );
  });

  it('that leave while they wait are replaced, not asked', async () => {
    const warm = await start({ workers: 2 });
    await eventually(() => processes().length === 2);
    await new Promise((resolve) => setTimeout(resolve, 200));
    for (const pid of processes()) process.kill(pid, 'SIGKILL');
    await eventually(() => trouble.length >= 2);
    await eventually(() => processes().length >= 3);
    expect((await warm.attest(freshNonce(), never)).evidence).toHaveLength(1);
    expect(trouble[0]).toContain('worker_died');
  });

  it('see only what the allow-list names, under the names that NVIDIA reads', () => {
    const env = { PATH: '/bin', RIM_URL: 'http://rim', OCSP_URL: '', API_KEYS_FILE: '/keys', PYTHONPATH: '/evil' };
    const workerEnvironment = (variables: NodeJS.ProcessEnv) => loadConfig(variables).worker_environment;
    expect(workerEnvironment({ ...env, HTTPS_PROXY: 'http://proxy', NV_ALLOW_HOLD_CERT: 'true' })).toEqual({
      PYTHONUTF8: '1',
      PYTHONDONTWRITEBYTECODE: '1',
      PATH: '/bin',
      HTTPS_PROXY: 'http://proxy',
      NV_RIM_URL: 'http://rim/v1/rim/',
    });
    expect(workerEnvironment({ RIM_URL: 'http://r/v1/rim', OCSP_URL: 'http://o/x' })).toMatchObject({
      NV_RIM_URL: 'http://r/v1/rim/',
      NV_OCSP_URL: 'http://o/x/',
    });
  });

  it('that hang in the driver, where no signal reaches them, do not keep the pool from closing', async () => {
    const hanging = () => ({
      ready: Promise.reject(failure('worker_start_timeout', 'no answer within 10 ms')),
      gone: new Promise<void>(() => {}),
      attest: () => new Promise<never>(() => {}),
      kill: () => {},
    });
    const pool = createPool({ size: 2, start: hanging, backoff_ms: 10, max_backoff_ms: 10 });
    await expect(pool.devices).rejects.toThrow('worker_start_timeout');
    await pool.close();
  }, 10_000);
});
