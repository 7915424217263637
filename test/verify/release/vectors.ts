// vectors/release/: the cases, and what a verifier is given for each.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ReleaseCase } from '../../../scripts/vectors/release-kit.ts';
import type { ReleaseOptions } from '../../../verify/release.ts';

const folder = fileURLToPath(new URL('../../../vectors/release/', import.meta.url));
const root = readFileSync(join(folder, 'trusted-root.json'), 'utf8');

export const releaseVectors = readdirSync(join(folder, 'cases')).map((file): [string, ReleaseCase] => [
  file.replace('.json', ''),
  JSON.parse(readFileSync(join(folder, 'cases', file), 'utf8')) as ReleaseCase,
]);

export function optionsOf({ bundle, bundle_text, spaces = 0, status, options }: ReleaseCase): ReleaseOptions {
  const { repository, tag, trusted_root } = options;
  return {
    bundle: (bundle_text ?? JSON.stringify(bundle)) + ' '.repeat(spaces),
    repository,
    trustedRoot: trusted_root === undefined ? root : JSON.stringify(trusted_root),
    ...(status === undefined ? {} : { status: JSON.stringify(status) }),
    ...(tag === undefined ? {} : { tag }),
  };
}
