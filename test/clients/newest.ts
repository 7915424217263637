// The newest of each client, in place of the version that `npm ci` installs: for the suite `clients`, which is the tests of this folder, and
// for test/decoders, which says what clients read of forged streams. openai has decoded such streams rightly since version 7.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Plugin } from 'vitest/config';
import { installPackages, packagesFolder } from '../support/npm-packages.ts';

const MANIFEST = fileURLToPath(new URL('../package/clients/package.json', import.meta.url));
const ROOM = 'package-clients';
const NAMES = Object.keys((JSON.parse(readFileSync(MANIFEST, 'utf8')) as { dependencies: object }).dependencies);

export const NEWEST_CLIENTS = packagesFolder(MANIFEST, ROOM);

/** Installed once; null where npm's registry cannot be reached. */
export const installNewest = (): string | null => installPackages(MANIFEST, ROOM);

export default function setup(): void {
  if (installNewest() === null) throw new Error("npm's registry cannot be reached: no client to test");
}

/** Finds them and what they export where the newest are installed, for the modules in `folder`; without them, those of `npm ci`. */
export function newestClients(folder = '/'): Plugin {
  return {
    name: 'newest-clients',
    enforce: 'pre',
    resolveId(id, importer) {
      const named = NAMES.some((name) => id === name || id.startsWith(`${name}/`));
      if (!named || importer?.includes(folder) !== true || installNewest() === null) return null;
      return this.resolve(id, join(NEWEST_CLIENTS, 'package.json'), { skipSelf: true });
    },
  };
}
