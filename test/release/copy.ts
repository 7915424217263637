// A copy of the repository that a test may change: what is kept and what is new, in one commit, beside the same node_modules.
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, realpathSync, statSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { temporaryFolder } from '../support/harness.ts';

export const ROOT = fileURLToPath(new URL('../../', import.meta.url));

export interface Copy {
  readonly path: string;
  run(command: string, ...args: readonly string[]): { status: number | null; said: string };
  remove(): void;
}

export function copyOfRepository(): Copy {
  const { path, remove } = temporaryFolder();
  const git = (cwd: string, ...args: string[]) => execFileSync('git', args, { cwd, encoding: 'utf8', maxBuffer: 1e7 });
  const files = git(ROOT, 'ls-files', '--cached', '--others', '--exclude-standard', '-z').split('\0');
  // A deleted file is still listed, and so is a link to a folder that would be ignored as one.
  for (const file of files)
    if (statSync(join(ROOT, file), { throwIfNoEntry: false })?.isFile()) cpSync(join(ROOT, file), join(path, file));
  symlinkSync(realpathSync(join(ROOT, 'node_modules')), join(path, 'node_modules'));
  git(path, 'init', '-q', '-b', 'main');
  git(path, 'add', '.');
  git(path, '-c', 'user.name=test', '-c', 'user.email=test@localhost', 'commit', '-q', '-m', 'copy');
  return {
    path,
    remove,
    run(command, ...args) {
      const { status, stdout, stderr } = spawnSync(command, args, { cwd: path, encoding: 'utf8' });
      return { status, said: `${stdout}${stderr}` };
    },
  };
}
