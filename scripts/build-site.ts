// `npm run make site`: builds docs/ into build/site. The generator has packages of its own, which are installed when they are missing or changed.
import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const SITE = `${ROOT}docs/.vitepress`;
const LOCKFILE = `${SITE}/package-lock.json`;
/** The lockfile that the installed packages were made from. */
const INSTALLED = `${SITE}/node_modules/.installed-lock.json`;

const read = (path: string) => (existsSync(path) ? readFileSync(path, 'utf8') : null);

if (read(INSTALLED) !== read(LOCKFILE)) {
  run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], SITE);
  copyFileSync(LOCKFILE, INSTALLED);
}
run(process.execPath, [`${SITE}/node_modules/vitepress/bin/vitepress.js`, 'build', 'docs'], ROOT);

function run(command: string, args: readonly string[], cwd: string): void {
  const { status, error } = spawnSync(command, args, { cwd, stdio: 'inherit' });
  if (status === 0) return;
  console.error(`${command} ${args.join(' ')} failed: ${error?.message ?? `status ${status}`}`);
  process.exit(1);
}
