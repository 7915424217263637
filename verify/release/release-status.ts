// A releaser's status: which release is the current one and which were withdrawn, signed anew every week.
import { CheckFailure } from '../common/checks.ts';
import type { ReleaseStatus } from '../common/release-options.ts';
import { iso } from '../x509/certificate.ts';
import { FormError, list, members, text, withCode } from './form.ts';
import { predicateType, readStatement, TAG_NAME } from './release-statement.ts';
import { verifyBundle } from './signed.ts';
import { readBundle } from './sigstore-bundle.ts';
import type { TrustedRoot } from './trusted-root.ts';

interface SignedStatus {
  readonly logged: Date;
  readonly current: string;
  /** SHA-256 of the statement of the current release. */
  readonly current_sha256: string;
  readonly withdrawn: readonly { readonly tag: string; readonly statement_sha256: string; readonly reason: string }[];
}

const FRESH_MS = 14 * 24 * 60 * 60 * 1000;
const MAX_WITHDRAWN = 1024;

const ABSENT: ReleaseStatus = { state: 'absent', time: null, current: null, withdrawn_later: null };

/** @throws {CheckFailure} */
export async function readStatus(
  given: string,
  root: TrustedRoot,
  repository: string,
  ids: { readonly repository: string; readonly owner: string } | null,
): Promise<SignedStatus> {
  const bundle = readBundle(given);
  const { logged } = await verifyBundle(
    bundle,
    root,
    {
      repository,
      workflow: 'release-status.yml',
      ref: 'refs/heads/main',
      events: ['schedule', 'workflow_dispatch'],
      ids,
    },
    null,
  );
  const { subjects, predicate } = readStatement(bundle.payload, predicateType(repository, 'release-status'));
  const status = withCode('release_status_malformed', 'the status', () => readPredicate(predicate));
  if (status.repository !== repository)
    throw new CheckFailure('release_repository_mismatch', 'the status is about another repository');
  const current_sha256 = subjects.get(status.current);
  if (subjects.size !== 1 || current_sha256 === undefined)
    throw new CheckFailure('release_subject_mismatch', 'the status is not about the release that it calls current');
  return { ...status, current_sha256, logged };
}

function readPredicate(value: unknown) {
  const { version, repository, current, withdrawn } = members(value, 'predicate', [
    'version',
    'repository',
    'current',
    'withdrawn',
  ]);
  if (version !== 1) throw new FormError('predicate.version is not 1');
  return {
    repository: text(repository, 'repository'),
    current: text(current, 'current', TAG_NAME),
    withdrawn: list(withdrawn, 'withdrawn', MAX_WITHDRAWN).map((one, i) => {
      const { tag, statement_sha256, reason } = members(one, `withdrawn[${i}]`, ['tag', 'statement_sha256', 'reason']);
      return {
        tag: text(tag, 'tag', TAG_NAME),
        statement_sha256: text(statement_sha256, 'statement_sha256', /^[0-9a-f]{64}$/),
        reason: text(reason, 'reason', /^[\x20-\x7e]{1,512}$/),
      };
    }),
  };
}

/**
 * @param answered the time of the answer, by which the status must be fresh. @param at the time of the check: what was withdrawn in a
 * status of later does not count, and is told. @param isPinned the caller names a tag, so that a status may be old or absent.
 * @throws {CheckFailure} release_withdrawn, release_subject_mismatch, release_status_stale, release_status_unavailable
 */
export function judge(
  status: SignedStatus | null,
  release: { readonly tag: string; readonly sha256: string },
  { answered, at, isPinned }: { readonly answered: Date; readonly at: Date; readonly isPinned: boolean },
): ReleaseStatus {
  if (status === null) {
    if (isPinned) return ABSENT;
    throw new CheckFailure('release_status_unavailable', 'no status was shown, and the caller names no tag');
  }
  const { logged, current, current_sha256, withdrawn } = status;
  const found = withdrawn.find(({ tag, statement_sha256: hash }) => tag === release.tag || hash === release.sha256);
  if (found !== undefined && logged <= at)
    throw new CheckFailure('release_withdrawn', `${release.tag} was withdrawn: ${found.reason}`);
  // A tag can be moved, and its workflow then signs once more.
  if (current === release.tag && current_sha256 !== release.sha256 && logged <= at)
    throw new CheckFailure('release_subject_mismatch', `the status is about another statement of ${current}`);
  const isFresh = logged.getTime() >= answered.getTime() - FRESH_MS;
  if (!isFresh && !isPinned)
    throw new CheckFailure(
      'release_status_stale',
      `the status is of ${iso(logged)}, more than 14 days before the answer, and the caller names no tag`,
    );
  return { state: isFresh ? 'fresh' : 'stale', time: iso(logged), current, withdrawn_later: found?.reason ?? null };
}
