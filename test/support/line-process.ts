// A program that is asked in lines of JSON: one line of its standard input is a question, one line of its standard output the answer.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll } from 'vitest';

/** Importing what it needs takes a Python program on a busy machine a while. */
const START_TIMEOUT_MS = 120_000;

type Env = Readonly<Record<string, string | undefined>>;

export class LineProcess {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #lines: AsyncIterator<string>;
  #errors = '';

  constructor(command: string, args: readonly string[], env: Env = {}) {
    this.#child = spawn(command, args, { env: { PATH: process.env.PATH, PYTHONDONTWRITEBYTECODE: '1', ...env } });
    this.#child.stderr.on('data', (data) => {
      this.#errors += data;
    });
    this.#child.stdin.on('error', () => {}); // It ended: `ask` says so.
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  /** Its first line, of a program that says so. @throws {Error} where it has ended, or says something else. */
  async ready(): Promise<void> {
    const line = await this.#hear();
    if (line !== 'ready') throw new Error(`the program began with ${line}`);
  }

  /** Questions are answered in their order. @throws {Error} where the program has ended. */
  ask<T>(question: unknown): Promise<T> {
    this.#child.stdin.write(`${JSON.stringify(question)}\n`);
    return this.#hear() as Promise<T>;
  }

  async #hear(): Promise<unknown> {
    const line = await this.#lines.next();
    if (line.done === true) throw new Error(`the program ended:\n${this.#errors}`);
    return JSON.parse(line.value);
  }

  end(): void {
    this.#child.kill();
  }
}

/** Runs a Python program, which says "ready" first, while the tests of a file, or of a `describe`, run. */
export function usePython(python: string | null, args: readonly string[], env: Env = {}): Pick<LineProcess, 'ask'> {
  let program: LineProcess;
  beforeAll(async () => {
    program = new LineProcess(python ?? '', args, env);
    await program.ready();
  }, START_TIMEOUT_MS);
  afterAll(() => program?.end());
  return { ask: (question) => program.ask(question) };
}
