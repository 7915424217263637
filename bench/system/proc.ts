// What Linux knows of a process: CPU it has used, in nanosecond steps, and the memory that is its own.
import { readdirSync, readFileSync } from 'node:fs';

/** CPU of all threads of these processes so far, in microseconds: sum_exec_runtime of each task. */
export function cpu_us(pids: readonly number[]): number {
  let total_ns = 0;
  for (const pid of pids) for (const task of tasksOf(pid)) total_ns += taskRuntime_ns(pid, task);
  return total_ns / 1e3;
}

/** None of a process that ended: who asks it gets no answers either, and its row does not count. */
function tasksOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/task`);
  } catch {
    return [];
  }
}

function taskRuntime_ns(pid: number, task: string): number {
  try {
    return Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'latin1').split(' ', 1)[0]);
  } catch {
    return 0; // the thread ended between the two reads
  }
}

/** CPU that the whole machine has used so far, in microseconds, in steps of 10 ms. Time that a hypervisor took away is not in it. */
export function machine_us(): number {
  const [user, nice, system, , , irq, softirq] = (readFileSync('/proc/stat', 'latin1').split('\n', 1)[0] ?? '')
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return ((user ?? 0) + (nice ?? 0) + (system ?? 0) + (irq ?? 0) + (softirq ?? 0)) * 1e4;
}

/** Proportional memory of these processes, in bytes: a page that several share counts once. */
export function memory_bytes(pids: readonly number[]): number {
  let kib = 0;
  for (const pid of pids)
    kib += Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'latin1'))?.[1] ?? Number.NaN);
  return kib * 1024;
}

/** The process and every descendant of it. */
export function tree(root: number): number[] {
  const parents = new Map<number, number>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      // The name of a program stands in parentheses and may hold anything: the fields begin after the last one.
      const stat = readFileSync(`/proc/${name}/stat`, 'latin1');
      parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]));
    } catch {
      // It ended.
    }
  }
  const found = [root];
  for (const pid of found) for (const [child, parent] of parents) if (parent === pid) found.push(child);
  return found;
}
