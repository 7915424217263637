// Answers and sessions that the Python package and our own verifier compare with a release, and what each has to say of them.
import { withdrawal } from '../../scripts/vectors/release-kit.ts';
import { verifySession } from '../../verify/cpu.ts';
import { attest, EXCHANGE } from '../verify/maker.ts';
import {
  bundleOf,
  options as given,
  guest,
  repository,
  sessionOf,
  statusOf,
  trustedRoot,
} from '../verify/release/maker.ts';
import { answerIn, signAnswer, statementDigest } from '../verify/session-maker.ts';
import type { Options, Question } from './package.ts';

type Release = NonNullable<Options['release']>;
const { at, roots, without, cpu } = given;
const options: Options = { at: at?.toISOString(), roots, without, cpu: { roots: cpu?.roots } };
const right: Release = { bundle: bundleOf(), status: statusOf(), repository, trustedRoot };

/** A question about each, and the level, or the code of the first check that fails. */
export async function answers(): Promise<{ readonly question: Question; readonly expected: string }[]> {
  const session = await sessionOf();
  const answer = await answerIn(session);
  const alone = { ...session.cpu, gpu: session.gpu };
  const made = await attest({ ...EXCHANGE, session: statementDigest(session) });
  const short = { ...made, cpu: { statement_sha256: statementDigest(session), signature: signAnswer(session, made) } };
  const compared = (await verifySession(alone, { ...given, release: right })).session;
  const own = (await verifySession(alone, given)).session;
  const { tag, status, ...plain } = { tag: 'v0.3.0', ...right };
  const { trustedRoot: _, ...publicRoot } = right;
  const withdrawn = statusOf({ withdrawn: [{ ...withdrawal(), tag }] });
  const rows: readonly (readonly [name: string, value: unknown, more: Options, expected: string])[] = [
    ['an answer', answer, { release: right }, 'measured'],
    ['an old status', answer, { release: { ...right, status: statusOf({}, 15) } }, 'release_status_stale'],
    ['an old status, and a tag', answer, { release: { ...right, tag, status: statusOf({}, 15) } }, 'measured'],
    [
      'a status of what its tag was moved to',
      answer,
      { release: { ...right, status: statusOf({ sha256: 'ab'.repeat(32) }) } },
      'release_subject_mismatch',
    ],
    ['no status', answer, { release: plain }, 'release_status_unavailable'],
    ['no status, and a tag', answer, { release: { ...plain, tag } }, 'measured'],
    ['a later release', answer, { release: { ...right, status: statusOf({ current: 'v0.4.0' }) } }, 'measured'],
    ['a withdrawal', answer, { release: { ...right, status: withdrawn } }, 'release_withdrawn'],
    ['no bundle', answer, { release: { ...right, bundle: null } }, 'release_unavailable'],
    [
      'no bundle, and no check after it',
      answer,
      { release: { ...right, bundle: null }, stopAtFailure: true },
      'release_unavailable',
    ],
    ['a broken bundle', answer, { release: { ...right, bundle: '{' } }, 'release_malformed'],
    ['another tag', answer, { release: { ...right, tag: 'v0.2.0' } }, 'release_tag_mismatch'],
    ['the public root', answer, { release: publicRoot }, 'release_untrusted'],
    ['no processor', await attest(), { release: right }, 'release_not_shown'],
    [
      'another guest',
      await answerIn(await sessionOf(guest('bb'.repeat(48)))),
      { release: right },
      'measurement_mismatch',
    ],
    ['a session', alone, { release: right }, 'measured'],
    ['a session and no bundle', alone, { release: { ...right, bundle: null } }, 'release_unavailable'],
    ['a session that is none', {}, { release: right, stopAtFailure: true }, 'not_an_attestation'],
    ['a session that was compared', short, { session: compared }, 'measured'],
    ['a session that was compared, and the release', short, { session: compared, release: right }, 'measured'],
    [
      'another release',
      short,
      { session: compared, release: { ...right, bundle: bundleOf('v0.4.0') } },
      'release_not_shown',
    ],
    ['a session of no release', short, { session: own, release: right }, 'release_not_shown'],
    ['no repository', answer, { release: { bundle: right.bundle } }, 'TypeError'],
    ['a repository that is none', answer, { release: { ...right, repository: '../x' } }, 'TypeError'],
    ['a tag that is none', answer, { release: { ...right, tag: '-' } }, 'TypeError'],
    ['a root that is none', answer, { release: { ...right, trustedRoot: '{}' } }, 'TypeError'],
    ['two lists', answer, { release: right, cpu: { ...options.cpu, reference: '{}' } }, 'TypeError'],
    ['an option that there is not', answer, { release: { ...right, tags: 'v1' } as never }, 'TypeError'],
  ];
  return rows.map(([name, value, more, expected]) => {
    const call = name.startsWith('a session') && value !== short ? 'session' : 'attestation';
    return { question: { name, call, input: { value }, options: { ...options, ...more } }, expected };
  });
}
