// The in-toto statement of a release: its files, whose digests are the subjects, and from them the list of guests and launch files.
import { digest, EncodingError, fromUtf8, toHex, utf8 } from '../common/bytes.ts';
import { CheckFailure } from '../common/checks.ts';
import type { ReleaseWeights } from '../common/release-options.ts';
import type { CpuReference } from '../cpu/cpu-options.ts';
import { readReference } from '../cpu/reference.ts';
import { FormError, type Json, list, members, parsed, text, withCode } from './form.ts';

export interface ReleaseStatement {
  readonly repository: string;
  readonly tag: string;
  readonly commit: string;
  /** SHA-256 of the statement's bytes. */
  readonly sha256: string;
  readonly reference: CpuReference;
  /** Launch files by their SHA-256: the name that the release gives each. */
  readonly launches: Readonly<Record<string, string>>;
  readonly weights: readonly ReleaseWeights[];
  readonly images: Readonly<Record<string, string>>;
}

const MAX_STATEMENT_BYTES = 256 * 1024;
const MAX_FILES = 64;
const IN_TOTO = 'https://in-toto.io/Statement/v1';
const REFERENCE = 'reference.json';
const LAUNCH = /^launch(-[a-z0-9][a-z0-9.-]{0,62})?\.json$/;
const DIGEST = /^[0-9a-f]{64}$/;
const TEXT = /^[\x20-\x7e]{1,256}$/;

/** In the releaser's own part of GitHub's names, so that nobody else's statement is of this type. */
export const predicateType = (repository: string, kind: 'release' | 'release-status'): string =>
  `https://github.com/${repository}/${kind}/v1`;

/** The subjects by name, and the predicate. @throws {CheckFailure} */
export function readStatement(payload: Uint8Array, type: string) {
  if (payload.length > MAX_STATEMENT_BYTES)
    throw new CheckFailure('release_too_large', `the statement has more than ${MAX_STATEMENT_BYTES} bytes`);
  return withCode('release_statement_malformed', 'the statement', () => {
    const statement = members(parsed(textOf(payload)), 'it', ['_type', 'subject', 'predicateType', 'predicate']);
    if (statement._type !== IN_TOTO) throw new FormError('it is no in-toto statement of version 1');
    if (statement.predicateType !== type) throw new FormError(`it is not of the type ${type}`);
    const subjects = new Map<string, string>();
    for (const subject of list(statement.subject, 'subject', MAX_FILES)) {
      const { name, digest: digests } = members(subject, 'subject', ['name', 'digest']);
      const { sha256 } = members(digests, 'digest', ['sha256']);
      if (subjects.has(text(name, 'name', TEXT)))
        throw new CheckFailure('release_subject_duplicate', `two subjects are called ${name}`);
      subjects.set(name as string, text(sha256, 'sha256', DIGEST));
    }
    return { subjects, predicate: statement.predicate };
  });
}

function textOf(payload: Uint8Array): string {
  try {
    return fromUtf8(payload);
  } catch (cause) {
    if (cause instanceof EncodingError) throw new FormError('it is not UTF-8', { cause });
    throw cause;
  }
}

const sha256 = async (bytes: Uint8Array) => toHex(await digest('SHA-256', bytes));

