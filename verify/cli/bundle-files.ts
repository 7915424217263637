// Bundles from the files and folders that the command line names.
import { existsSync, statSync } from 'node:fs';
import { opendir } from 'node:fs/promises';
import { join } from 'node:path';
import { sha256Hex } from '../../proto/attestation/raw.ts';
import { MAX_BUNDLE_CHARACTERS } from '../common/bundles.ts';
import { LruMap } from '../common/lru.ts';
import { type Bundles, createBundles } from '../index.ts';
import { readText, UsageError, unusable } from './input.ts';
import { fileKindOf } from './kinds.ts';

/** Bundles that are known by their content; more stand in files of a folder that are named HASH.json. */
const MAX_INDEXED = 100_000;

/**
 * @param ask where no file has the bundle
 * @throws {UsageError} for a path that cannot be used, and for a file that is no bundle
 */
export function bundlesIn(paths: readonly string[], ask?: (sha256: string) => Promise<string | null>): Bundles {
  const folders = paths.filter((path) => isFolder(path));
  const files = paths.filter((path) => !folders.includes(path));
  for (const file of files) if (textOfBundle(file) === null) throw new UsageError(`--bundle ${file}: not a bundle`);
  let index: Promise<LruMap<string, string>> | null = null;

  /** Only where a folder has no file of the bundle's name is every file of it read. */
  async function pathOf(sha256: string): Promise<string | undefined> {
    const named = folders.map((folder) => join(folder, `${sha256}.json`)).find((path) => existsSync(path));
    if (named !== undefined || paths.length === 0) return named;
    index ??= indexOf(files, folders);
    return (await index).get(sha256);
  }

  async function load(sha256: string): Promise<string | null> {
    const path = await pathOf(sha256);
    return path === undefined ? ((await ask?.(sha256)) ?? null) : readText(path);
  }
  return createBundles({ load });
}

function isFolder(path: string): boolean {
  try {
    return statSync(path).isDirectory();
  } catch (error) {
    throw unusable(path, error);
  }
}

async function indexOf(files: readonly string[], folders: readonly string[]): Promise<LruMap<string, string>> {
  const index = new LruMap<string, string>(MAX_INDEXED);
  const add = async (path: string) => {
    const text = textOfBundle(path);
    if (text !== null) index.set(await sha256Hex(text), path);
  };
  for (const folder of folders) for await (const path of filesUnder(folder)) await add(path);
  for (const file of files) await add(file);
  return index;
}

/** null: it is none. */
function textOfBundle(path: string): string | null {
  try {
    if (statSync(path).size > MAX_BUNDLE_CHARACTERS) return null;
    const text = readText(path);
    return fileKindOf(text) === 'bundle' ? text : null;
  } catch {
    return null;
  }
}

/** The files of a folder and of those in it, one at a time, in the file system's order. Hidden ones and links are left out. */
export async function* filesUnder(folder: string): AsyncGenerator<string, void, undefined> {
  for await (const entry of await opendir(folder)) {
    const path = join(folder, entry.name);
    if (entry.name.startsWith('.')) continue;
    if (entry.isDirectory()) yield* filesUnder(path);
    else if (entry.isFile()) yield path;
  }
}
