// vectors/release/: every bundle and status has the claims or the code that its file states, in both languages.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import type { ReleaseCase } from '../../../scripts/vectors/release-kit.ts';
import { FAILURE_CODES } from '../../../verify/common/checks.ts';
import { verifyRelease } from '../../../verify/release.ts';

const folder = fileURLToPath(new URL('../../../vectors/release/', import.meta.url));
const root = readFileSync(join(folder, 'trusted-root.json'), 'utf8');
const cases = readdirSync(join(folder, 'cases')).map((file): [string, ReleaseCase] => [
  file.replace('.json', ''),
  JSON.parse(readFileSync(join(folder, 'cases', file), 'utf8')) as ReleaseCase,
]);

function verify({ bundle, bundle_text, spaces = 0, status, options }: ReleaseCase) {
  const { repository, tag, trusted_root, at, answered } = options;
  return verifyRelease(
    {
      bundle: (bundle_text ?? JSON.stringify(bundle)) + ' '.repeat(spaces),
      repository,
      trustedRoot: trusted_root === undefined ? root : JSON.stringify(trusted_root),
      ...(status === undefined ? {} : { status: JSON.stringify(status) }),
      ...(tag === undefined ? {} : { tag }),
    },
    { at: new Date(at), ...(answered === undefined ? {} : { answered: new Date(answered) }) },
  );
}

describe('vectors of releases', () => {
  test.each(cases)('%s', async (_name, one) => {
    const { expect: stated } = one;
    if ('code' in stated) return expect(verify(one)).rejects.toMatchObject({ name: 'CheckFailure', code: stated.code });
    const { claims, reference } = await verify(one);
    expect(claims).toMatchObject({ ...stated.claims, repository: one.options.repository, own: false, own_root: true });
    expect(Object.keys(claims.launches)).toEqual(reference.launch);
  });

  test('every code of a release has a vector, except those that need a fetch, an answer or the project', () => {
    const shown = new Set(cases.map(([, { expect: stated }]) => ('code' in stated ? stated.code : '')));
    const missing = FAILURE_CODES.filter((code) => code.startsWith('release_') && !shown.has(code));
    expect(missing).toEqual(['release_unavailable', 'release_id_mismatch', 'release_not_shown']);
  });
});
