// Every file of tests is in exactly one suite, and each suite stands in CONTRIBUTING.md.
import { globSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { SUITES } from '../../vitest.config.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const MAX_SUITES = 16;
const find = (patterns: readonly string[]) => globSync([...patterns], { cwd: ROOT, exclude: ['**/node_modules/**'] });
const files = find(['test/**/*.ts']).filter((file) =>
  /^import .* from 'vitest';/m.test(readFileSync(ROOT + file, 'utf8')),
);
/** The tests of npm's clients run with two versions of each: what `npm ci` brings, and the newest. */
const twice = new Set(find(['test/clients/*.test.ts']));
const suitesOf = (file: string) =>
  Object.entries(SUITES)
    .filter(([, { include }]) => find(include).includes(file))
    .map(([name]) => name);

describe('the suites', () => {
  const included = Object.values(SUITES).flatMap(({ include }) => find(include));

  it('hold every file that is named as tests are, once', () => {
    const counted = new Map<string, number>();
    for (const file of included) counted.set(file, (counted.get(file) ?? 0) + 1);
    const wrong = [...counted].filter(([file, count]) => count !== (twice.has(file) ? 2 : 1));
    expect(wrong).toEqual([]);
    expect([...twice].map(suitesOf)).toEqual([...twice].map(() => ['unit', 'clients']));
    expect(included.length).toBeGreaterThan(300);
  });

  it('leave out no file with tests of its own', () => {
    const own = files.filter((file) => /^(describe|it|test)\b/m.test(readFileSync(ROOT + file, 'utf8')));
    expect(own.length).toBeGreaterThan(300);
    expect(own.filter((file) => !included.includes(file))).toEqual([]);
  });

  it(`are ${MAX_SUITES} at most beside npm test, and CONTRIBUTING.md says what each adds`, () => {
    const named = Object.keys(SUITES).filter((name) => name !== 'unit');
    expect(named.length).toBeLessThanOrEqual(MAX_SUITES);
    const table = readFileSync(`${ROOT}CONTRIBUTING.md`, 'utf8');
    const rows = [...table.matchAll(/^\| `npm run test:with ([a-z]+)` \|/gm)].map(([, name]) => name);
    expect(rows.sort()).toEqual(named.sort());
  });

  it('run every night, each on its own', () => {
    const { jobs } = parse(readFileSync(`${ROOT}.github/workflows/nightly.yml`, 'utf8'));
    expect(jobs.suite.strategy.matrix.suite.toSorted()).toEqual(Object.keys(SUITES).sort());
  });
});
