// `countersign verify DIR|FILE.jsonl`: many files or lines on many cores, a line for each, in their order, and a summary. What is kept at a
// time does not grow with their number.
import { createReadStream } from 'node:fs';
import { availableParallelism } from 'node:os';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { concat } from '../common/bytes.ts';
import type { Level, VerificationReport } from '../index.ts';
import type { Arguments } from './args.ts';
import { filesUnder } from './bundle-files.ts';
import { collateralFor } from './collateral-folder.ts';
import { isMany, MAX_INPUT_BYTES, UsageError, unusable } from './input.ts';
import { optionsOf, sessionOption } from './options.ts';
import { plain } from './report.ts';

/** What a worker is given: a file, or a line of one. */
export interface Job {
  readonly name: string;
  /** null: `name` is a file to be read. */
  readonly line: Uint8Array | null;
  /** The file ends without the end of this line. */
  readonly isCut?: boolean;
}

/** What a worker makes of it; null: it is a bundle. */
export type Line = {
  readonly name: string;
  readonly verdict: 'VALID' | 'INVALID' | 'INCOMPLETE';
  readonly level: Level;
  readonly code: string | null;
  /** Where the caller wants JSON. */
  readonly report: VerificationReport | null;
} | null;

const MAX_WORKERS = 16;
/** Jobs that are given to a worker before the first is done. */
export const AHEAD = 8;
const PROGRESS_MS = 200;
/** Options that are about one file. */
const OF_ONE = ['request', 'response', 'event', 'verbose'];

/** @returns the exit status. @throws {UsageError} */
export async function verifyFiles(args: Arguments): Promise<number> {
  const one = args.given.find((name) => OF_ONE.includes(name));
  if (one !== undefined) throw new UsageError(`--${one} is about one answer, and ${args.file} has several`);
  const isLines = args.file.endsWith('.jsonl');
  const given = { ...args, bundles: isLines ? args.bundles : [...args.bundles, args.file] };
  // Options that cannot be used are found before the first file.
  const options = { ...optionsOf(given), collateral: collateralFor(given) };
  await sessionOption(given, options);
  const summary = createSummary(args);
  const size = poolSize();
  const pool = createPool(size, given);
  const pending: Promise<Line>[] = [];
  try {
    for await (const job of jobsOf(args.file)) {
      const line = pool.check(job);
      line.catch(() => {});
      pending.push(line);
      if (pending.length >= size * AHEAD) summary.add(await (pending.shift() as Promise<Line>));
    }
    for (const line of pending) summary.add(await line);
  } finally {
    await pool.close();
    summary.clear();
  }
  return summary.end();
}

/** The answers that one operand names: a file, the files of a folder, or the lines of a .jsonl. @throws {UsageError} */
export async function* jobsOf(path: string): AsyncGenerator<Job, void, undefined> {
  if (!isMany(path)) yield { name: path, line: null };
  else yield* path.endsWith('.jsonl') ? linesOf(path) : filesOf(path);
}

async function* filesOf(folder: string): AsyncGenerator<Job, void, undefined> {
  try {
    for await (const name of filesUnder(folder)) yield { name, line: null };
  } catch (error) {
    throw unusable(folder, error);
  }
}

/** Lines that are not blank. @param file `-`: standard input. @throws {UsageError} where it cannot be read, or a line is too long for an answer */
export async function* linesOf(file: string): AsyncGenerator<Job, void, undefined> {
  let parts: Uint8Array[] = [];
  let length = 0;
  let number = 0;
  const take = (part: Uint8Array): Job => {
    const line = concat([...parts, part]);
    [parts, length] = [[], 0];
    return { name: `${file}:${++number}`, line };
  };
  const chunks = file === '-' ? process.stdin : createReadStream(file);
  chunks.on('error', () => {});
  try {
    for await (const chunk of chunks as AsyncIterable<Uint8Array>) {
      let from = 0;
      for (let to = chunk.indexOf(10); to >= 0; to = chunk.indexOf(10, from)) {
        const job = take(chunk.subarray(from, to));
        from = to + 1;
        if (!isBlank(job)) yield job;
      }
      const rest = chunk.subarray(from);
      length += rest.length;
      if (length > MAX_INPUT_BYTES) throw new UsageError(`${file}:${number + 1}: a line of more than 256 MiB`);
      parts.push(rest);
    }
  } catch (error) {
    throw error instanceof UsageError ? error : unusable(file, error);
  }
  const last = take(new Uint8Array());
  if (!isBlank(last)) yield { ...last, isCut: true };
}

