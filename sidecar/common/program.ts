// Runs one program to its end: no shell, a process group of its own, limits on its output and its time, killed on abort.
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';

// Helpers for every child process: NVIDIA's programs, and the Python workers.

/** Kills a process and its descendants: it was spawned `detached`, so that it has a process group of its own. */
export function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // The group has no process left.
  }
}

/** Reads the stream to its end and keeps the last `max_characters` of it. */
export function tailOf(stream: Readable | null, max_characters: number): () => string {
  let text = '';
  stream?.setEncoding('utf8').on('data', (more: string) => {
    text = (text + more).slice(-max_characters);
  });
  return () => text;
}

/** The last line of a program's stderr, which usually is the error, without terminal colours; '' when there is none. */
export function lastLineOf(stderr: string): string {
  const lines = stderr
    // biome-ignore lint/suspicious/noControlCharactersInRegex: terminal colours begin with one
    .replace(/\x1b\[[0-9;]*m/g, '')
    .split('\n')
    .map((line) => line.replace(/[^\x20-\x7e]+/g, ' ').trim())
    .filter((line) => line !== '');
  return (lines.at(-1) ?? '').slice(0, 300);
}

/** A delay that does not keep this process alive. */
export function unreffed(ms: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, ms).unref();
  });
}

/** Runs `work` in a temporary folder of mode 0700 (mkdtemp's), which is removed with all that a program left there. */
export async function withTemporaryFolder<T>(prefix: string, work: (folder: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), prefix));
  try {
    return await work(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The whole environment of a child process. */
export type ProgramEnvironment = Readonly<Record<string, string>>;

interface RunOptions {
  readonly cwd: string;
  readonly env: ProgramEnvironment;
  readonly deadline_ms: number;
  readonly max_output_bytes: number;
  readonly signal?: AbortSignal;
}

export interface Finished {
  /** null: ended by a signal. */
  readonly exit_code: number | null;
  readonly exit_signal: NodeJS.Signals | null;
  readonly stdout: string;
  /** Only its end. */
  readonly stderr: string;
}

/** The program could not be run to its end. An abort is thrown as the signal's own reason instead. */
export class RunError extends Error {
  override readonly name = 'RunError';

  readonly reason: 'not_found' | 'not_executable' | 'not_started' | 'too_slow' | 'too_much';
  constructor(reason: RunError['reason'], message: string, options?: ErrorOptions) {
    super(message, options);
    this.reason = reason;
  }
}

const STDERR_CHARACTERS = 8192;
/** How long to read the pipes of a program that has ended. */
const DRAIN_MS = 500;

/** Settles when the process is gone. @throws {RunError} @throws what `signal` was aborted with. */
export async function runProgram(program: string, args: readonly string[], options: RunOptions): Promise<Finished> {
  options.signal?.throwIfAborted();
  const child = spawn(program, args, {
    cwd: options.cwd,
    env: { ...options.env },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true, // a process group of its own, so that it can be killed whole
  });
  let failure: unknown = null;
  const stop = (error: unknown) => {
    failure ??= error;
    killGroup(child);
  };
  const onAbort = () => stop(options.signal?.reason);
  options.signal?.addEventListener('abort', onAbort);
  const onDeadline = () => stop(new RunError('too_slow', `no end within ${options.deadline_ms} ms`));
  const timer = setTimeout(onDeadline, options.deadline_ms);
  const stdout = collected(child.stdout, options.max_output_bytes, () =>
    stop(new RunError('too_much', `it printed more than ${options.max_output_bytes} bytes`)),
  );
  const stderr = tailOf(child.stderr, STDERR_CHARACTERS);
  const closed = new Promise<void>((resolve) => {
    child.once('close', () => resolve());
  });
  try {
    await ended(child);
    killGroup(child); // whatever it started itself
    await Promise.race([closed, unreffed(DRAIN_MS)]);
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener('abort', onAbort);
    child.stdout.destroy();
    child.stderr.destroy();
  }
  if (failure !== null) throw failure;
  return { exit_code: child.exitCode, exit_signal: child.signalCode, stdout: stdout(), stderr: stderr() };
}

const ended = (child: ChildProcess) =>
  new Promise<void>((resolve, reject) => {
    child.once('exit', () => resolve());
    child.once('error', (cause: NodeJS.ErrnoException) => {
      const reason = cause.code === 'ENOENT' ? 'not_found' : cause.code === 'EACCES' ? 'not_executable' : 'not_started';
      reject(new RunError(reason, cause.message, { cause }));
    });
  });

function collected(stream: Readable, max_bytes: number, tooMuch: () => void): () => string {
  const chunks: Buffer[] = [];
  let bytes = 0;
  stream.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > max_bytes) tooMuch();
    else chunks.push(chunk);
  });
  return () => Buffer.concat(chunks).toString('utf8');
}
