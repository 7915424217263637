// Somebody's verifier as a program: run on one case within a time and a number of bytes, and its answer read as vectors/README.md has it.
import { spawn } from 'node:child_process';

export type Answer =
  | { readonly verdict: 'valid' | 'invalid' | 'incomplete'; readonly word: string }
  | { readonly verdict: 'unsupported' }
  /** It broke the contract: `reason` says how. */
  | { readonly verdict: 'none'; readonly reason: string; readonly timedOut?: true };

export interface Limits {
  readonly timeout_ms: number;
  readonly max_output_bytes: number;
}

/** The program cannot be started at all: nothing to compare. */
export class NoProgram extends Error {
  override readonly name = 'NoProgram';
}

const VERDICTS = { 0: 'valid', 1: 'invalid', 3: 'incomplete' } as const;
const USAGE = 2;
const UNSUPPORTED = 4;
const LINE = /^(?<verdict>valid|invalid|incomplete) (?<word>[a-z][a-z0-9_+]{0,63})$/;
const SHOWN_CHARACTERS = 80;
/** How long its pipes may stay open once it has ended: a program that it left behind may hold them. */
const LEFT_OPEN_MS = 1000;

/** @throws {NoProgram} */
export async function ask(
  program: readonly string[],
  file: string,
  { timeout_ms, max_output_bytes }: Limits,
  stopped?: AbortSignal,
): Promise<Answer> {
  const [command = '', ...args] = program;
  // A group of its own, so that whatever it started ends with it.
  const child = spawn(command, [...args, file], { stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  const pid = await new Promise<number>((resolve, reject) => {
    child.once('spawn', () => resolve(child.pid as number));
    child.once('error', (cause) => reject(new NoProgram(`${command} cannot be run: ${cause.message}`, { cause })));
  });
  const ended = new Promise<{ code: number | null; signal: string | null }>((resolve) =>
    child.once('exit', (code, signal) => resolve({ code, signal })),
  );
  const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
  let broken: Extract<Answer, { verdict: 'none' }> | null = null;
  const end = (answer: typeof broken) => {
    broken ??= answer;
    killGroup(pid);
  };
  const tooLong = { verdict: 'none', reason: `not done within ${timeout_ms / 1000} s`, timedOut: true } as const;
  const timer = setTimeout(() => end(tooLong), timeout_ms);
  const onStop = () => end({ verdict: 'none', reason: 'stopped' });
  if (stopped?.aborted) onStop();
  stopped?.addEventListener('abort', onStop);
  const chunks: Buffer[] = [];
  let bytes = 0;
  const count = (chunk: Buffer): boolean => {
    bytes += chunk.length;
    if (bytes > max_output_bytes) end({ verdict: 'none', reason: `more than ${max_output_bytes} bytes of output` });
    return bytes <= max_output_bytes;
  };
  child.stdout.on('data', (chunk: Buffer) => count(chunk) && chunks.push(chunk));
  child.stderr.on('data', count);
  const { code, signal } = await ended;
  clearTimeout(timer);
  stopped?.removeEventListener('abort', onStop);
  killGroup(pid);
  const waiting = setTimeout(() => {
    child.stdout.destroy();
    child.stderr.destroy();
  }, LEFT_OPEN_MS);
  await closed;
  clearTimeout(waiting);
  return broken ?? answerOf(code, signal, Buffer.concat(chunks).toString());
}

function answerOf(code: number | null, signal: string | null, output: string): Answer {
  if (code === null) return { verdict: 'none', reason: `ended by ${signal}` };
  if (code === UNSUPPORTED) return { verdict: 'unsupported' };
  if (code === USAGE) return { verdict: 'none', reason: 'exit code 2: it says that it was called wrongly' };
  const last = output.trimEnd().split(/\r?\n/).at(-1) ?? '';
  const { verdict, word } = LINE.exec(last)?.groups ?? {};
  const stated = VERDICTS[code as keyof typeof VERDICTS];
  if (stated !== undefined && stated === verdict && word !== undefined) return { verdict: stated, word };
  const shown = JSON.stringify(last.slice(0, SHOWN_CHARACTERS));
  return { verdict: 'none', reason: `exit code ${code} with the last line ${shown}` };
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {
    // Nothing of it is left.
  }
}
