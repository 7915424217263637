// What the page says of the software where a release is named, and that every check of a release is in its list.
import { expect, it, test } from 'vitest';
import { releaseIn, releaseNamed } from '../../page/proof/release.ts';
import { readStored } from '../../page/proof/subject.ts';
import { concluded } from '../../page/proof/verdict.ts';
import { GROUPS, WORDS } from '../../page/proof/words.ts';
import { withdrawal } from '../../scripts/vectors/release-kit.ts';
import { appraiseAttestation, type VerificationReport, type VerifyOptions } from '../../verify/index.ts';
import { WEIGHTS } from '../support/launch-file.ts';
import { AT, attest } from '../verify/maker.ts';
import { bundleOf, guest, options, repository, sessionOf, statusOf, trustedRoot } from '../verify/release/maker.ts';
import { answerIn } from '../verify/session-maker.ts';

const good = { bundle: bundleOf(), status: statusOf(), repository, trustedRoot };

const appraised = async (change: Partial<VerifyOptions['release']>, made: object | null) =>
  appraiseAttestation((made ?? (await answerIn(await sessionOf()))) as never, {
    ...options,
    release: { ...good, ...change },
  });

async function shown(change: Partial<VerifyOptions['release']> = {}, made: object | null = null) {
  return inWords(await appraised(change, made));
}

function inWords(report: VerificationReport) {
  const conclusion = concluded(report, readStored(Buffer.from('{"raw":""}'), 'kept'), AT);
  const claim = conclusion.claims.find(({ title }) => title === 'Which software');
  return { verdict: conclusion.verdict, sentence: conclusion.sentence, state: claim?.state, text: claim?.text ?? '' };
}

const NAMED = `v0.3.0 of ${repository}, built from commit ${'1'.repeat(40)} by the public workflow, in a log that the caller trusts since 2025-05-02, weights ${WEIGHTS.name}.`;

it('says which release it is, what its list leaves open, and what nobody shows of it', async () => {
  const found = await shown();
  expect([found.verdict, found.state]).toEqual(['valid', 'open']);
  expect(found.text.startsWith(NAMED)).toBe(true);
  expect(found.text).toContain('Left open: nothing measures the ACPI tables');
  expect(found.text).not.toContain('withdrawn');
  const report = await appraised({}, null);
  const { cpu } = report.claims;
  if (cpu === null || cpu.software === null) throw new Error('no guest');
  const whole = { ...cpu, software: { ...cpu.software, uncompared: null } };
  const proven = inWords({ ...report, claims: { ...report.claims, cpu: whole } });
  expect([proven.state, proven.text.startsWith(NAMED), proven.text.includes('Left open')]).toEqual([
    'proven',
    true,
    false,
  ]);
  const pinned = await shown({ tag: 'v0.3.0', status: null });
  expect(pinned.verdict).toBe('valid');
  expect(pinned.text).toContain('Nothing recent shows that it was not withdrawn.');
});

const withdrawn = statusOf({ withdrawn: [{ ...withdrawal(), tag: 'v0.3.0' }] });
test.each([
  ['another repository', { repository: 'acme/other' }, 'invalid', 'wrong', 'does not verify'],
  ['a withdrawn release', { status: withdrawn }, 'invalid', 'wrong', 'The release was withdrawn.'],
  ['a status that is too old', { status: statusOf({}, 15) }, 'invalid', 'wrong', 'or nothing recent shows'],
  ['no release', { bundle: null }, 'unchecked', 'unchecked', 'shows no release now'],
  ['no status', { status: null }, 'unchecked', 'unchecked', 'Name its tag as well'],
] as const)('names %s, and then takes the good one', async (_, change, verdict, state, words) => {
  const found = await shown(change);
  expect([found.verdict, found.state]).toEqual([verdict, state]);
  expect([found.text, found.sentence]).toEqual([expect.stringContaining(words), expect.stringContaining(words)]);
  expect((await shown()).verdict).toBe('valid');
});

it('says so where no guest, or another one, is shown', async () => {
  const none = await shown({}, await attest());
  expect([none.verdict, none.state]).toEqual(['invalid', 'wrong']);
  expect(none.text).toContain('does not come from a guest of the release');
  const other = await shown({}, await answerIn(await sessionOf(guest('bb'.repeat(48)))));
  expect([other.verdict, other.state]).toEqual(['invalid', 'wrong']);
  expect((await shown()).verdict).toBe('valid');
});

it('reads a name as a whole', () => {
  expect(releaseNamed(' acme/x ')).toEqual({ repository: 'acme/x' });
  expect(releaseNamed('acme/x@v1')).toEqual({ repository: 'acme/x', tag: 'v1' });
  for (const wrong of ['acme', '@v1', 'acme/x@', 'acme/x@v1@v2', 'https://github.com/acme/x', '../x', 'acme/x v1'])
    expect(releaseNamed(wrong), wrong).toBeNull();
});

it('reads a release.json in either order, and none that is larger than two bundles', () => {
  const found = { bundle: '{"a":1}', status: null };
  expect([releaseIn('{"bundle":{"a":1},"status":null}'), releaseIn('{"status":null,"bundle":{"a":1}}')]).toEqual([
    found,
    found,
  ]);
  const large = `{"bundle":{"a":1}${' '.repeat(1_100_000)}}`;
  for (const wrong of ['{', '[]', '{"bundle":null}', '{"bundle":{},"bundle":{}}', large])
    expect(releaseIn(wrong), wrong.slice(0, 30)).toBeNull();
  expect(releaseIn('{"bundle":{"a":1}}')).toEqual(found);
});

it('lists the checks of a release', () => {
  const grouped = GROUPS.flatMap(([, names]) => names);
  expect(grouped.toSorted()).toEqual(Object.keys(WORDS).toSorted());
});
