// Lists a folder of weights: what is in it, in the order of the image, with what must not change while it is read.
import { type BigIntStats, readdirSync, realpathSync, statSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { UsageError } from '../../verify/cli/input.ts';

export interface Entry {
  /** Below the folder, with `/` between names; empty for the folder itself. */
  readonly path: string;
  /** Where it is, after all symbolic links. */
  readonly real: string;
  readonly isFolder: boolean;
  /** Of a file. */
  readonly size: number;
  /** Another once its bytes were written, or another file took its place. */
  readonly stamp: string;
}

const MAX_ENTRIES = 100_000;
/** Folders that programs keep for themselves beside the weights: what is in them differs from copy to copy. */
const NO_WEIGHTS = ['.cache', '.git'];
/** A hub's client keeps each file once, in `blobs`, and a snapshot's files are links to them. */
const SNAPSHOT = /^(.*[/\\]models--[^/\\]+)[/\\]snapshots[/\\][^/\\]+$/;

/** @throws {UsageError} for a folder that cannot become an image. */
export function listFolder(folder: string): Entry[] {
  const real = follow(folder, folder);
  if (!statSync(real).isDirectory()) throw new UsageError(`${folder}: a file, not a folder`);
  const [, repository = real] = SNAPSHOT.exec(real) ?? [];
  const entries: Entry[] = [];
  const add = (path: string, place: string, above: readonly string[]) => {
    const shown = path === '' ? folder : join(folder, path);
    const target = follow(place, shown);
    if (relative(repository, target).split(sep)[0] === '..')
      throw new UsageError(`${shown}: leads out of ${repository}`);
    const stats = statSync(target, { bigint: true });
    if (!stats.isFile() && !stats.isDirectory()) throw new UsageError(`${shown}: neither a file nor a folder`);
    entries.push({
      path,
      real: target,
      isFolder: stats.isDirectory(),
      size: stats.isFile() ? Number(stats.size) : 0,
      stamp: stampOf(stats),
    });
    if (entries.length > MAX_ENTRIES) throw new UsageError(`${folder}: more than ${MAX_ENTRIES} files and folders`);
    if (stats.isFile()) return;
    if (above.includes(target)) throw new UsageError(`${shown}: leads back to a folder that it is in`);
    for (const name of namesIn(target, shown)) {
      if (path === '' && NO_WEIGHTS.includes(name))
        throw new UsageError(
          `${join(folder, name)}: no weights`,
          'remove it, or name a snapshot of the hub’s own cache',
        );
      add(path === '' ? name : `${path}/${name}`, join(target, name), [...above, target]);
    }
  };
  add('', real, []);
  if (entries.every(({ isFolder }) => isFolder)) throw new UsageError(`${folder}: no files in it`);
  return entries;
}

/** What {@link listFolder} said of a file; of a folder, its names are compared. */
export function stampOf({ dev, ino, size, mtimeNs, ctimeNs }: BigIntStats): string {
  return [dev, ino, size, mtimeNs, ctimeNs].join(':');
}

/** @throws {UsageError} */
function follow(path: string, shown: string): string {
  try {
    return realpathSync(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') throw new UsageError(`${shown}: there is no such file or folder, or nothing where it leads`);
    throw new UsageError(`${shown}: cannot be used (${code ?? 'unknown'})`);
  }
}

/** In the order of their bytes. @throws {UsageError} */
function namesIn(folder: string, shown: string): string[] {
  const names = readdirSync(folder, { encoding: 'buffer' }).sort(Buffer.compare);
  return names.map((bytes) => {
    const name = bytes.toString();
    if (!bytes.equals(Buffer.from(name)) || /[\p{C}\p{Zl}\p{Zp}]/u.test(name))
      throw new UsageError(`${shown}: a name in it has a line break, a control character or bytes that are not UTF-8`);
    return name;
  });
}
