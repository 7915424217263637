// Cases about releases in vectors/release/: the good ones, identities, statements and statuses; those of bundles are beside this file.
import type { FailureCode } from '../../verify/index.ts';
import { FORM, LOG, TRUST } from './cases-release-bundle.ts';
import {
  AT,
  bad,
  badRelease,
  badSaid,
  badStatement,
  day,
  ENDED_LATER,
  fresh,
  good,
  hex,
  LAUNCH,
  LOGGED,
  type Maker,
  PINNED,
  REFERENCE,
  REPOSITORY,
  type ReleaseCase,
  release,
  releaseStatement,
  STATUS_SAID,
  type StatusParts,
  status,
  typeOf,
  withdrawal,
  withProof,
} from './release-kit.ts';
import { type BundleSpec, checkpointOf, rootOf, SAID, type World } from './release-world.ts';

const GOOD: readonly Maker[] = [
  good('v1', (world) => ({
    description: 'a log of version 1 with its signed time, and a fresh status; the caller names no tag',
    bundle: release(world),
    status: status(world),
    claims: { ...fresh, tag: 'v1.0.0', commit: SAID.commit, logged: '2026-06-01T12:00:00Z' },
  })),
  good('v2', (world) => ({
    description: 'a log of version 2 (Ed25519) with the word of a time authority',
    bundle: release(world, { version: 2 }),
    status: status(world, {}, { version: 2 }),
    claims: fresh,
  })),
  good('v1-and-time-authority', (world) => ({
    description: "a log of version 1, and a time authority's word a minute before: since when is the earlier",
    bundle: release(world, { stamps: ['right'], stampedAt: new Date('2026-06-01T11:59:30Z') }),
    status: status(world),
    claims: { ...fresh, logged: '2026-06-01T11:59:30Z' },
  })),
  good('older-media-type', (world) => ({
    description: 'version 0.3 in the older spelling of its media type',
    options: PINNED,
    bundle: { ...release(world), mediaType: 'application/vnd.dev.sigstore.bundle+json;version=0.3' },
    claims: { status: { state: 'absent' } },
  })),
  good('witnessed-checkpoint', (world) => ({
    description: 'a checkpoint that somebody else signed too',
    options: PINNED,
    bundle: withProof(release(world), (proof) => ({
      ...proof,
      checkpoint: {
        envelope: checkpointOf(world, 'log1', 5, Buffer.from(proof.rootHash, 'base64'), ['strangeLog', 'log1']),
      },
    })),
    claims: { status: { state: 'absent' } },
  })),
  good('stale-status', (world) => ({
    description: 'a status of 15 days before the answer, where the caller names the tag: it is told',
    options: { ...PINNED, at: '2026-07-01T12:00:00Z', answered: '2026-06-20T12:00:01Z' },
    bundle: release(world),
    status: status(world),
    claims: { status: { state: 'stale', time: '2026-06-05T12:00:00Z' } },
  })),
  good('fresh-at-the-answer', (world) => ({
    description: 'a stored answer, verified a year later by the status of its day',
    options: { at: '2027-06-10T12:00:00Z', answered: '2026-06-19T12:00:00Z' },
    bundle: release(world),
    status: status(world),
    claims: fresh,
  })),
  good('withdrawn-later', (world) => ({
    description: 'withdrawn in a status of after the day that the caller asks about: it is told',
    options: { at: AT },
    bundle: release(world),
    status: status(world, { current: 'v2.0.0', withdrawn: [withdrawal()] }, { at: day('2026-06-12') }),
    claims: { status: { state: 'fresh', current: 'v2.0.0', withdrawn_later: 'the firmware had a hole' } },
  })),
  good('another-is-withdrawn', (world) => ({
    description: 'the status withdraws another release',
    bundle: release(world),
    status: status(world, { withdrawn: [{ ...withdrawal(), tag: 'v0.9.0', statement_sha256: 'f'.repeat(64) }] }),
    claims: fresh,
  })),
  good('keys-ended-since', (world) => ({
    description: 'authority, logs and time authority ended after the release was logged',
    options: { ...PINNED, trusted_root: rootOf(world, { ends: ENDED_LATER }) },
    bundle: release(world, { stamps: ['right'] }),
    claims: { status: { state: 'absent' } },
  })),
  good('ended-inclusive', (world) => ({
    description: 'the log ended in the very second in which the release was logged',
    options: { ...PINNED, trusted_root: rootOf(world, { ends: { log1: LOGGED.toISOString() } }) },
    bundle: release(world),
    claims: { status: { state: 'absent' } },
  })),
];

const uri = (repository: string, ref: string) =>
  `https://github.com/${repository}/.github/workflows/release.yml@${ref}`;
const RIGHT = uri(REPOSITORY, SAID.ref);

