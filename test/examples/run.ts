// Runs a program of examples/ as a reader would: a command, an environment, and what it printed.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

export const ROOT: string = fileURLToPath(new URL('../..', import.meta.url));
const TIMEOUT_MS = 60_000;
const MAX_OUTPUT_BYTES = 4 * 1024 * 1024;

export interface Ran {
  readonly code: number | string | null;
  readonly output: string;
  readonly errors: string;
}

/** In the project's folder, unless `cwd` says another. Nothing of this process's environment but PATH and HOME reaches it. */
export function run(command: readonly string[], env: Record<string, string> = {}, cwd = ROOT): Promise<Ran> {
  const [file = '', ...args] = command;
  const { PATH = '', HOME = '' } = process.env;
  return new Promise((resolve) => {
    const options = {
      cwd,
      env: { PATH, HOME, PYTHONDONTWRITEBYTECODE: '1', LANGSMITH_TRACING: 'false', ...env },
      timeout: TIMEOUT_MS,
      maxBuffer: MAX_OUTPUT_BYTES,
    };
    execFile(file, args, options, (error, output, errors) =>
      resolve({ code: error === null ? 0 : (error.code ?? error.signal ?? null), output, errors }),
    );
  });
}

/** The nonces that it printed, each once. */
export function nonces(output: string): string[] {
  return [...new Set(output.match(/\b[0-9a-f]{64}\b/g) ?? [])];
}
