// What a release is checked with, once into .cache/release: actionlint from Go's module proxy, shellcheck from Debian, build and twine from PyPI.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { debianProgram } from '../support/debian.ts';

// renovate: datasource=go depName=github.com/rhysd/actionlint
const VERSION = 'v1.7.12';
const CACHE = fileURLToPath(new URL('../../.cache/release', import.meta.url));
const REQUIREMENTS = fileURLToPath(new URL('requirements.txt', import.meta.url));
const id = createHash('sha256').update(readFileSync(REQUIREMENTS)).digest('hex').slice(0, 12);

export const ACTIONLINT = join(CACHE, VERSION, 'actionlint');
/** With the packages of requirements.txt, as the workflow makes it. */
export const VENV = join(CACHE, `venv-${id}`);

export default function setup(): void {
  mkdirSync(CACHE, { recursive: true });
  if (!existsSync(ACTIONLINT)) {
    const env = { ...process.env, GOFLAGS: '', GOWORK: 'off', GOBIN: join(CACHE, VERSION) };
    execFileSync('go', ['install', `github.com/rhysd/actionlint/cmd/actionlint@${VERSION}`], { env, stdio: 'inherit' });
  }
  // actionlint hands it the scripts of workflows.
  debianProgram('shellcheck', 'shellcheck');
  const installed = join(VENV, 'installed');
  if (existsSync(installed)) return;
  rmSync(VENV, { recursive: true, force: true });
  execFileSync('python3', ['-m', 'venv', VENV]);
  const install = ['-m', 'pip', 'install', '--disable-pip-version-check', '-q', '--no-deps', '-r', REQUIREMENTS];
  execFileSync(join(VENV, 'bin/python'), install, { stdio: 'inherit' });
  execFileSync('touch', [installed]);
}
