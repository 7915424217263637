// vectors/manifest.json: each case with its hash, what it needs and what a verifier must say, for programs in any language.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { CheckName, FailureCode, Level } from '../../verify/index.ts';

export const FORMAT = 'countersign-vectors/1';

/** What a case makes use of, so that a verifier without it knows what it cannot answer. */
export const FEATURES = [
  'evidence',
  'text',
  'batch',
  'compact',
  'stream',
  'exchange',
  'nras',
  'rim',
  'ocsp',
  'processor',
  'policy',
] as const;
export type Feature = (typeof FEATURES)[number];

/** A verifier's last line is `verdict` and `level` or `code`. */
export type Expected =
  | { readonly verdict: 'valid'; readonly level: Level }
  | { readonly verdict: 'invalid' | 'incomplete'; readonly code: FailureCode };

export interface ManifestCase {
  /** `cases/NAME.json`, within the folder. */
  readonly file: string;
  /** Of the file's bytes, in hex. */
  readonly sha256: string;
  readonly description: string;
  readonly check: CheckName;
  readonly features: readonly Feature[];
  readonly expected: Expected;
}

export interface Manifest {
  readonly format: typeof FORMAT;
  readonly cases: readonly ManifestCase[];
  /** SHA-256 of every file that cases name. */
  readonly parts: Readonly<Record<string, string>>;
}

/** Codes of a check that could not get what it needs. Where all that failed says one of these, the verdict is `incomplete`. */
export const UNAVAILABLE: ReadonlySet<FailureCode> = new Set<FailureCode>([
  'revocation_unavailable',
  'rim_unavailable',
  'token_key_unavailable',
  'collateral_unavailable',
  'bundle_unavailable',
]);

/** @throws {TypeError} where a file is missing or is not the one that the manifest names: a verdict on it would say nothing. */
export function readManifest(folder: string): Manifest {
  const manifest = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8')) as Manifest;
  if (manifest.format !== FORMAT) throw new TypeError(`manifest.json is of another format than ${FORMAT}`);
  const stated = [...manifest.cases.map(({ file, sha256 }) => [file, sha256]), ...Object.entries(manifest.parts)];
  for (const [file = '', sha256] of stated)
    if (hashOf(folder, file) !== sha256) throw new TypeError(`${file} is not the file that manifest.json names`);
  return manifest;
}

/** SHA-256 in hex. */
export const hashOf = (folder: string, file: string): string =>
  createHash('sha256')
    .update(readFileSync(join(folder, file)))
    .digest('hex');
