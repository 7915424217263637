// The history: lines of JSON in files of bounded size, each of which holds the SHA-256 of the line before it. docs/watch.md has the format.
import { createHash } from 'node:crypto';
import {
  closeSync,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { UsageError, unusable } from '../../verify/cli/input.ts';

/** What every line begins with. `prev` is the SHA-256 of the line before, 64 zeros for the first of all. */
export interface Link {
  readonly entry: number;
  readonly prev: string;
  readonly time: string;
  readonly watch: string;
}

/** The newest entry, and the SHA-256 of its line. */
export interface Head {
  readonly entry: number;
  readonly sha256: string;
}

export interface History {
  readonly head: Head;
  /** The number of the oldest entry that is kept; 0 in an empty history. */
  readonly oldest: number;
  readonly bytes: number;
  /** The names of its files, oldest first. */
  readonly files: readonly string[];
  /** Returns when the line is on the disk. @throws {UsageError} where it cannot be written: the history then ends as before. */
  append(members: object, at: Date): Link;
  /** Removes the oldest files until at most this many bytes are left, or the newest file. */
  keep(max_bytes: number): void;
  close(): void;
}

const BEGIN = '0'.repeat(64);
const FILE = /^\d{8}\.jsonl$/;
const LF = 0x0a;

export const sha256 = (data: string | Uint8Array): string => createHash('sha256').update(data).digest('hex');

const nameOf = (entry: number): string => `${String(entry).padStart(8, '0')}.jsonl`;

/** A history as it was read. `cut`: the bytes of a last line that has no end. */
export interface Read {
  readonly head: Head;
  readonly oldest: number;
  readonly files: ReadonlyMap<string, number>;
  readonly cut: number;
}

/**
 * Reads and checks every line.
 * @param onEntry is given every entry in order. @throws {UsageError} for a line that does not follow from the one before.
 */
export function readHistory(folder: string, watch: string | null, onEntry: (entry: Link & object) => void): Read {
  const files = new Map<string, number>();
  let head: Head = { entry: 0, sha256: BEGIN };
  let [oldest, cut] = [0, 0];
  const names = namesIn(folder);
  for (const [i, name] of names.entries()) {
    const bytes = readFileSync(join(folder, name));
    const end = bytes.lastIndexOf(LF) + 1;
    const isLast = i === names.length - 1;
    if (end < bytes.length && !isLast) throw broken(join(folder, name), 'its last line has no end');
    cut = bytes.length - end;
    const lines = bytes.toString('utf8', 0, Math.max(end - 1, 0)).split('\n');
    for (const [at, line] of (end === 0 ? [] : lines).entries()) {
      const place = `${join(folder, name)}, line ${at + 1}`;
      const entry = entryIn(line, place);
      if (watch !== null && entry.watch !== watch)
        throw broken(place, `it is of the watch '${entry.watch}', and nodes.json is of '${watch}'`);
      if (oldest === 0) oldest = entry.entry;
      else if (entry.entry !== head.entry + 1) throw broken(place, `entry ${head.entry + 1} is missing`);
      if (at === 0 && name !== nameOf(entry.entry)) throw broken(place, `the file is named for another entry`);
      if (entry.prev !== head.sha256 && !(oldest === entry.entry && oldest > 1))
        throw broken(place, `entry ${entry.entry} does not hold the hash of the entry before it`);
      head = { entry: entry.entry, sha256: sha256(line) };
      onEntry(entry);
    }
    files.set(name, end);
  }
  return { head, oldest, files, cut };
}

/** @throws {UsageError} */
function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
      .filter((name) => FILE.test(name))
      .sort();
  } catch (error) {
    throw unusable(folder, error);
  }
}

const broken = (place: string, what: string): UsageError =>
  new UsageError(
    `${place}: ${what}: the history was changed, or is of another watch; nothing was written`,
    'keep the folder for those who ask, and give --out another',
  );

