// Packages that a suite needs and the project does not: installed once from a package.json, kept under .cache by its hash.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const CACHE = fileURLToPath(new URL('../../.cache', import.meta.url));
const INSTALL_TIMEOUT_MS = 240_000;
/** What npm says of a registry that is not there, or that lacks what nobody could have put there by mistake. */
const AWAY = /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT)\b/;

/** The folder whose node_modules has, or will have, what `manifest` names. */
export function packagesFolder(manifest: string, room: string): string {
  return join(CACHE, room, createHash('sha256').update(readFileSync(manifest)).digest('hex').slice(0, 16));
}

/** That folder, filled; null where npm's registry cannot be reached. @throws {Error} for everything else. */
export function installPackages(manifest: string, room: string): string | null {
  const folder = packagesFolder(manifest, room);
  return existsSync(folder) || install(manifest, folder) ? folder : null;
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