/** @param named what the certificate names. @throws {CheckFailure} */
export async function readRelease(
  payload: Uint8Array,
  named: { readonly repository: string; readonly ref: string; readonly commit: string },
): Promise<ReleaseStatement> {
  const { subjects, predicate } = readStatement(payload, predicateType(named.repository, 'release'));
  const { files, ...said } = withCode('release_statement_malformed', 'the statement', () => readPredicate(predicate));
  if (said.repository !== named.repository)
    throw new CheckFailure('release_repository_mismatch', 'the statement is about another repository');
  if (`refs/tags/${said.tag}` !== named.ref)
    throw new CheckFailure('release_tag_mismatch', 'the statement is about another tag');
  if (said.commit !== named.commit)
    throw new CheckFailure('release_commit_mismatch', 'the statement is about another commit');
  const digests = new Map<string, string>();
  for (const [name, content] of files) digests.set(name, await sha256(utf8(content)));
  const other = [...new Set([...subjects.keys(), ...digests.keys()])].find(
    (name) => subjects.get(name) !== digests.get(name),
  );
  if (other !== undefined)
    throw new CheckFailure('release_subject_mismatch', `the subject ${other} is not the text of that name`);
  const reference = readList(files.get(REFERENCE) ?? '');
  const launches = Object.fromEntries(
    [...digests].filter(([name]) => name !== REFERENCE).map(([name, hash]) => [hash, name]),
  );
  const listed = Object.keys(launches);
  if (listed.length !== reference.launch.length || !reference.launch.every((hash) => listed.includes(hash)))
    throw malformedList('its launch files are not those of the release');
  const weights = withCode('release_statement_malformed', 'the statement', () => weightsOf(files));
  if (JSON.stringify(weights) !== JSON.stringify(said.weights))
    throw new CheckFailure('release_statement_malformed', 'the statement: weights are not those of its launch files');
  return { ...said, sha256: await sha256(payload), reference, launches };
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/;
export const REPOSITORY = /^[A-Za-z0-9][A-Za-z0-9-]{0,38}\/[A-Za-z0-9._-]{1,100}$/;
export const TAG_NAME = /^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$/;
const PINNED = /^[\x21-\x3f\x41-\x7e]{1,512}@sha256:[0-9a-f]{64}$/;

function readPredicate(value: unknown) {
  const predicate = members(value, 'predicate', [
    'version',
    'repository',
    'tag',
    'commit',
    'files',
    'weights',
    'images',
  ]);
  if (predicate.version !== 1) throw new FormError('predicate.version is not 1');
  const files = Object.entries(record(predicate.files, 'files')).map(
    ([name, content]) => [name, text(content, `files.${name}`)] as const,
  );
  const other = files.find(([name]) => name !== REFERENCE && !LAUNCH.test(name));
  if (other !== undefined) throw new FormError(`files has ${other[0].slice(0, 64)}, which is not known`);
  if (files.length < 2 || files.length > MAX_FILES || !files.some(([name]) => name === REFERENCE))
    throw new FormError(`files are not ${REFERENCE} and at least one launch file`);
  const images = Object.entries(record(predicate.images, 'images')).map(
    ([name, image]) => [text(name, 'images', NAME), text(image, `images.${name}`, PINNED)] as const,
  );
  return {
    repository: text(predicate.repository, 'repository', REPOSITORY),
    tag: text(predicate.tag, 'tag', TAG_NAME),
    commit: text(predicate.commit, 'commit', /^[0-9a-f]{40}$/),
    files: new Map(files),
    weights: list(predicate.weights, 'weights', 1024).map((one, i): ReleaseWeights => {
      const { launch, name, verity_root } = members(one, `weights[${i}]`, ['launch', 'name', 'verity_root']);
      return { launch: text(launch, 'launch'), ...readWeights(name, verity_root) };
    }),
    images: Object.fromEntries(images),
  };
}

function readWeights(name: unknown, root: unknown) {
  return { name: text(name, 'weights', TEXT), verity_root: root === null ? null : text(root, 'verity_root', DIGEST) };
}

function record(value: unknown, where: string): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new FormError(`${where} is not an object`);
  return value as Json;
}

/** Of all launch files, in the order of files and of each file: its `weights`, or `model` where it is of version 1. */
export function weightsOf(files: ReadonlyMap<string, string>): ReleaseWeights[] {
  return [...files]
    .filter(([name]) => name !== REFERENCE)
    .flatMap(([launch, content]) => {
      const { weights, model } = record(parsed(content), launch);
      return list(weights ?? [model], `${launch}: weights`, 64).map((one) => {
        const { name, verity_root } = record(one, `${launch}: weights`);
        return { launch, ...readWeights(name, verity_root) };
      });
    });
}

const malformedList = (message: string, cause?: unknown) =>
  new CheckFailure('release_list_malformed', `the list: ${message}`, { cause });

/** As a caller's own list is read, and no measurement twice. */
function readList(given: string): CpuReference {
  let reference: CpuReference;
  try {
    reference = readReference(given);
  } catch (cause) {
    if (cause instanceof TypeError) throw malformedList(cause.message, cause);
    throw cause;
  }
  const measured = reference.cpu.flatMap((guest) => (guest.type === 'SEV_SNP' ? guest.measurement : []));
  const guests = reference.cpu.map((guest) => JSON.stringify(guest));
  for (const values of [guests, measured, reference.launch, ...reference.cpu.flatMap(listsOf)])
    if (new Set(values).size !== values.length) throw malformedList('it names a value twice');
  return reference;
}

const listsOf = (guest: CpuReference['cpu'][number]): unknown[][] =>
  [...Object.values(guest), ...Object.values('pcrs' in guest ? guest.pcrs : {})].filter((one) => Array.isArray(one));
