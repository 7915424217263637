// Which Pythons install.sh takes for NVIDIA's SDK. What it installs is tested with the SDK itself: npm run test:with nvidia.
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../support/harness.ts';

const INSTALL = fileURLToPath(new URL('../../sidecar/attesters/nvtrust/python/install.sh', import.meta.url));
const folder = temporaryFolder();
afterAll(() => folder.remove());

/** Runs install.sh with a Python that tells this version of itself, and writes down what else it is asked for. */
function install(version: string) {
  const [python, asked] = [join(folder.path, `python-${version}`), join(folder.path, `asked-${version}`)];
  const script = `#!/bin/sh\n[ "$1" = -c ] && { echo ${version}; exit; }\necho "$*" >${asked}\nexit 1\n`;
  writeFileSync(python, script);
  chmodSync(python, 0o755);
  const venv = join(folder.path, 'venv');
  const { status, stderr } = spawnSync('sh', [INSTALL, venv], {
    encoding: 'utf8',
    env: { PATH: process.env.PATH, PYTHON: python },
  });
  return { status, words: stderr.trim(), asked: existsSync(asked) ? readFileSync(asked, 'utf8').trim() : null, venv };
}

describe('install.sh', () => {
  it.each(['3.9', '3.10', '3.14', '2.7'])('refuses Python %s, and says which it takes', (version) => {
    const { status, words, asked } = install(version);
    expect([status, asked]).toEqual([1, null]);
    expect(words).toMatch(new RegExp(`is Python ${version}; the pinned packages are for 3\\.11, 3\\.12 and 3\\.13`));
  });

  it.each(['3.11', '3.12', '3.13'])('takes Python %s', (version) => {
    const { words, asked, venv } = install(version);
    expect(asked).toBe(`-m venv ${venv}`);
    expect(words).toContain('cannot make a virtual environment');
  });
});
