// Starts a process of ours as an operator would, and ends it as an operator, or a fault, would.
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** Of a process that goes on for hours only the latest lines are kept. */
const MAX_OUTPUT = 16 * 1024 * 1024;

export interface RunningProcess {
  readonly child: ChildProcess;
  /** What it has printed so far, both streams. */
  output(): string;
  /** Sends the signal and waits for the end. */
  kill(signal: NodeJS.Signals): Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  readonly exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
}

/** `log`: a file for its stdout. */
export function startProcess(
  script: string,
  args: readonly string[] = [],
  env: Record<string, string> = {},
  cwd = ROOT,
  log: string | null = null,
): RunningProcess {
  return startCommand(
    process.execPath,
    [fileURLToPath(new URL(`../../${script}`, import.meta.url)), ...args],
    env,
    cwd,
    log,
  );
}

/** Any program, as `startProcess` starts ours. */
export function startCommand(
  program: string,
  args: readonly string[],
  env: Record<string, string> = {},
  cwd = ROOT,
  log: string | null = null,
): RunningProcess {
  const out = log === null ? 'pipe' : openSync(log, 'w');
  const child = spawn(program, args, {
    cwd,
    // The canary's questions would be among those that a test counts.
    env: { CANARY_INTERVAL_MS: '0', ...process.env, ...env },
    stdio: ['ignore', out, 'pipe'],
  });
  if (typeof out === 'number') closeSync(out);
  let output = '';
  const keep = (data: Buffer) => {
    output += data;
    if (output.length > MAX_OUTPUT) output = output.slice(-MAX_OUTPUT / 2);
  };
  child.stdout?.on('data', keep);
  child.stderr?.on('data', keep);
  const exited = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) =>
    child.once('exit', (code, signal) => resolve({ code, signal })),
  );
  return {
    child,
    exited,
    output: () => (log === null ? output : readFileSync(log, 'utf8') + output),
    kill(signal) {
      child.kill(signal);
      return exited;
    },
  };
}
