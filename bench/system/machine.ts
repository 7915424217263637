// The machine that a result belongs to. Figures of two machines are not comparable; ratios within one run are.
import { readFileSync } from 'node:fs';
import { availableParallelism, cpus, loadavg, release, totalmem } from 'node:os';

export interface Machine {
  readonly date: string;
  readonly cores: number;
  readonly cpu: string;
  readonly memory_gib: number;
  readonly kernel: string;
  readonly node: string;
  /** Load average of the last minute, before the run. */
  readonly load: number;
}

export function describeMachine(): Machine {
  return {
    date: new Date().toISOString().replace(/\.\d+Z$/, 'Z'),
    cores: availableParallelism(),
    cpu: cpuModel(),
    memory_gib: Math.round(totalmem() / 2 ** 30),
    kernel: release(),
    node: process.version,
    load: loadavg()[0] ?? Number.NaN,
  };
}

export function machineLine(m: Machine): string {
  return `${m.date} · ${m.cores} cores of ${m.cpu} · ${m.memory_gib} GiB · Linux ${m.kernel} · Node ${m.node} · load before the run ${m.load.toFixed(2)}`;
}

function cpuModel(): string {
  const named = cpus()[0]?.model.trim();
  if (named !== undefined && named !== '' && named !== 'unknown') return named;
  return /^model name\s*:\s*(.+)$/m.exec(readFileSync('/proc/cpuinfo', 'utf8'))?.[1] ?? 'unknown CPU';
}
