// Our verifiers and NVIDIA's, each as a program over all cases, and docs/conformance.md beside what they say. Minutes each.
import { execFile, execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Outcome, Row } from '../../scripts/conformance/compare.ts';
import { nvidiaPython } from '../nvidia/venv.ts';
import { debianProgram } from '../support/debian.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const VENV = join(ROOT, '.cache/conformance-venv');
const PYTHON_VERIFIER = join(ROOT, 'python/src/countersign_verify/conformance.py');
const page = readFileSync(join(ROOT, 'docs/conformance.md'), 'utf8');

interface Result {
  readonly counts: Readonly<Record<Outcome, number>>;
  readonly cases: readonly Row[];
}

function run(...program: string[]): Promise<Result> {
  const args = ['scripts/conformance/main.ts', '--json', '--', ...program];
  return new Promise((resolve, reject) =>
    execFile(process.execPath, args, { cwd: ROOT, maxBuffer: 4 * 1024 * 1024 }, (error, stdout) => {
      // 1: there are differences.
      if (error !== null && error.code !== 1) reject(error);
      else resolve(JSON.parse(stdout));
    }),
  );
}

/** As the page's tables have them. */
const differing = ({ cases }: Result) =>
  cases
    .filter(({ outcome }) => outcome !== 'right' && outcome !== 'unsupported')
    .map(({ name, expected, said }) => [name, expected, said]);
const stated = (program: string) => {
  const [, ...counts] = new RegExp(`^\\| ${program}[^|]*\\| (\\d+) \\| (\\d+) \\| (\\d+) \\|$`, 'm').exec(page) ?? [];
  return counts.map(Number);
};
const countsOf = ({ counts: { right, unsupported, ...rest } }: Result) => [
  right,
  Object.values(rest).reduce((sum, one) => sum + one, 0),
  unsupported,
];

describe('over all cases', () => {
  it('our verifier in TypeScript says what the manifest says', async () => {
    const result = await run(process.execPath, 'scripts/conformance/verify.ts');
    expect(differing(result)).toEqual([]);
    expect(countsOf(result)).toEqual(stated('ours, TypeScript'));
    expect(result.counts.unsupported).toBe(0);
  });

  describe('our verifier in Python', () => {
    beforeAll(() => {
      if (!existsSync(PYTHON_VERIFIER)) throw new Error(`${PYTHON_VERIFIER} is not there`);
      execFileSync('python3', ['-m', 'venv', '--clear', VENV]);
      const install = ['-m', 'pip', 'install', '--disable-pip-version-check', '-q', join(ROOT, 'python')];
      execFileSync(join(VENV, 'bin/python'), install, { stdio: ['ignore', 'inherit', 'inherit'] });
    });

    it('says what the manifest says', async () => {
      const result = await run(join(VENV, 'bin/python'), '-m', 'countersign.conformance');
      expect(differing(result)).toEqual([]);
      expect(countsOf(result)).toEqual(stated('ours, Python'));
      expect(result.counts.unsupported).toBe(0);
    });
  });

  describe("NVIDIA's verifier", () => {
    // Before the runner does it twice at once.
    beforeAll(() => void [nvidiaPython(), debianProgram('faketime', 'faketime')]);

    it('differs where docs/conformance.md says so, and nowhere else', async () => {
      const result = await run(process.execPath, 'test/nvidia/conformance.ts');
      const rows = [...page.matchAll(/^\| `([\w.-]+)` \| `([\w ]+)` \| `([\w ]+)` \| \S.{30,}\|$/gm)];
      expect(differing(result)).toEqual(rows.map(([, name, expected, said]) => [name, expected, said]));
      expect(countsOf(result)).toEqual(stated("NVIDIA's"));
    });
  });
});
