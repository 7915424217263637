// One watch at a time writes to a folder: its file `lock` names the process that does, and is touched while it lives.
import { randomUUID } from 'node:crypto';
import { linkSync, readFileSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { UsageError } from '../../verify/cli/input.ts';

const BEAT_MS = 20_000;
/** A holder on another machine, or in another container, that did not touch its lock for this long has ended. */
const STALE_MS = 90_000;

interface Holder {
  readonly host: string;
  readonly pid: number;
  readonly id: string;
}

/** @returns the function that releases it. @throws {UsageError} while another watch has the folder. */
export function lockFolder(folder: string): () => void {
  const file = join(folder, 'lock');
  const text = JSON.stringify({ host: hostname(), pid: process.pid, id: randomUUID() } satisfies Holder);
  while (!taken(file, text)) removeStale(file, folder);
  const beat = setInterval(() => {
    try {
      utimesSync(file, new Date(), new Date());
    } catch {
      // A full disk or a folder that went shows when the history is written.
    }
  }, BEAT_MS);
  beat.unref();
  return () => {
    clearInterval(beat);
    if (textOf(file) === text) rmSync(file, { force: true });
  };
}

function taken(file: string, text: string): boolean {
  try {
    writeFileSync(file, text, { flag: 'wx' });
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return false;
    throw new UsageError(`${file}: cannot be written (${code})`);
  }
}

function removeStale(file: string, folder: string): void {
  const held = textOf(file);
  if (held === null) return;
  if (isAlive(file, held))
    throw new UsageError(`${folder}: another watch writes there`, 'end it, or give this one a folder of its own');
  // Of several that find it stale, one moves it away. What it moved must be what was judged.
  const moved = `${file}.${randomUUID()}`;
  try {
    renameSync(file, moved);
  } catch {
    return;
  }
  if (textOf(moved) !== held) linkSync(moved, file);
  rmSync(moved, { force: true });
}

function isAlive(file: string, held: string): boolean {
  const holder = holderIn(held);
  const touched_ms = statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const isFresh = Date.now() - touched_ms < STALE_MS;
  if (holder === null || holder.host !== hostname() || holder.pid === process.pid) return isFresh;
  try {
    process.kill(holder.pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function holderIn(text: string): Holder | null {
  try {
    const { host, pid, id } = JSON.parse(text) as Partial<Holder>;
    return typeof host === 'string' && Number.isInteger(pid) && typeof id === 'string'
      ? ({ host, pid, id } as Holder)
      : null;
  } catch {
    return null;
  }
}

function textOf(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null;
  }
}
