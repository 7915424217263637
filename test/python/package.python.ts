// The Python package's own tests, its types and its style.
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { PACKAGE, python, SKIPPED } from './package.ts';

const TIMEOUT_MS = 600_000;

const TOOLS: readonly (readonly [what: string, command: readonly string[]])[] = [
  ['its tests pass', ['python', '-m', 'pytest', '-q', '-rs', '-p', 'no:cacheprovider']],
  ['it has strict types', ['mypy', '--strict', '--cache-dir=/dev/null']],
  ['it is as ruff would have it', ['ruff', 'check', '--no-cache', '.']],
  ['it is formatted', ['ruff', 'format', '--check', '--no-cache', '.']],
];

describe.skipIf(python === null)(`the Python package by itself${SKIPPED}`, () => {
  it.each(TOOLS)('%s', { timeout: TIMEOUT_MS }, (_, [program = '', ...rest]) => {
    const { status, stdout, stderr } = spawnSync(join(dirname(python ?? ''), program), rest, {
      cwd: PACKAGE,
      encoding: 'utf8',
      env: { PATH: process.env.PATH, HOME: process.env.HOME, PYTHONPATH: 'src', PYTHONDONTWRITEBYTECODE: '1' },
      timeout: TIMEOUT_MS,
    });
    const skipped = stdout.split('\n').filter((line) => line.includes('SKIPPED'));
    if (skipped.length > 0) console.warn(skipped.join('\n'));
    expect(status, `${stdout}\n${stderr}`).toBe(0);
  });
});
