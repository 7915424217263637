// The suite `clients`: the tests of this folder, with the newest of each client in place of the version that `npm ci` installs.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Plugin } from 'vitest/config';
import { installPackages, packagesFolder } from '../npm-packages.ts';

const MANIFEST = fileURLToPath(new URL('../package/clients/package.json', import.meta.url));
const ROOM = 'package-clients';
const NAMES = Object.keys((JSON.parse(readFileSync(MANIFEST, 'utf8')) as { dependencies: object }).dependencies);

export const NEWEST_CLIENTS = packagesFolder(MANIFEST, ROOM);

export default function setup(): void {
  if (installPackages(MANIFEST, ROOM) === null) throw new Error("npm's registry cannot be reached: no client to test");
}

/** Finds them and what they export where the newest are installed. */
export function newestClients(): Plugin {
  const importer = join(NEWEST_CLIENTS, 'package.json');
  return {
    name: 'newest-clients',
    enforce: 'pre',
    resolveId(id) {
      const named = NAMES.some((name) => id === name || id.startsWith(`${name}/`));
      return named ? this.resolve(id, importer, { skipSelf: true }) : null;
    },
  };
}
