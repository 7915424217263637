// Every process that the bench starts: started with the highest limit of open files, ended by its id, whatever happens.
import { type ChildProcess, spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { sleep } from './clock.ts';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

const STOP_MS = 2_000;
const children = new Set<ChildProcess>();

export interface StartOptions {
  readonly env?: Record<string, string>;
  /** By default this repository. */
  readonly cwd?: string;
  /** A channel for calls (`calls.ts`). */
  readonly channel?: boolean;
}

/** Starts a program; what it writes to its error output is kept for the message when it does not come up. */
export function start(command: readonly string[], options: StartOptions = {}): ChildProcess {
  // `exec` keeps the id, so that the id we know is the program's own.
  const child = spawn('/bin/sh', ['-c', 'ulimit -n "$(ulimit -Hn)"; exec "$@"', 'sh', ...command], {
    cwd: options.cwd ?? ROOT,
    env: { ...process.env, ...options.env },
    stdio: options.channel ? ['ignore', 'ignore', 'inherit', 'ipc'] : ['ignore', 'ignore', 'pipe'],
  });
  children.add(child);
  child.once('exit', () => children.delete(child));
  child.once('error', () => children.delete(child));
  return child;
}

/** A TypeScript file of this repository, or of `cwd`, in a Node of its own. */
export function startNode(
  script: string,
  options: StartOptions & { readonly flags?: readonly string[] } = {},
): ChildProcess {
  return start([process.execPath, ...(options.flags ?? []), script], options);
}

export function pidOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error('the process did not start');
  return child.pid;
}

const ended = (child: ChildProcess): boolean => child.exitCode !== null || child.signalCode !== null;

export async function stop(child: ChildProcess): Promise<void> {
  if (ended(child) || child.pid === undefined) return;
  child.kill('SIGTERM');
  for (const end = performance.now() + STOP_MS; !ended(child) && performance.now() < end; ) await sleep(20);
  if (!ended(child)) child.kill('SIGKILL');
}

export async function stopAll(): Promise<void> {
  await Promise.all([...children].map(stop));
}

/** The last word, when there is no time to wait. */
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL');
});

/** Runs a program to its end. @throws with what it said. */
export async function runToEnd(command: readonly string[], timeout_ms: number): Promise<void> {
  const child = start(command);
  let said = '';
  child.stderr?.on('data', (data) => {
    said = (said + data).slice(-2_000);
  });
  const timer = setTimeout(() => child.kill('SIGKILL'), timeout_ms);
  const code = await new Promise<number | null>((resolve) =>
    child.once('close', resolve).once('error', () => resolve(-1)),
  );
  clearTimeout(timer);
  if (code !== 0) throw new Error(`${command.join(' ')} ended with ${code}: ${said.trim()}`);
}

export function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() => resolve(typeof address === 'object' && address !== null ? address.port : 0));
    });
  });
}
