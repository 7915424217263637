// docs/errors.md has every code of the gateway, of the checks and of the verifying fetch, each in one place.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { STATUS } from '../../gateway/base/problem.ts';
import { FAILURE_CODES } from '../../verify/service.ts';

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const [problems = '', checks = '', fetch = ''] = read('docs/errors.md').split(/^## .*$/m);

/** The codes of a table's first column that has some, row by row. */
const codes = (text: string) =>
  [...text.matchAll(/^\|(?: \S+ \|)? (`[^|]+) \|/gm)].flatMap(([, cell = '']) =>
    [...cell.matchAll(/`(\w+)`/g)].map(([, code = '']) => code),
  );
const union = (text: string, pattern: RegExp) =>
  [...(pattern.exec(text)?.[1] ?? '').matchAll(/^ {2}(?:\| ')?(\w+)(?:'|:)/gm)].map(([, code = '']) => code);

describe('docs/errors.md', () => {
  it('has each code of the gateway once, with its status', () => {
    const rows = [...problems.matchAll(/^\| (\w+) \| `(\w+)` \|/gm)].map(([, status, code]) => [code, status]);
    const expected = Object.entries(STATUS).map(([code, status]) => [code, String(status)]);
    expect(rows.sort()).toEqual([...expected, ['backend_error', '5xx']].sort());
  });

  it('has each code of a failed check once', () => {
    expect(codes(checks).sort()).toEqual(FAILURE_CODES.toSorted());
  });

  it('has each code of the verifying fetch that no check has', () => {
    const own = union(read('verify/clients/errors.ts'), /const UNPROVEN_MESSAGES = \{([^}]*)\}/);
    expect(own).toContain('attestation_missing');
    expect(codes(fetch).sort()).toEqual(own.filter((code) => !codes(checks).includes(code)).sort());
  });
});