const isBlank = ({ line }: Job): boolean => line?.every((byte) => byte <= 0x20) === true;

export interface Pool {
  /** Bundles are kept for the jobs that follow. Jobs are answered in any order. */
  check(job: Job): Promise<Line>;
  close(): Promise<void>;
}

/** By its beginning, as gateways write them. */
const looksLikeBundle = ({ line }: Job): boolean =>
  line !== null && /^\s*\{\s*"(token|evidence|cpu)"/.test(new TextDecoder().decode(line.subarray(0, 64)));

/** One for each core. */
export const poolSize = (): number => Math.min(MAX_WORKERS, availableParallelism());

/** Each worker is started with its first job, and answers its jobs in their order. @param args without what cannot be handed to a thread */
export function createPool(size: number, args: Arguments): Pool {
  const workers: { worker: Worker; waiting: { resolve(line: Line): void; reject(error: unknown): void }[] }[] = [];
  let next = 0;

  function start() {
    const url = new URL(`./many-worker${extname(new URL(import.meta.url).pathname)}`, import.meta.url);
    const worker = new Worker(url, { workerData: args, execArgv: ['--disable-warning=ExperimentalWarning'] });
    const made: (typeof workers)[number] = { worker, waiting: [] };
    worker.on('message', (line: Line) => made.waiting.shift()?.resolve(line));
    worker.on('error', (error) => {
      for (const { reject } of made.waiting.splice(0)) reject(error);
    });
    workers.push(made);
    return made;
  }

  function give({ worker, waiting }: (typeof workers)[number], job: Job): Promise<Line> {
    return new Promise((resolve, reject) => {
      waiting.push({ resolve, reject });
      worker.postMessage(job);
    });
  }

  return {
    async check(job) {
      // Any worker may need it for a line that follows.
      if (looksLikeBundle(job)) {
        const lines = Array.from({ length: size }, (_, i) => give(workers[i] ?? start(), job));
        return (await Promise.all(lines))[0] ?? null;
      }
      return give(workers[next++ % size] ?? start(), job);
    },
    async close() {
      await Promise.all(workers.map(({ worker }) => worker.terminate()));
    },
  };
}

interface Summary {
  add(line: Line): void;
  /** Ends the line of the progress. */
  clear(): void;
  /** Prints the counts. @returns the exit status. @throws {UsageError} where there was no answer */
  end(): number;
}

function createSummary({ file, json, quiet }: Arguments): Summary {
  const counts = { VALID: 0, INVALID: 0, INCOMPLETE: 0 };
  const levels = new Map<Level, number>();
  const { stderr } = process;
  const begin_ms = Date.now();
  let shown_ms = begin_ms;
  let bundles = 0;
  const done = () => counts.VALID + counts.INVALID + counts.INCOMPLETE;
  const isShown = stderr.isTTY === true && !quiet;
  const clear = () => void (isShown && stderr.write('\r\u001b[K'));

  function print({ name, verdict, level, code, report }: NonNullable<Line>): void {
    if (quiet) return;
    clear();
    if (json) console.log(JSON.stringify({ file: name, ...report }));
    else console.log(plain(`${verdict.padEnd(10)}  ${level.padEnd(8)}  ${code ?? '-'}  ${name}`));
  }

  function progress(): void {
    const now_ms = Date.now();
    if (!isShown || now_ms - shown_ms < PROGRESS_MS) return;
    shown_ms = now_ms;
    const rate = Math.round((done() * 1000) / (now_ms - begin_ms));
    stderr.write(`\r\u001b[K${done()} verified, ${counts.INVALID} invalid, ${rate}/s …`);
  }

  return {
    add(line) {
      if (line === null) bundles++;
      else {
        counts[line.verdict]++;
        if (line.verdict === 'VALID') levels.set(line.level, (levels.get(line.level) ?? 0) + 1);
        print(line);
      }
      progress();
    },
    clear,
    end() {
      if (done() === 0) throw new UsageError(`${file}: no answer is in it`);
      const each = [...levels].map(([level, count]) => `${count} ${level}`).join(', ');
      const valid = `${counts.VALID} valid${each === '' ? '' : ` (level: ${each})`}`;
      const more = bundles === 0 ? '' : `; ${bundles} bundles beside them`;
      const words = `${done()} answers: ${valid}, ${counts.INVALID} invalid, ${counts.INCOMPLETE} incomplete${more}`;
      if (!quiet && !json) console.log(`\n${words}`);
      return counts.INVALID > 0 ? 1 : counts.INCOMPLETE > 0 ? 3 : 0;
    },
  };
}
