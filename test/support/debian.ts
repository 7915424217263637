// Programs that Debian carries and the tests drive: found on this machine, or installed by apt-get.
import { execFileSync, spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** A part that this machine does not have. Its tests are skipped by this name; anything else that fails is a failure. */
export class MissingPart extends Error {
  override readonly name = 'MissingPart';
}

const APT_TIMEOUT_MS = 600_000;
/** What apt-get says when there is nothing to install from: no network, no such package, no right to install. */
const NOT_TO_BE_HAD =
  /Unable to (locate package|fetch)|Failed to fetch|Temporary failure resolving|Could not (resolve|connect)|has no installation candidate|Permission denied|are you root/;

/** The path of `command`, from `packageName` when it is missing. @throws {MissingPart} when it cannot be had here. */
export function debianProgram(command: string, packageName: string): string {
  const found = which(command);
  if (found !== null) return found;
  if (which('apt-get') === null) throw new MissingPart(`${command}, and there is no apt-get to install it with`);
  console.log(`Installing ${packageName} with apt-get`);
  aptGet(packageName, 'update', '-qq');
  aptGet(packageName, 'install', '-y', '-qq', '--no-install-recommends', packageName);
  const installed = which(command);
  if (installed === null) throw new Error(`${packageName} is installed and ${command} is not there`);
  return installed;
}

/** Makes sure of a file that a package brings, where there is no program to look for. @throws {MissingPart} */
export function debianFile(path: string, packageName: string): void {
  if (existsSync(path)) return;
  console.log(`Installing ${packageName} with apt-get`);
  aptGet(packageName, 'update', '-qq');
  aptGet(packageName, 'install', '-y', '-qq', '--no-install-recommends', packageName);
}

/** As the shell finds it. */
export function which(command: string): string | null {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(folder, command);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // The next folder.
    }
  }
  return null;
}

function aptGet(packageName: string, ...args: readonly string[]): void {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const { status, stdout, stderr, error } = spawnSync('apt-get', ['-o', 'DPkg::Lock::Timeout=300', ...args], {
    env,
    encoding: 'utf8',
    timeout: APT_TIMEOUT_MS,
  });
  if (error !== undefined) throw error;
  if (status === 0) return;
  const said = `${stdout}\n${stderr}`;
  if (NOT_TO_BE_HAD.test(said)) throw new MissingPart(`${packageName}, and apt-get cannot install it`);
  throw new Error(`apt-get ${args.join(' ')} ended with ${status}: ${said.slice(-2000)}`);
}

/** What `command --version` says, in one line. */
export function versionOf(command: string): string {
  return execFileSync(command, ['--version'], { encoding: 'utf8' }).trim().split('\n')[0] ?? '';
}
