// A base image for a machine that can pull none: Debian 12 by mmdebstrap, with the Node of our own lockfile and this machine's npm.
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MissingPart, which } from '../support/debian.ts';
import { attempt, run } from './command.ts';

const CACHE = fileURLToPath(new URL('../../.cache/containers/', import.meta.url));
const NODE = fileURLToPath(new URL('../../node_modules/node/bin/node', import.meta.url));
const DEBIAN = join(CACHE, 'bookworm.tar');
export const BASE = 'countersign-test-base';
const UNREACHABLE = /resolv|connect|Failed to fetch|Unable to fetch/i;

/** Makes {@link BASE} known to the daemon at `host`. @throws {MissingPart} without Debian's packages. */
export async function importBase(docker: string, host: string, folder: string): Promise<void> {
  await debian();
  const files = mkdtempSync(join(folder, 'base-'));
  const local = join(files, 'usr/local');
  mkdirSync(join(local, 'bin'), { recursive: true });
  copyFileSync(NODE, join(local, 'bin/node'));
  const npm = dirname(dirname(realpathSync(which('npm') ?? 'npm')));
  cpSync(npm, join(local, 'lib/node_modules/npm'), { recursive: true });
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(local, 'bin/npm'));
  const tar = join(folder, 'base.tar');
  copyFileSync(DEBIAN, tar);
  // Files alone: the folders are Debian's, and an image's archive names nothing twice.
  const names = (
    await run('find', ['.', '(', '-type', 'f', '-o', '-type', 'l', ')', '-printf', '%P\n'], { cwd: files })
  )
    .trim()
    .split('\n');
  await run('tar', ['--owner=0', '--group=0', '--no-recursion', '-C', files, '-rf', tar, ...names]);
  await run(docker, ['import', '--change', 'CMD ["node"]', tar, BASE], { env: { DOCKER_HOST: host } });
  for (const used of [files, tar]) rmSync(used, { recursive: true });
}

async function debian(): Promise<void> {
  if (existsSync(DEBIAN)) return;
  mkdirSync(CACHE, { recursive: true });
  console.log('Making a Debian 12 base image once, about a minute');
  const part = `${DEBIAN}.${process.pid}.part`;
  const args = ['--variant=minbase', '--include=ca-certificates', '--format=tar', 'bookworm', part];
  const { code, stderr } = await attempt('mmdebstrap', args, { timeout_ms: 600_000 });
  if (code === 0) return renameSync(part, DEBIAN);
  rmSync(part, { force: true });
  if (UNREACHABLE.test(stderr)) throw new MissingPart("Debian's packages, to make a base image of");
  throw new Error(`mmdebstrap ended with ${code}: ${stderr.slice(-2000)}`);
}
