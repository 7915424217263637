// A program that is asked in lines of JSON: one line of its standard input is a question, one line of its standard output the answer.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

export class LineProcess {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #lines: AsyncIterator<string>;
  #errors = '';

  constructor(command: string, args: readonly string[], env: Readonly<Record<string, string | undefined>> = {}) {
    this.#child = spawn(command, args, { env: { PATH: process.env.PATH, ...env } });
    this.#child.stderr.on('data', (data) => {
      this.#errors += data;
    });
    this.#child.stdin.on('error', () => {}); // It ended: `ask` says so.
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  /** One question after the other. @throws {Error} where the program has ended. */
  async ask<T>(question: unknown): Promise<T> {
    this.#child.stdin.write(`${JSON.stringify(question)}\n`);
    const line = await this.#lines.next();
    if (line.done === true) throw new Error(`the program ended:\n${this.#errors}`);
    return JSON.parse(line.value) as T;
  }

  end(): void {
    this.#child.kill();
  }
}
