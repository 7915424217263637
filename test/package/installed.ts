// The npm package as others get it: built, packed, and installed into an empty folder.
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { installPackages } from '../support/npm-packages.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const TOOLS = fileURLToPath(new URL('tools/package.json', import.meta.url));

export interface Installed {
  /** The folder with node_modules/@countersign/verify, and nothing of this repository above it. */
  readonly folder: string;
  readonly tarball: string;
  /** node_modules of the tools. */
  readonly tools: string;
  write(name: string, text: string): string;
  remove(): void;
}

/** null where npm's registry cannot be reached. */
export function installPackage(): Installed | null {
  const tools = installPackages(TOOLS, 'package-tools');
  if (tools === null) return null;
  execFileSync(process.execPath, [join(ROOT, 'scripts/make.ts'), 'package'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const folder = mkdtempSync(join(tmpdir(), 'countersign-package-'));
  const npm = (args: string[], cwd: string) =>
    execFileSync('npm', args, { cwd, stdio: ['ignore', 'ignore', 'inherit'] });
  npm(['pack', '--silent', '--pack-destination', folder], join(ROOT, 'packages/verify'));
  const tarball = join(folder, readdirSync(folder).find((name) => name.endsWith('.tgz')) ?? '');
  writeFileSync(join(folder, 'package.json'), '{"name": "consumer", "private": true, "type": "module"}');
  npm(['install', '--silent', '--no-audit', '--no-fund', '--prefer-offline', tarball], folder);
  return {
    folder,
    tarball,
    tools: join(tools, 'node_modules'),
    write(name, text) {
      const path = join(folder, name);
      mkdirSync(join(path, '..'), { recursive: true });
      writeFileSync(path, text);
      return path;
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}

export interface Ran {
  readonly code: number | null;
  readonly output: string;
}

/** Both streams of a program, which must end within two minutes. */
export function run(
  program: string,
  args: readonly string[],
  cwd: string,
  env: Record<string, string> = {},
): Promise<Ran> {
  const child = spawn(program, args, {
    cwd,
    env: { PATH: process.env.PATH, HOME: cwd, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 120_000,
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (output += text));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve({ code, output }));
  });
}
