// Runs measure.ts in processes of its own: kept to one core for what is warm, free for the first verification of a process.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { which } from '../../test/debian.ts';
import type { Measured } from './measure.ts';
import type { SubjectName } from './subject.ts';

const MEASURE = fileURLToPath(new URL('measure.ts', import.meta.url));
const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const CORE = '0';

export const pinned: boolean = which('taskset') !== null;

export function warm(name: SubjectName, warm_up_ms: number, measure_ms: number): Promise<Measured> {
  return run(pinned ? ['taskset', '-c', CORE] : [], name, warm_up_ms, measure_ms);
}

export async function cold(name: SubjectName, processes: number): Promise<Measured[]> {
  const all: Measured[] = [];
  for (let i = 0; i < processes; i++) all.push(await run([], name, 0, 1));
  return all;
}

async function run(prefix: readonly string[], name: SubjectName, warm_up_ms: number, measure_ms: number) {
  const measured = [MEASURE, name, String(warm_up_ms), String(measure_ms)];
  const [command = '', ...args] = [...prefix, process.execPath, ...measured];
  const { stdout } = await promisify(execFile)(command, args, { cwd: ROOT });
  return JSON.parse(stdout) as Measured;
}
