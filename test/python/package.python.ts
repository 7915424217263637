// The Python package's own tests, its types and its style.
import { execFile } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { PACKAGE, python, SKIPPED } from './package.ts';

const TIMEOUT_MS = 600_000;

const TOOLS: readonly (readonly [what: string, module: string, ...rest: string[]])[] = [
  ['its tests pass', 'pytest', '-q', '-rs', '-p', 'no:cacheprovider'],
  ['it has strict types', 'mypy', '--strict', '--cache-dir=/dev/null'],
  ['it is as ruff would have it', 'ruff', 'check', '--no-cache', '.'],
  ['it is formatted', 'ruff', 'format', '--check', '--no-cache', 'src', 'tests'],
];

/** What a module of the environment prints, and the status that it ends with. */
function run(module: string, rest: readonly string[]): Promise<{ status: unknown; output: string }> {
  const options = {
    cwd: PACKAGE,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, PYTHONPATH: 'src', PYTHONDONTWRITEBYTECODE: '1' },
    timeout: TIMEOUT_MS,
    maxBuffer: 16 * 1024 * 1024,
  };
  return new Promise((resolve) => {
    execFile(python ?? '', ['-m', module, ...rest], options, (error, stdout, stderr) =>
      resolve({ status: error === null ? 0 : (error.code ?? error.signal), output: `${stdout}${stderr}` }),
    );
  });
}

describe.skipIf(python === null)(`the Python package by itself${SKIPPED}`, () => {
  it.each(TOOLS)('%s', { timeout: TIMEOUT_MS }, async (_, module, ...rest) => {
    const { status, output } = await run(module, rest);
    const skipped = output.split('\n').filter((line) => line.includes('SKIPPED'));
    if (skipped.length > 0) console.warn(skipped.join('\n'));
    expect(status, output).toBe(0);
  });
});
