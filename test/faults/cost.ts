// What a process costs, as Linux counts it.
import { readdirSync, readFileSync } from 'node:fs';

export interface Cost {
  /** Resident memory. */
  readonly rss_mib: number;
  readonly descriptors: number;
}

export const NO_COST: Cost = { rss_mib: 0, descriptors: 0 };

/** Of a process and of all that it started. @throws when it has ended. */
export function costOf(pid: number): Cost {
  const rss_kib = Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0);
  const own = { rss_mib: rss_kib / 1024, descriptors: readdirSync(`/proc/${pid}/fd`).length };
  return childrenOf(pid).reduce((sum, child) => added(sum, costOf(child)), own);
}

/** The processes that a process started. */
function childrenOf(pid: number): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
  return text === '' ? [] : text.split(' ').map(Number);
}

function added(a: Cost, b: Cost): Cost {
  return { rss_mib: a.rss_mib + b.rss_mib, descriptors: a.descriptors + b.descriptors };
}
