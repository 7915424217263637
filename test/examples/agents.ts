// A copy of examples/ beside the packages that its agents need: installed once, kept under .cache by the hash of their package.json.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './run.ts';

const INSTALL_TIMEOUT_MS = 240_000;
/** What npm says of a registry that is not there, or that lacks what nobody could have put there by mistake. */
const AWAY = /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT)\b/;

export interface Agents {
  /** The copy of examples/agents, as a folder to run in. */
  readonly folder: string;
  remove(): void;
}

/** null where npm's registry cannot be reached. @throws {Error} for everything else. */
export function installAgents(): Agents | null {
  const manifest = join(ROOT, 'examples/agents/package.json');
  const name = createHash('sha256').update(readFileSync(manifest)).digest('hex').slice(0, 16);
  const room = join(ROOT, '.cache/examples-npm', name);
  if (!existsSync(room) && !install(manifest, room)) return null;
  // Packages are looked for in the folders above, so a copy within finds them; two runs do not meet.
  const copy = join(room, `run-${process.pid}`);
  cpSync(join(ROOT, 'examples'), copy, { recursive: true, filter: (path) => !path.includes('node_modules') });
  return { folder: join(copy, 'agents'), remove: () => rmSync(copy, { recursive: true, force: true }) };
}

/** Beside it, and renamed when it is whole. */
function install(manifest: string, room: string): boolean {
  const fresh = `${room}.${process.pid}`;
  mkdirSync(fresh, { recursive: true });
  cpSync(manifest, join(fresh, 'package.json'));
  const options = ['--no-audit', '--no-fund', '--no-package-lock', '--ignore-scripts', '--fetch-retries=1'];
  const installed = spawnSync('npm', ['install', ...options], {
    cwd: fresh,
    encoding: 'utf8',
    timeout: INSTALL_TIMEOUT_MS,
  });
  if (installed.status !== 0) {
    rmSync(fresh, { recursive: true, force: true });
    if (AWAY.test(installed.stderr)) return false;
    throw new Error(`npm could not install ${manifest}:\n${installed.stderr}`, { cause: installed.error });
  }
  try {
    renameSync(fresh, room);
  } catch {
    rmSync(fresh, { recursive: true, force: true }); // another run was first
  }
  return true;
}
