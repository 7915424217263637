// The project's own releases: names can be given to somebody else, GitHub's numbers cannot.
import { expect, test } from 'vitest';
import { makeKeys, makeLeaf, makeReleaseWorld, SAID } from '../../../scripts/vectors/release-world.ts';
import { checkIdentity, readLeaf } from '../../../verify/release/signer-certificate.ts';

const made = makeLeaf(makeReleaseWorld(makeKeys()), SAID, { from: new Date('2026-06-01T12:00:00Z') });
const leaf = readLeaf(new Uint8Array(made.certificate.der));
const of = (ids: { repository: string; owner: string }) =>
  checkIdentity(leaf, { repository: SAID.repository, workflow: SAID.workflow, ref: null, events: ['push'], ids });

test.each([
  ['repository', { repository: '1002', owner: '2002' }],
  ['owner', { repository: '1001', owner: '2003' }],
])('another %s of that name is refused by its number', (_, ids) => {
  expect(() => of(ids)).toThrow(expect.objectContaining({ code: 'release_id_mismatch' }));
  expect(of({ repository: '1001', owner: '2002' })).toEqual({ ref: SAID.ref, commit: SAID.commit });
});
