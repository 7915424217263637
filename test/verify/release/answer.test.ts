// An answer whose guest is compared with the list of a release: level measured without a list of one's own.
import { describe, expect, test } from 'vitest';
import { withdrawal } from '../../../scripts/vectors/release-kit.ts';
import { verifySession } from '../../../verify/cpu.ts';
import {
  appraiseAttestation,
  appraiseEvidence,
  type VerificationReport,
  type VerifyOptions,
  verifyAttestation,
} from '../../../verify/index.ts';
import { WEIGHTS } from '../../support/launch-file.ts';
import { attest, EXCHANGE } from '../maker.ts';
import { answerIn, signAnswer, statementDigest } from '../session-maker.ts';
import { bundleOf, guest, MEASUREMENT, options, repository, sessionOf, statusOf, trustedRoot } from './maker.ts';

type Release = NonNullable<VerifyOptions['release']>;
const release = (change: Partial<Release> = {}): VerifyOptions => ({
  ...options,
  release: { bundle: bundleOf(), status: statusOf(), repository, trustedRoot, ...change },
});
const failed = ({ checks }: VerificationReport) =>
  checks.filter(({ status }) => status === 'fail').map(({ name, code }) => `${name} ${code}`);

describe('an answer of a guest that a release lists', () => {
  test('is measured, and the verdict says by which release', async () => {
    const { level, claims, proven, not_proven } = await verifyAttestation(await answerIn(await sessionOf()), release());
    expect(level).toBe('measured');
    expect(claims.release).toMatchObject({ repository, tag: 'v0.3.0', status: { state: 'fresh', current: 'v0.3.0' } });
    expect(claims.cpu?.software?.release).toBe(claims.release?.statement_sha256);
    expect(proven.join('\n')).toContain(
      `on the list of v0.3.0 of ${repository}, built from commit ${'1'.repeat(40)} by the public workflow, in a log that the caller trusts since 2025-05-02, weights ${WEIGHTS.name}`,
    );
    expect(not_proven.join('\n')).toContain('That the release is good');
  });

  test('is measured in the short form only by a session that was compared with that release', async () => {
    const session = await sessionOf();
    const alone = { ...session.cpu, gpu: session.gpu };
    const made = await attest({ ...EXCHANGE, session: statementDigest(session) });
    const cpu = { statement_sha256: statementDigest(session), signature: signAnswer(session, made) };
    const compared = await verifySession(alone, release());
    const held = (of: typeof compared, more: VerifyOptions) =>
      appraiseAttestation({ ...made, cpu }, { ...more, session: of.session });
    const { cpu: _, ...withoutList } = release();
    expect(await held(compared, withoutList)).toMatchObject({ level: 'measured', valid: true });
    const other = { ...withoutList, release: { ...(withoutList.release as Release), bundle: bundleOf('v0.4.0') } };
    expect(failed(await held(compared, other))).toEqual(['policy release_not_shown']);
    const own = await verifySession(alone, options);
    expect(failed(await held(own, withoutList))).toEqual(['policy release_not_shown']);
  });

  test.each([
    ['without a processor', () => attest(), [], 'policy release_not_shown'],
    [
      'of another guest',
      async () => answerIn(await sessionOf(guest('bb'.repeat(48)))),
      [],
      'cpu_measurement measurement_mismatch',
    ],
  ] as const)('%s it is refused, and never of a lower level in silence', async (_, answer, __, code) => {
    const report = await appraiseAttestation(await answer(), release());
    expect([failed(report)[0], report.valid, report.level]).toEqual([code, false, 'none']);
    expect((await appraiseAttestation(await answerIn(await sessionOf()), release())).level).toBe('measured');
  });

  test.each([
    ['no bundle', { bundle: null }, 'release release_unavailable', true],
    ['a broken bundle', { bundle: '{' }, 'release release_malformed', false],
    ['another tag', { tag: 'v0.2.0' }, 'release release_tag_mismatch', false],
    ['no status', { status: null }, 'release_status release_status_unavailable', true],
    ['an old status', { status: statusOf({}, 15) }, 'release_status release_status_stale', false],
    [
      'a status of what its tag was moved to',
      { status: statusOf({ sha256: 'ab'.repeat(32) }) },
      'release_status release_subject_mismatch',
      false,
    ],
    [
      'a withdrawal',
      { status: statusOf({ withdrawn: [{ ...withdrawal(), tag: 'v0.3.0' }] }) },
      'release_status release_withdrawn',
      false,
    ],
  ] as const)('with %s is not measured: the report names it', async (_, change, code, incomplete) => {
    const report = await appraiseAttestation(await answerIn(await sessionOf()), release(change));
    expect(failed(report)).toEqual([code]);
    expect([report.valid, report.level, report.incomplete]).toEqual([false, 'none', incomplete]);
  });

  test.each([
    ['stale', { tag: 'v0.3.0', status: statusOf({}, 15) }, 'newest status is of'],
    ['absent', { tag: 'v0.3.0', status: null }, 'no status of its publisher was shown'],
    ['of an older release', { status: statusOf({ current: 'v0.4.0' }) }, "its publisher's is v0.4.0"],
  ] as const)('says that the status is %s', async (_, change, words) => {
    const report = await verifyAttestation(await answerIn(await sessionOf()), release(change));
    expect([report.level, report.not_proven.join('\n')]).toEqual(['measured', expect.stringContaining(words)]);
  });

  test('does not take two lists, an unknown option, a bad root, or bare evidence', async () => {
    const answer = await answerIn(await sessionOf());
    const reference = {
      version: 1,
      cpu: [{ type: 'SEV_SNP', measurement: [MEASUREMENT], launch_in: 'host_data' }],
      launch: [],
    } as never;
    await expect(verifyAttestation(answer, { ...release(), cpu: { ...options.cpu, reference } })).rejects.toThrow(
      'only one',
    );
    await expect(verifyAttestation(answer, release({ tags: 'v1' } as never))).rejects.toThrow(
      'there is no option release.tags',
    );
    await expect(verifyAttestation(answer, release({ trustedRoot: '{}' }))).rejects.toThrow(
      'trustedRoot cannot be used',
    );
    await expect(verifyAttestation(answer, release({ repository: undefined }))).rejects.toThrow(
      'no public repository yet',
    );
    await expect(verifyAttestation(answer, release({ repository: '../x' }))).rejects.toThrow('not OWNER/REPO');
    await expect(appraiseEvidence('[]', release())).rejects.toThrow('release is for answers and sessions');
  });

  test("is refused by Sigstore's public root, which does not know this log", async () => {
    const report = await appraiseAttestation(await answerIn(await sessionOf()), release({ trustedRoot: undefined }));
    expect(failed(report)).toEqual(['release release_untrusted']);
  });
});
