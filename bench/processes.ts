// The processes of a run: started, asked over Node's own channel, ended by their ids; and what Linux counts of them.
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { sleep } from './wire.ts';

export const ROOT: string = fileURLToPath(new URL('..', import.meta.url));
const STOP_MS = 2_000;
const CALL_MS = 240_000;
const children = new Set<ChildProcess>();

export interface StartOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** By default this repository. */
  readonly cwd?: string;
  /** Functions of its own, for `calls`. */
  readonly channel?: boolean;
}

/** Starts a program with as many open files as it may have; its error output is a pipe. */
export function start(command: readonly string[], { env = {}, cwd = ROOT, channel = false }: StartOptions = {}) {
  // `exec` keeps the id, so that it is the program's own.
  const child = spawn('/bin/sh', ['-c', 'ulimit -n "$(ulimit -Hn)"; exec "$@"', 'sh', ...command], {
    cwd,
    env: { ...process.env, ...env },
    stdio: channel ? ['ignore', 'ignore', 'inherit', 'ipc'] : ['ignore', 'ignore', 'pipe'],
  });
  children.add(child);
  child.once('exit', () => children.delete(child));
  child.once('error', () => children.delete(child));
  return child;
}

const ended = (child: ChildProcess): boolean => child.exitCode !== null || child.signalCode !== null;

/** Asks a process to end, and makes it. */
export async function stop(child: ChildProcess): Promise<void> {
  if (ended(child) || child.pid === undefined) return;
  child.kill('SIGTERM');
  for (const end = performance.now() + STOP_MS; !ended(child) && performance.now() < end; ) await sleep(20);
  if (!ended(child)) child.kill('SIGKILL');
}
export const stopAll = async (): Promise<void> => void (await Promise.all([...children].map(stop)));
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL');
});

export const runToEnd = (command: readonly string[], timeout: number): Promise<{ stdout: string }> =>
  promisify(execFile)(command[0] ?? '', command.slice(1), { cwd: ROOT, timeout, maxBuffer: 1 << 24 });

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as { port: number };
      server.close(() => resolve(port));
    });
  });
}

// biome-ignore lint/suspicious/noExplicitAny: any function may be called
type Functions = Record<string, (...args: any[]) => unknown>;
export type Remote<T> = {
  [K in keyof T]: T[K] extends (...args: infer A) => infer R ? (...args: A) => Promise<Awaited<R>> : never;
};

/** In the child: answers one call after the other, and ends with its parent. */
export function serve(functions: Functions): void {
  process.on('disconnect', () => process.exit(0));
  process.on('message', async ({ name, args }: { name: string; args: unknown[] }) => {
    try {
      process.send?.({ value: await functions[name]?.(...args) });
    } catch (error) {
      process.send?.({ error: (error as Error).stack });
    }
  });
}

/** In the parent: the functions of a child, to be called one after the other. A call fails when the child ends, or is silent for long. */
export function calls<T>(child: ChildProcess): Remote<T> {
  const call = async (name: string, args: readonly unknown[]) => {
    child.send({ name, args });
    const over = new AbortController();
    const signal = AbortSignal.any([over.signal, AbortSignal.timeout(CALL_MS)]);
    const ended = once(child, 'exit', { signal }).then(() => [{ error: `the process of ${name} ended` }]);
    ended.catch(() => {});
    try {
      const [reply] = await Promise.race([once(child, 'message', { signal }), ended]);
      if (reply.error !== undefined) throw new Error(reply.error);
      return reply.value;
    } finally {
      over.abort();
    }
  };
  return new Proxy({} as Remote<T>, {
    get: (_, name) =>
      typeof name === 'string' && name !== 'then' ? (...args: unknown[]) => call(name, args) : undefined,
  });
}

/** CPU of all threads of these processes so far, in microseconds; nothing of a thread that ended. */
export function cpu_us(pids: readonly number[]): number {
  let total_ns = 0;
  for (const pid of pids)
    for (const task of orNone(() => readdirSync(`/proc/${pid}/task`)))
      total_ns += Number(
        orNone(() => readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'latin1').split(' '))[0] ?? 0,
      );
  return total_ns / 1e3;
}

/** CPU that the whole machine has used so far, in steps of 10 ms. */
export function machine_us(): number {
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0] = (
    readFileSync('/proc/stat', 'latin1').split('\n', 1)[0] ?? ''
  )
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return (user + nice + system + irq + softirq) * 1e4;
}

/** Proportional memory (PSS) of these processes: a page that several share counts once. */
export function memory_bytes(pids: readonly number[]): number {
  let kib = 0;
  for (const pid of pids)
    kib += Number(/^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'latin1'))?.[1] ?? Number.NaN);
  return kib * 1024;
}

/** A process and its descendants; nothing of null. */
export function tree(child: ChildProcess | null): number[] {
  const found = child?.pid === undefined ? [] : [child.pid];
  const parents = new Map<number, number>();
  for (const name of readdirSync('/proc').filter((one) => /^\d+$/.test(one))) {
    // A program's name stands in parentheses and may hold anything: the fields begin after the last one.
    const stat = orNone(() => [readFileSync(`/proc/${name}/stat`, 'latin1')])[0] ?? '';
    parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]));
  }
  for (const pid of found) for (const [one, parent] of parents) if (parent === pid) found.push(one);
  return found;
}

/** A process may end between two looks at it. */
function orNone(read: () => string[]): string[] {
  try {
    return read();
  } catch {
    return [];
  }
}
