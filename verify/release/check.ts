// Verifies a release: from the caller's options to the list of guests and launch files.
import { CheckFailure, type CheckList, passed } from '../common/checks.ts';
import { refuseUnknown } from '../common/known-options.ts';
import { LruMap } from '../common/lru.ts';
import { RELEASE_OPTIONS, type ReleaseClaims, type ReleaseOptions } from '../common/release-options.ts';
import type { CpuReference } from '../cpu/cpu-options.ts';
import { iso } from '../x509/certificate.ts';
import { PROJECT } from './project.ts';
import { PUBLIC_ROOT } from './public-root.ts';
import { REPOSITORY, type ReleaseStatement, readRelease, TAG_NAME } from './release-statement.ts';
import { judge, readStatus } from './release-status.ts';
import { verifyBundle } from './signed.ts';
import type { Identity } from './signer-certificate.ts';
import { readBundle } from './sigstore-bundle.ts';
import { readTrustedRoot, type TrustedRoot } from './trusted-root.ts';

export interface VerifiedRelease {
  /** The list that it publishes, for the option `cpu.reference`. */
  readonly reference: CpuReference;
  readonly claims: ReleaseClaims;
}

export interface ReleaseTimes {
  /** The time of the check. Now by default. */
  readonly at?: Date | undefined;
  /** The time of the answer, by which the status must be fresh; `at` by default. */
  readonly answered?: Date | undefined;
}

interface Context {
  readonly options: ReleaseOptions;
  readonly repository: string;
  readonly own: boolean;
  readonly ids: Identity['ids'];
  readonly root: TrustedRoot;
  readonly at: Date;
  readonly answered: Date;
}

/** @throws {TypeError} for options that cannot be used. */
function readOptions(options: ReleaseOptions, { at = new Date(), answered = at }: ReleaseTimes): Context {
  refuseUnknown(options, RELEASE_OPTIONS, 'release.');
  const { bundle, status, repository = PROJECT?.repository, tag, trustedRoot } = options;
  if (repository === undefined || !REPOSITORY.test(repository))
    throw new TypeError('release.repository is not OWNER/REPO, and the project has no public repository yet');
  if (tag !== undefined && !TAG_NAME.test(tag)) throw new TypeError('release.tag is not the name of a tag');
  for (const [name, value] of Object.entries({ bundle, status, trustedRoot }))
    if (value !== null && value !== undefined && typeof value !== 'string')
      throw new TypeError(`release.${name} is not a text`);
  const own = repository === PROJECT?.repository;
  const ids = own && PROJECT !== null ? { repository: PROJECT.repositoryId, owner: PROJECT.ownerId } : null;
  return { options, repository, own, ids, root: readRoot(trustedRoot ?? PUBLIC_ROOT), at, answered };
}

const roots = new LruMap<string, TrustedRoot>(4);

function readRoot(given: string): TrustedRoot {
  const root = roots.get(given) ?? readTrustedRoot(given);
  roots.set(given, root);
  return root;
}

type Verified = ReleaseStatement & { readonly logged: Date };

async function verified({ options, repository, ids, root, at }: Context): Promise<Verified> {
  const { bundle, tag } = options;
  if (bundle === null || bundle === undefined)
    throw new CheckFailure('release_unavailable', `no bundle of a release of ${repository} was to be had`);
  const read = readBundle(bundle);
  const identity = {
    repository,
    workflow: 'release.yml',
    ref: tag === undefined ? null : `refs/tags/${tag}`,
    events: ['push'],
    ids,
  };
  const { ref, commit, logged } = await verifyBundle(read, root, identity, at);
  return { ...(await readRelease(read.payload, { repository, ref, commit })), logged };
}

async function standing(context: Context, release: Verified) {
  const { options, root, repository, ids, answered, at } = context;
  const status = options.status == null ? null : await readStatus(options.status, root, repository, ids);
  return judge(status, release, { answered, at, isPinned: options.tag !== undefined });
}

function claimsOf({ own, options }: Context, release: Verified, status: ReleaseClaims['status']): ReleaseClaims {
  const { repository, tag, commit, sha256, logged, weights, images, launches } = release;
  return {
    repository,
    own,
    tag,
    commit,
    statement_sha256: sha256,
    logged: iso(logged),
    own_root: options.trustedRoot !== undefined,
    weights,
    images,
    launches,
    status,
  };
}

/**
 * Verifies a release by itself.
 * @throws {CheckFailure} with a code that begins with `release_`. @throws {TypeError} for options that cannot be used.
 */
export async function verifyRelease(options: ReleaseOptions, times: ReleaseTimes = {}): Promise<VerifiedRelease> {
  const context = readOptions(options, times);
  const release = await verified(context);
  return { reference: release.reference, claims: claimsOf(context, release, await standing(context, release)) };
}

/** The same as two checks of a list. @returns null: the first failed. @throws {TypeError} */
export async function checkRelease(
  list: CheckList,
  options: ReleaseOptions,
  times: ReleaseTimes,
): Promise<VerifiedRelease | null> {
  const context = readOptions(options, times);
  const release = await list.run('release', [], async () => {
    const found = await verified(context);
    return passed(`${found.tag} of ${found.repository}, in the log since ${iso(found.logged)}`, found);
  });
  if (release === null) {
    await list.run('release_status', ['release'], () => passed('', null));
    return null;
  }
  const status = await list.run('release_status', ['release'], async () => {
    const found = await standing(context, release);
    return passed(`the release's status is ${found.state}`, found);
  });
  return { reference: release.reference, claims: claimsOf(context, release, status) };
}