function entryIn(line: string, place: string): Link & object {
  let value: Partial<Link> | null;
  try {
    value = JSON.parse(line);
  } catch {
    throw broken(place, 'it is not JSON');
  }
  const { entry, prev, time, watch } = value ?? {};
  const isLink =
    Number.isSafeInteger(entry) && typeof prev === 'string' && typeof time === 'string' && typeof watch === 'string';
  if (!isLink) throw broken(place, 'it is no entry of a history');
  return value as Link;
}

/**
 * Opens a folder's history for writing. A last line that was cut is removed, and the next entry says so.
 * @param watch the name that every entry carries. @param file_bytes the size at which a new file begins.
 * @throws {UsageError} as {@link readHistory}
 */
export function openHistory(
  folder: string,
  watch: string,
  file_bytes: number,
  onEntry: (entry: Link & object) => void,
): History & { readonly cut: number } {
  mkdirSync(folder, { recursive: true });
  const { head: read, oldest: first, files: kept, cut } = readHistory(folder, watch, onEntry);
  const files = new Map(kept);
  let [head, oldest] = [read, first];
  let current: { readonly name: string; readonly opened: number; size: number } | null = null;

  const last = [...files.keys()].at(-1);
  if (last !== undefined) {
    const size = files.get(last) ?? 0;
    // A file whose first line was cut has no entry: the next one has its name again.
    if (size === 0) {
      rmSync(join(folder, last));
      files.delete(last);
    } else {
      current = { name: last, opened: openSync(join(folder, last), 'r+'), size };
      if (cut > 0) ftruncateSync(current.opened, size);
    }
  }

  function begin(): NonNullable<typeof current> {
    if (current !== null) closeSync(current.opened);
    current = null;
    const name = nameOf(head.entry + 1);
    current = { name, opened: openSync(join(folder, name), 'wx+'), size: 0 };
    syncFolder(folder);
    return current;
  }

  function write(line: Buffer): void {
    const file = current === null || current.size + line.length > file_bytes ? begin() : current;
    if (fstatSync(file.opened).size !== file.size)
      throw new UsageError(`${join(folder, file.name)}: another program writes to it`);
    try {
      for (let done = 0; done < line.length; )
        done += writeSync(file.opened, line, done, line.length - done, file.size + done);
      fsyncSync(file.opened);
    } catch (error) {
      ftruncateSync(file.opened, file.size);
      throw error;
    }
    file.size += line.length;
    files.set(file.name, file.size);
  }

  return {
    cut,
    get head() {
      return head;
    },
    get oldest() {
      return oldest;
    },
    get bytes() {
      return sum(files.values());
    },
    get files() {
      return [...files.keys()];
    },
    append(members, at) {
      const link = { entry: head.entry + 1, prev: head.sha256, time: at.toISOString(), watch };
      const text = JSON.stringify({ ...link, ...members });
      try {
        write(Buffer.from(`${text}\n`));
      } catch (error) {
        throw notWritten(folder, error);
      }
      if (oldest === 0) oldest = link.entry;
      head = { entry: link.entry, sha256: sha256(text) };
      return { ...link, ...members };
    },
    keep(max_bytes) {
      for (const name of [...files.keys()].slice(0, -1)) {
        if (sum(files.values()) <= max_bytes) return;
        rmSync(join(folder, name));
        files.delete(name);
        oldest = Number.parseInt([...files.keys()][0] ?? '', 10);
      }
    },
    close() {
      if (current !== null) closeSync(current.opened);
      current = null;
    },
  };
}

const sum = (values: Iterable<number>): number => [...values].reduce((total, one) => total + one, 0);

/** A new file's name is on the disk when its folder is. */
function syncFolder(folder: string): void {
  const opened = openSync(folder, 'r');
  fsyncSync(opened);
  closeSync(opened);
}

/** The error for a file that the disk does not take. */
export function notWritten(path: string, error: unknown): UsageError {
  if (error instanceof UsageError) return error;
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'ENOSPC' || code === 'EDQUOT' || code === 'EFBIG')
    return new UsageError(
      `${path}: the disk is full; the history ends with its last whole entry`,
      'make room, and start the watch again',
    );
  return new UsageError(`${path}: cannot be written (${code ?? 'unknown'})`);
}
