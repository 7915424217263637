// What the cases about releases are made with: statements, statuses, good bundles, and their changes.
import type { FailureCode } from '../../verify/index.ts';
import { type Bundle, type BundleSpec, makeBundle, SAID, type Said, sha256, type World } from './release-world.ts';

/** A case as its file has it. */
export interface ReleaseCase {
  readonly description: string;
  readonly options: {
    readonly repository: string;
    readonly tag?: string;
    readonly trusted_root?: unknown;
    readonly at: string;
    readonly answered?: string;
  };
  /** A bundle's JSON, or a text where writing the JSON anew would lose what is shown. */
  readonly bundle?: unknown;
  readonly bundle_text?: string;
  /** So many spaces follow the bundle's text. */
  readonly spaces?: number;
  readonly status?: unknown;
  /** `state` of the status and what else the claims say; or the code. */
  readonly expect: { readonly claims: Readonly<Record<string, unknown>> } | { readonly code: FailureCode };
}

export type Made = Omit<ReleaseCase, 'expect' | 'options'> & {
  readonly options?: Partial<ReleaseCase['options']>;
  readonly claims?: Readonly<Record<string, unknown>>;
};
export interface Maker {
  readonly name: string;
  readonly code: FailureCode | null;
  readonly make: (world: World) => Made;
}

export const REPOSITORY = SAID.repository;
export const LOGGED = new Date('2026-06-01T12:00:00Z');
export const AT = '2026-06-10T12:00:00Z';
export const day = (date: string) => new Date(`${date}T12:00:00Z`);
export const typeOf = (kind: string, repository = REPOSITORY) => `https://github.com/${repository}/${kind}/v1`;

// The statements.

export const LAUNCH = JSON.stringify({
  version: 2,
  compose_sha256: 'c'.repeat(64),
  weights: [{ name: 'example/model-8b', verity_root: 'd'.repeat(64) }],
  login: false,
  operator: null,
  compose: 'services: {}\n',
});
export const REFERENCE = {
  version: 1,
  cpu: [{ type: 'SEV_SNP', measurement: ['a'.repeat(96), 'b'.repeat(96)], launch_in: 'host_data' }],
  launch: [sha256(LAUNCH).toString('hex')],
};
export const hex = (text: string) => sha256(text).toString('hex');

export interface Parts {
  readonly files?: Readonly<Record<string, string>>;
  /** Merged into the predicate. */
  readonly predicate?: object;
  readonly subject?: readonly { readonly name: string; readonly digest: object }[];
  /** Merged into the statement. */
  readonly statement?: object;
  readonly tag?: string;
}

export function releaseStatement({ files, predicate, subject, statement, tag = 'v1.0.0' }: Parts = {}): string {
  const all = files ?? { 'reference.json': JSON.stringify(REFERENCE), 'launch.json': LAUNCH };
  return JSON.stringify({
    _type: 'https://in-toto.io/Statement/v1',
    subject: subject ?? Object.entries(all).map(([name, text]) => ({ name, digest: { sha256: hex(text) } })),
    predicateType: typeOf('release'),
    predicate: {
      version: 1,
      repository: REPOSITORY,
      tag,
      commit: SAID.commit,
      files: all,
      weights: [{ launch: 'launch.json', name: 'example/model-8b', verity_root: 'd'.repeat(64) }],
      images: { gateway: `ghcr.io/example/countersign-gateway@sha256:${'e'.repeat(64)}` },
      ...predicate,
    },
    ...statement,
  });
}

export interface StatusParts {
  readonly current?: string;
  /** Of the current release's statement. */
  readonly sha256?: string;
  readonly withdrawn?: readonly object[];
  readonly predicate?: object;
}

export function statusStatement({ current = 'v1.0.0', withdrawn = [], predicate, ...parts }: StatusParts = {}): string {
  const { sha256 = hex(releaseStatement({ tag: current })) } = parts;
  return JSON.stringify({
    _type: 'https://in-toto.io/Statement/v1',
    subject: [{ name: current, digest: { sha256 } }],
    predicateType: typeOf('release-status'),
    predicate: { version: 1, repository: REPOSITORY, current, withdrawn, ...predicate },
  });
}

export const STATUS_SAID: Said = { ...SAID, workflow: 'release-status.yml', ref: 'refs/heads/main', event: 'schedule' };

export const release = (world: World, spec: Partial<BundleSpec> = {}) =>
  makeBundle(world, { payload: releaseStatement(), at: LOGGED, ...spec });
export const status = (world: World, parts: StatusParts = {}, spec: Partial<BundleSpec> = {}) =>
  makeBundle(world, { payload: statusStatement(parts), at: day('2026-06-05'), said: STATUS_SAID, ...spec });

export const good = (name: string, make: Maker['make']): Maker => ({ name: `good.${name}`, code: null, make });
export const bad = (code: FailureCode, name: string, make: Maker['make']): Maker => ({
  name: `${code.slice('release_'.length).replaceAll('_', '-')}.${name}`,
  code,
  make,
});
export const PINNED = { tag: 'v1.0.0' };
export const fresh = { status: { state: 'fresh' } };

/** A bad bundle with the tag named, so that nothing else is asked. */
export const badRelease = (code: FailureCode, name: string, description: string, spec: Partial<BundleSpec>) =>
  bad(code, name, (world) => ({ description, options: PINNED, bundle: release(world, spec) }));
export const badSaid = (code: FailureCode, name: string, description: string, said: Partial<Said>) =>
  badRelease(code, name, description, { said: { ...SAID, ...said } });
export const badStatement = (code: FailureCode, name: string, description: string, parts: Parts) =>
  badRelease(code, name, description, { payload: releaseStatement(parts) });
/** A good bundle, changed after it was made. */
export const changed = (
  code: FailureCode,
  name: string,
  description: string,
  change: (bundle: Bundle, world: World) => unknown,
  spec: Partial<BundleSpec> = {},
) => bad(code, name, (world) => ({ description, options: PINNED, bundle: change(release(world, spec), world) }));

export const ENDED_LATER = { authority: AT, time: AT, log1: AT, log2: AT, certificates: AT };
export const BEFORE = '2026-05-01T00:00:00Z';
export const withdrawal = () => ({
  tag: 'v1.0.0',
  statement_sha256: hex(releaseStatement()),
  reason: 'the firmware had a hole',
});

// Changes.

export type Proof = Bundle['verificationMaterial']['tlogEntries'][number]['inclusionProof'];

export const withEntries = (bundle: Bundle, entries: readonly object[]) => ({
  ...bundle,
  verificationMaterial: { ...bundle.verificationMaterial, tlogEntries: entries },
});
export const entryIn = ({ verificationMaterial }: Bundle) =>
  verificationMaterial.tlogEntries[0] as (typeof verificationMaterial.tlogEntries)[number];
export const withEntry = (bundle: Bundle, change: object) => withEntries(bundle, [{ ...entryIn(bundle), ...change }]);
export const withProof = (bundle: Bundle, change: (proof: Proof) => object) =>
  withEntry(bundle, { inclusionProof: change(entryIn(bundle).inclusionProof) });
export const without = (value: object, name: string) =>
  Object.fromEntries(Object.entries(value).filter(([one]) => one !== name));
export const withMaterial = (bundle: Bundle, change: object) => ({
  ...bundle,
  verificationMaterial: { ...without(bundle.verificationMaterial, 'certificate'), ...change },
});
