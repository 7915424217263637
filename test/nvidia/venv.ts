// NVIDIA's Python verifier, installed once from PyPI into .cache/nvidia and never modified.
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MissingPart, which } from '../support/debian.ts';

const REQUIREMENTS = fileURLToPath(new URL('requirements.txt', import.meta.url));
const CACHE = fileURLToPath(new URL('../../.cache/nvidia/', import.meta.url));
const INSTALL_TIMEOUT_MS = 600_000;
const OUT_OF_REACH =
  /NewConnectionError|ConnectTimeout|Name or service not known|Temporary failure in name|Network is unreachable|Connection refused|ProxyError|No matching distribution found/;

/** The venv's python, with the pinned packages in it. @throws {MissingPart} */
export function nvidiaPython(): string {
  const id = createHash('sha256').update(readFileSync(REQUIREMENTS)).digest('hex').slice(0, 12);
  const folder = join(CACHE, `venv-${id}`);
  const python = join(folder, 'bin', 'python');
  if (existsSync(python)) return python;
  const base = python311();
  const part = `${folder}.part`;
  rmSync(part, { recursive: true, force: true });
  mkdirSync(CACHE, { recursive: true });
  console.log(`Installing NVIDIA's Python verifier from PyPI once, about a minute; ${folder}`);
  execFileSync(base, ['-m', 'venv', part], { stdio: 'pipe' });
  install(join(part, 'bin', 'python'));
  // Only what is whole has this name. The programs in bin/ still name the other one; only python itself is used.
  renameSync(part, folder);
  return python;
}

function python311(): string {
  for (const command of ['python3.11', 'python3']) {
    const path = which(command);
    if (path === null) continue;
    const { stdout } = spawnSync(path, ['--version'], { encoding: 'utf8' });
    if (stdout.startsWith('Python 3.11.')) return path;
  }
  throw new MissingPart('Python 3.11, which NVIDIA pins its dependencies for');
}

function install(python: string): void {
  // No dependency is resolved anew: all of them are in the file.
  const args = ['-m', 'pip', 'install', '--disable-pip-version-check', '-q', '--no-deps', '-r', REQUIREMENTS];
  const { status, stderr, error } = spawnSync(python, args, { encoding: 'utf8', timeout: INSTALL_TIMEOUT_MS });
  if (error !== undefined) throw error;
  if (status === 0) return;
  if (OUT_OF_REACH.test(stderr)) throw new MissingPart(`PyPI, to install NVIDIA's Python verifier from`);
  throw new Error(`pip ended with ${status}: ${stderr.slice(-2000)}`);
}
