// vectors/release/: every bundle and status has the claims or the code that its file states, in both languages.
import { describe, expect, test } from 'vitest';
import type { ReleaseCase } from '../../../scripts/vectors/release-kit.ts';
import { FAILURE_CODES } from '../../../verify/common/checks.ts';
import { verifyRelease } from '../../../verify/release.ts';
import { releaseVectors as cases, optionsOf } from './vectors.ts';

function verify(one: ReleaseCase) {
  const { at, answered = at } = one.options;
  return verifyRelease(optionsOf(one), { at: new Date(at), answered: new Date(answered) });
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
