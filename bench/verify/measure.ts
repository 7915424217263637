// One process: the first verification it ever makes, then as many as it can, one at a time. Prints JSON.
import { percentile } from '../report/stats.ts';
import { SUBJECTS, type SubjectName, subject } from './subject.ts';

export interface Measured {
  /** The first in this process: nothing cached, nothing compiled. */
  readonly cold_ms: number;
  /** Processor time of it, all threads: what a busy machine does not change much. */
  readonly cold_cpu_ms: number;
  readonly per_second: number;
  readonly p50_ms: number;
  readonly p99_ms: number;
  /** Processor time of one, all threads. */
  readonly cpu_ms: number;
  readonly passed: number;
}

const name = process.argv[2] as SubjectName;
const [warm_up_ms, measure_ms] = [Number(process.argv[3]), Number(process.argv[4])];
if (!SUBJECTS.includes(name)) throw new TypeError(`no such subject: ${name}`);
const verify = subject(name);

async function once(): Promise<number> {
  const start = performance.now();
  const { valid, checks } = await verify();
  const took_ms = performance.now() - start;
  const failed = checks.find(({ status }) => status === 'fail');
  if (!valid) throw new Error(`not valid: ${failed?.name}: ${failed?.detail}`);
  passed = checks.filter(({ status }) => status === 'pass').length;
  return took_ms;
}

async function forAWhile(ms: number): Promise<number[]> {
  const took_ms: number[] = [];
  for (const end = performance.now() + ms; performance.now() < end; ) took_ms.push(await once());
  return took_ms;
}

function cpuSince(before: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

let passed = 0;
const started = process.cpuUsage();
const cold_ms = await once();
const cold_cpu_ms = cpuSince(started);
await forAWhile(warm_up_ms);
const warmed = process.cpuUsage();
const took_ms = await forAWhile(measure_ms);
const cpu_ms = cpuSince(warmed) / took_ms.length;
const total_ms = took_ms.reduce((sum, one) => sum + one, 0);
const measured: Measured = {
  cold_ms,
  cold_cpu_ms,
  per_second: (took_ms.length / total_ms) * 1000,
  p50_ms: percentile(took_ms, 0.5),
  p99_ms: percentile(took_ms, 0.99),
  cpu_ms,
  passed,
};
console.log(JSON.stringify(measured));
