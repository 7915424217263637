// A group of processes that may have so much memory and not a byte more, as a container's are: a cgroup, version 1 or 2.
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { eventually } from '../../support/harness.ts';

const V1 = '/sys/fs/cgroup/memory';
const V2 = '/sys/fs/cgroup';
const END_MS = 10_000;

export interface MemoryGroup {
  /** Anybody who writes a process id there puts the process, and what it starts, into the group. */
  readonly procs: string;
  readonly limit_bytes: number;
  /** The most that its processes had together. */
  readonly peak_bytes: number;
  /** How many of its processes the kernel has killed for want of memory. */
  readonly killed: number;
  /** Once its processes have ended. */
  remove(): Promise<void>;
}

/** What a version calls its files. */
interface Version {
  readonly root: string;
  readonly limit: string;
  readonly swap: readonly [file: string, value: (limit_bytes: number) => string];
  readonly peak: string;
  /** The file with a line `oom_kill N`. */
  readonly kills: string;
}

const VERSION_1: Version = {
  root: V1,
  limit: 'memory.limit_in_bytes',
  swap: ['memory.memsw.limit_in_bytes', String],
  peak: 'memory.max_usage_in_bytes',
  kills: 'memory.oom_control',
};
const VERSION_2: Version = {
  root: V2,
  limit: 'memory.max',
  swap: ['memory.swap.max', () => '0'],
  peak: 'memory.peak',
  kills: 'memory.events',
};

let made = 0;

/** null where there are no such groups, or this user may not make one. */
export function createMemoryGroup(limit_bytes: number): MemoryGroup | null {
  const version = existsSync(join(V1, VERSION_1.limit)) ? VERSION_1 : VERSION_2;
  const path = join(version.root, `countersign-attack-${process.pid}-${++made}`);
  try {
    if (version === VERSION_2 && !readFileSync(join(V2, 'cgroup.subtree_control'), 'utf8').includes('memory'))
      writeFileSync(join(V2, 'cgroup.subtree_control'), '+memory');
    mkdirSync(path);
    writeFileSync(join(path, version.limit), String(limit_bytes));
  } catch {
    if (existsSync(path)) rmdirSync(path);
    return null;
  }
  const [swap, value] = version.swap;
  // Without swap in the kernel there is no such file, and nothing to limit.
  if (existsSync(join(path, swap))) writeFileSync(join(path, swap), value(limit_bytes));
  const read = (file: string) => readFileSync(join(path, file), 'utf8');
  return {
    procs: join(path, 'cgroup.procs'),
    limit_bytes,
    get peak_bytes() {
      return Number(read(version.peak));
    },
    get killed() {
      return Number(/^oom_kill (\d+)$/m.exec(read(version.kills))?.[1] ?? Number.NaN);
    },
    async remove() {
      await eventually(() => read('cgroup.procs').trim() === '', END_MS);
      rmdirSync(path);
    },
  };
}
