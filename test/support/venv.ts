// A virtual environment of pinned requirements, the Python clients' by default: made once, kept under .cache by that file's hash.
import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const REQUIREMENTS = fileURLToPath(new URL('../clients/python/requirements.txt', import.meta.url));
const CACHE = fileURLToPath(new URL('../../.cache', import.meta.url));
const INSTALL_TIMEOUT_MS = 300_000;
/** What pip says while it tries a network that is not there, and what it gives up with then. */
const TRYING = /connection broken by|Connection to \S+ timed out/;
const GIVING_UP = /^ERROR: .*(from versions: none|timed out|ConnectionError|ConnectionPool)/m;

/** The environment's python in `.cache/{room}`, or null where PyPI cannot be reached. @throws {Error} for everything else. */
export function makeVenv(requirements = REQUIREMENTS, room = 'clients-venv'): string | null {
  const name = createHash('sha256').update(readFileSync(requirements)).digest('hex').slice(0, 16);
  const cache = join(CACHE, room);
  const folder = join(cache, name);
  const python = (base: string) => join(base, 'bin', 'python');
  if (existsSync(python(folder))) return python(folder);

  // Beside it, and renamed when it is whole: another run may be making the same one, or be killed while it does.
  const fresh = `${folder}.${process.pid}`;
  mkdirSync(cache, { recursive: true });
  execFileSync('python3', ['-m', 'venv', fresh], { stdio: ['ignore', 'ignore', 'inherit'] });
  const pip = ['-m', 'pip', 'install', '--quiet', '--no-input', '--disable-pip-version-check'];
  const installed = spawnSync(python(fresh), [...pip, '--retries', '1', '--timeout', '15', '-r', requirements], {
    encoding: 'utf8',
    timeout: INSTALL_TIMEOUT_MS,
  });
  if (installed.status !== 0) {
    rmSync(fresh, { recursive: true, force: true });
    if (TRYING.test(installed.stderr) && GIVING_UP.test(installed.stderr)) return null;
    throw new Error(`pip could not install ${requirements}:\n${installed.stderr}`, { cause: installed.error });
  }
  try {
    renameSync(fresh, folder);
  } catch {
    rmSync(fresh, { recursive: true, force: true }); // the other run was first
  }
  return python(folder);
}

/** As a file of requirements pins it. */
export function pinned(name: string, requirements = REQUIREMENTS): string {
  const version = new RegExp(`^${name}==(\\S+)$`, 'm').exec(readFileSync(requirements, 'utf8'))?.[1];
  if (version === undefined) throw new Error(`${name} is not in ${requirements}`);
  return `${name} ${version} (PyPI)`;
}
