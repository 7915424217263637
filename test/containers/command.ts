// Runs a program to its end: what it printed, or an error that shows the end of it.
import { execFile } from 'node:child_process';

const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;

export interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CommandOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly timeout_ms?: number;
}

/** However it ended. @throws {Error} when it cannot be started, or not in time. */
export function attempt(program: string, args: readonly string[], options: CommandOptions = {}): Promise<Ended> {
  const { env = {}, cwd, timeout_ms = 120_000 } = options;
  return new Promise((resolve, reject) => {
    execFile(
      program,
      args,
      {
        env: { ...process.env, ...env },
        ...(cwd === undefined ? {} : { cwd }),
        timeout: timeout_ms,
        killSignal: 'SIGKILL',
        maxBuffer: MAX_OUTPUT_BYTES,
      },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : error.code;
        if (typeof code === 'number') resolve({ code, stdout, stderr });
        else reject(new Error(`${program} ${args.join(' ')}: ${error?.killed ? `not in ${timeout_ms} ms` : code}`));
      },
    );
  });
}

/** Its standard output. @throws {Error} unless it ended with 0. */
export async function run(program: string, args: readonly string[], options: CommandOptions = {}): Promise<string> {
  const { code, stdout, stderr } = await attempt(program, args, options);
  if (code === 0) return stdout;
  throw new Error(`${program} ${args.join(' ')} ended with ${code}:\n${`${stdout}\n${stderr}`.slice(-4000)}`);
}
