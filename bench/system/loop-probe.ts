// Loaded into a process with --import: notes the longest turn of its event loop, and writes it down when told by SIGUSR2.
import { writeFileSync } from 'node:fs';

/** Between two turns of the loop. */
export interface Longest {
  /** By the clock: what others on the machine take is in it. */
  readonly wall_ms: number;
  /** CPU of the main thread: what nobody else could have caused. */
  readonly cpu_ms: number;
}

const EVERY_MS = 1;
const file = process.env.BENCH_LOOP_FILE;

const threadCpu_ms = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1e3;
};

if (file !== undefined) {
  let last = { wall_ms: performance.now(), cpu_ms: threadCpu_ms() };
  let longest: Longest = { wall_ms: 0, cpu_ms: 0 };
  setInterval(() => {
    const now = { wall_ms: performance.now(), cpu_ms: threadCpu_ms() };
    longest = {
      wall_ms: Math.max(longest.wall_ms, now.wall_ms - last.wall_ms - EVERY_MS),
      cpu_ms: Math.max(longest.cpu_ms, now.cpu_ms - last.cpu_ms),
    };
    last = now;
  }, EVERY_MS).unref();
  process.on('SIGUSR2', () => {
    writeFileSync(file, JSON.stringify(longest));
    longest = { wall_ms: 0, cpu_ms: 0 };
  });
}
