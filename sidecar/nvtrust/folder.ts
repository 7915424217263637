// The folder under which workers have theirs: made for this process, removed with it, swept by the next when it was killed.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const PREFIX = 'countersign-nvtrust-';

export interface WorkerFolder {
  readonly path: string;
  remove(): Promise<void>;
}

/** Mode 0700, as mkdtemp makes it. */
export function makeWorkerFolder(parent = tmpdir()): WorkerFolder {
  sweep(parent);
  const path = mkdtempSync(join(parent, `${PREFIX}${process.pid}-`));
  return { path, remove: () => rm(path, { recursive: true, force: true }) };
}

function sweep(parent: string): void {
  for (const name of readdirSync(parent)) {
    const pid = new RegExp(`^${PREFIX}([1-9][0-9]*)-`).exec(name)?.[1];
    if (pid === undefined || isAlive(Number(pid))) continue;
    try {
      rmSync(join(parent, name), { recursive: true, force: true });
    } catch {
      // another user's: theirs to remove
    }
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