const IDENTITY: readonly Maker[] = [
  badSaid('release_issuer_mismatch', 'other', 'an identity of another issuer', { issuer: 'https://accounts.example' }),
  badSaid('release_repository_mismatch', 'other', 'of another repository', { repository: 'someone/countersign' }),
  badSaid('release_repository_mismatch', 'longer', 'of a repository whose name begins with the right one', {
    repository: `${REPOSITORY}-fork`,
  }),
  badSaid('release_repository_mismatch', 'case', 'of a repository whose name differs in case', {
    repository: 'Example/countersign',
  }),
  badSaid('release_ref_mismatch', 'branch', 'of a branch', { ref: 'refs/heads/main' }),
  badSaid('release_ref_mismatch', 'branch-like-a-tag', 'of a branch that is called like the tag', {
    ref: 'refs/heads/v1.0.0',
  }),
  badSaid('release_tag_mismatch', 'other', 'of another tag', { ref: 'refs/tags/v1.0.1' }),
  bad('release_tag_mismatch', 'statement', (world) => ({
    description: 'the statement names another tag than the certificate',
    bundle: release(world, { payload: releaseStatement({ tag: 'v2.0.0' }) }),
    status: status(world),
  })),
  badSaid('release_event_mismatch', 'pull-request', 'started by a pull request', { event: 'pull_request_target' }),
  badSaid('release_event_mismatch', 'by-hand', 'started by hand', { event: 'workflow_dispatch' }),
  badSaid('release_runner_mismatch', 'self-hosted', 'on a machine of their own', { runner: 'self-hosted' }),
  badSaid('release_workflow_mismatch', 'other', 'of another workflow', { workflow: 'ci.yml' }),
  badSaid('release_workflow_mismatch', 'longer', 'of a workflow whose name begins with the right one', {
    workflow: 'release.yml.yml',
  }),
  badSaid('release_identity_mismatch', 'contains', 'a name that contains the right one', {
    alternative: [`https://evil.example/?${RIGHT}`],
  }),
  badSaid('release_identity_mismatch', 'longer', 'a name that begins with the right one', {
    alternative: [`${RIGHT}.1`],
  }),
  badSaid('release_identity_mismatch', 'two', 'two names, of which one is right', {
    alternative: [RIGHT, 'https://evil.example'],
  }),
  badSaid('release_commit_mismatch', 'statement', 'the statement names another commit', { commit: '2'.repeat(40) }),
  badSaid('release_commit_mismatch', 'none', 'the certificate names no commit', { commit: 'main' }),
  badStatement('release_repository_mismatch', 'statement', 'the statement names another repository', {
    predicate: { repository: 'someone/countersign' },
  }),
];

const reference = (change: object) => ({
  'reference.json': JSON.stringify({ ...REFERENCE, ...change }),
  'launch.json': LAUNCH,
});
const [GUEST] = REFERENCE.cpu as [(typeof REFERENCE.cpu)[number]];

const STATEMENT: readonly Maker[] = [
  badRelease('release_statement_malformed', 'not-json', 'no JSON', { payload: '[' }),
  badStatement('release_statement_malformed', 'type', 'a statement of another type', {
    statement: { predicateType: typeOf('release', 'someone/countersign') },
  }),
  badStatement('release_statement_malformed', 'in-toto', 'a statement of version 0.1', {
    statement: { _type: 'https://in-toto.io/Statement/v0.1' },
  }),
  badStatement('release_statement_malformed', 'unknown-member', 'a predicate with a member that is not known', {
    predicate: { more: 1 },
  }),
  badStatement('release_statement_malformed', 'version', 'a predicate of version 2', { predicate: { version: 2 } }),
  badStatement('release_statement_malformed', 'no-list', 'no reference.json', { files: { 'launch.json': LAUNCH } }),
  badStatement('release_statement_malformed', 'other-file', 'a file that is not known', {
    files: { ...reference({}), 'readme.md': 'x' },
  }),
  badStatement('release_statement_malformed', 'weights', 'weights that no launch file names', {
    predicate: { weights: [] },
  }),
  badStatement('release_statement_malformed', 'image', 'an image without a digest', {
    predicate: { images: { gateway: 'gateway:1' } },
  }),
  badStatement('release_subject_duplicate', 'two', 'two subjects of one name', {
    subject: ['reference.json', 'reference.json', 'launch.json'].map((name) => ({
      name,
      digest: { sha256: hex(LAUNCH) },
    })),
  }),
  badStatement('release_subject_mismatch', 'digest', 'a subject with another digest than the list that is shown', {
    subject: Object.entries(reference({})).map(([name]) => ({ name, digest: { sha256: hex(LAUNCH) } })),
  }),
  badStatement('release_subject_mismatch', 'missing', 'a file that is no subject', {
    subject: [{ name: 'launch.json', digest: { sha256: hex(LAUNCH) } }],
  }),
  badStatement('release_subject_mismatch', 'more', 'a subject that is no file', {
    subject: [...Object.entries(reference({})), ['launch-b.json', LAUNCH] as const].map(([name, text]) => ({
      name,
      digest: { sha256: hex(text) },
    })),
  }),
  badStatement('release_list_malformed', 'not-json', 'a list that is no JSON', {
    files: { ...reference({}), 'reference.json': '{' },
  }),
  badStatement('release_list_malformed', 'unknown-member', 'a list with a member that is not known', {
    files: reference({ note: '' }),
  }),
  badStatement('release_list_malformed', 'measurement-twice', 'a list with a measurement twice', {
    files: reference({ cpu: [{ ...GUEST, measurement: ['a'.repeat(96), 'a'.repeat(96)] }] }),
  }),
  badStatement('release_list_malformed', 'measurement-in-two', 'a list with a measurement in two guests', {
    files: reference({ cpu: [GUEST, { ...GUEST, launch_in: 'measurement' }] }),
  }),
  badStatement('release_list_malformed', 'launch-twice', 'a list with a launch file twice', {
    files: reference({ launch: [...REFERENCE.launch, ...REFERENCE.launch] }),
  }),
  badStatement('release_list_malformed', 'other-launch', 'a list with a launch file that is not shown', {
    files: reference({ launch: [...REFERENCE.launch, 'f'.repeat(64)] }),
  }),
];

