// Writes vectors/release/: bundles and statuses of releases, good and bad, under a root of their own. Only what is missing is written, because
// ECDSA signatures differ each time; --force makes everything anew, keys too.
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { releaseCases } from './vectors/cases-release.ts';
import { json } from './vectors/kit.ts';
import { keysIn, makeKeys, makeReleaseWorld, rootOf, textsOf } from './vectors/release-world.ts';

const folder = fileURLToPath(new URL('../vectors/release/', import.meta.url));
if (process.argv.includes('--force'))
  for (const made of ['cases', 'keys.json', 'trusted-root.json'])
    rmSync(join(folder, made), { recursive: true, force: true });
mkdirSync(join(folder, 'cases'), { recursive: true });

function kept(name: string, make: () => string): string {
  const file = join(folder, name);
  if (!existsSync(file)) writeFileSync(file, make());
  return readFileSync(file, 'utf8');
}

const keys = keysIn(JSON.parse(kept('keys.json', () => json(textsOf(makeKeys())))));
const world = makeReleaseWorld(keys);
kept('trusted-root.json', () => json(rootOf(world)));
for (const { name, make } of releaseCases(world)) kept(join('cases', `${name}.json`), () => json(make()));
