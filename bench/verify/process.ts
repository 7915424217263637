// Runs measure.ts in processes of its own: kept to one core for what is warm, free for the first verification of a process.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { which } from '../../test/support/debian.ts';
import type { LeafMeasured } from './leaf.ts';
import type { Measured } from './measure.ts';
import type { SubjectName } from './subject.ts';

const MEASURE = fileURLToPath(new URL('measure.ts', import.meta.url));
const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const LEAF = fileURLToPath(new URL('leaf.ts', import.meta.url));
const CORE = '0';

export const pinned: boolean = which('taskset') !== null;
const ON_CORE = pinned ? ['taskset', '-c', CORE] : [];

export function warm(name: SubjectName, warm_up_ms: number, measure_ms: number): Promise<Measured> {
  return run<Measured>(ON_CORE, MEASURE, name, warm_up_ms, measure_ms);
}

export async function cold(name: SubjectName, processes: number): Promise<Measured[]> {
  const all: Measured[] = [];
  for (let i = 0; i < processes; i++) all.push(await run<Measured>([], MEASURE, name, 0, 1));
  return all;
}

export const leaf = (rounds: number): Promise<LeafMeasured> => run<LeafMeasured>(ON_CORE, LEAF, rounds);

async function run<T>(prefix: readonly string[], script: string, ...given: readonly (string | number)[]): Promise<T> {
  const [command = '', ...args] = [...prefix, process.execPath, script, ...given.map(String)];
  const { stdout } = await promisify(execFile)(command, args, { cwd: ROOT });
  return JSON.parse(stdout) as T;
}