const badStatus = (
  code: FailureCode,
  name: string,
  description: string,
  parts: StatusParts,
  spec: Partial<BundleSpec> = {},
) => bad(code, name, (world) => ({ description, bundle: release(world), status: status(world, parts, spec) }));

const STATUS: readonly Maker[] = [
  bad('release_status_unavailable', 'none', (world) => ({
    description: 'no status, and the caller names no tag',
    bundle: release(world),
  })),
  bad('release_status_stale', 'old', (world) => ({
    description: 'a status of 14 days and a second before the answer, and the caller names no tag',
    options: { at: '2026-07-01T12:00:00Z', answered: '2026-06-19T12:00:01Z' },
    bundle: release(world),
    status: status(world),
  })),
  badStatus('release_withdrawn', 'tag', 'withdrawn by its tag', {
    withdrawn: [{ ...withdrawal(), statement_sha256: 'f'.repeat(64) }],
  }),
  badStatus('release_withdrawn', 'statement', 'withdrawn by its statement', {
    withdrawn: [{ ...withdrawal(), tag: 'v0.0.1' }],
  }),
  bad('release_withdrawn', 'stale', (world) => ({
    description: 'withdrawn in a status that is stale, and the caller names the tag',
    options: { ...PINNED, at: '2026-09-01T12:00:00Z' },
    bundle: release(world),
    status: status(world, { withdrawn: [withdrawal()] }),
  })),
  badStatus('release_status_malformed', 'unknown-member', 'a status with a member that is not known', {
    predicate: { more: 1 },
  }),
  badStatus('release_status_malformed', 'version', 'a status of version 2', { predicate: { version: 2 } }),
  badStatus(
    'release_repository_mismatch',
    'status',
    'the status of another repository',
    {},
    {
      said: { ...STATUS_SAID, repository: 'someone/countersign' },
    },
  ),
  badStatus(
    'release_ref_mismatch',
    'status-branch',
    'the status of another branch',
    {},
    {
      said: { ...STATUS_SAID, ref: 'refs/heads/other' },
    },
  ),
  badStatus(
    'release_ref_mismatch',
    'status-tag',
    'the status of a tag',
    {},
    { said: { ...STATUS_SAID, ref: 'refs/tags/v1.0.0' } },
  ),
  badStatus(
    'release_workflow_mismatch',
    'status',
    'the status of the workflow of releases',
    {},
    {
      said: { ...STATUS_SAID, workflow: 'release.yml' },
    },
  ),
  badStatus(
    'release_event_mismatch',
    'status',
    'the status of a push',
    {},
    { said: { ...STATUS_SAID, event: 'push' } },
  ),
  bad('release_statement_malformed', 'release-as-status', (world) => ({
    description: 'the statement of a release in place of a status',
    bundle: release(world),
    status: status(world, {}, { payload: releaseStatement() }),
  })),
  badStatus('release_subject_mismatch', 'status', 'a status about another release than the current one', {
    predicate: { current: 'v2.0.0' },
  }),
];

const MAKERS: readonly Maker[] = [...GOOD, ...FORM, ...TRUST, ...LOG, ...IDENTITY, ...STATEMENT, ...STATUS];

/** Every case by the name of its file, made when it is asked for. */
export function releaseCases(world: World): readonly { readonly name: string; readonly make: () => ReleaseCase }[] {
  return MAKERS.map(({ name, code, make }) => ({
    name,
    make: () => {
      const { claims, options, ...made } = make(world);
      return {
        ...made,
        options: { repository: REPOSITORY, at: AT, ...options },
        expect: code === null ? { claims: claims ?? {} } : { code },
      };
    },
  }));
}
