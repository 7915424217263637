// One worker process: started, waited for, asked once, ended. It owns a process group and a folder, and leaves neither behind.
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import type { ZodType } from 'zod';
import type { Nonce } from '../../proto/raw.ts';
import type { Device } from '../attester.ts';
import { killGroup, tailOf, unreffed } from '../child.ts';
import { bounded } from './deadline.ts';
import type { WorkerEnvironment } from './environment.ts';
import { failure, isReason } from './failure.ts';
import { type Answer, answerLine, MAX_LINE_BYTES, readyLine } from './frames.ts';
import { readLines } from './lines.ts';

export interface WorkerOptions {
  /** The program and its arguments. */
  readonly command: readonly [string, ...string[]];
  readonly environment: WorkerEnvironment;
  /** Each worker gets a folder of its own in it as working directory, removed when the worker has ended. */
  readonly folder: string;
  /** From the start of the process to its first line. */
  readonly start_deadline_ms: number;
  /** From the nonce to the end of the answer. */
  readonly answer_deadline_ms: number;
}

export interface Worker {
  /** Settles when the worker has loaded the SDK and NVML, or failed to. @throws {AttesterError} */
  readonly ready: Promise<readonly Device[]>;
  /** Settles when the process has ended and its folder is gone. */
  readonly gone: Promise<void>;
  /** To be called once. What is returned came from a process that has said nothing else. @throws {AttesterError} */
  attest(nonce: Nonce, signal: AbortSignal): Promise<Answer>;
  kill(): void;
}

const STDERR_CHARACTERS = 4096;

export function startWorker(options: WorkerOptions): Worker {
  const cwd = mkdtempSync(join(options.folder, 'worker-'));
  const [program, ...args] = options.command;
  const child = spawn(program, args, {
    cwd,
    env: { ...options.environment, HOME: cwd, TMPDIR: cwd },
    stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'],
    detached: true, // a process group of its own, so that it can be killed whole
  });
  const requests = child.stdio[3] as Writable;
  const lines_from = child.stdio[4] as Readable;
  const lines = readLines(lines_from, MAX_LINE_BYTES);
  const stderr = tailOf(child.stderr, STDERR_CHARACTERS);
  requests.on('error', () => {}); // a worker that is gone shows at the other end
  let not_started: Error | null = null;

  const gone = new Promise<void>((resolve) => {
    child.once('error', (error) => {
      not_started = error;
      if (child.pid === undefined) resolve();
    });
    child.once('exit', () => {
      killGroup(child); // whatever it started itself
      resolve();
    });
  }).then(async () => {
    await Promise.race([closed(lines_from), unreffed(DRAIN_MS)]); // its last words may still be on their way
    for (const stream of child.stdio) stream?.destroy();
    await rm(cwd, { recursive: true, force: true });
  });

  function kill(): void {
    if (child.exitCode === null && child.signalCode === null) killGroup(child);
  }

  async function read<T>(schema: ZodType<T>): Promise<T> {
    const line = await lines.next().catch((cause: unknown) => {
      throw failure('worker_garbage', cause instanceof Error ? cause.message : 'its channel broke', { cause });
    });
    if (line === null) {
      await Promise.race([gone, unreffed(EXIT_GRACE_MS)]);
      if (not_started !== null) throw failure('worker_not_started', not_started.message, { cause: not_started });
      throw failure('worker_died', `the worker ended ${how(child)} without an answer${lastLine(stderr())}`);
    }
    return parse(line, schema);
  }

  return {
    gone,
    kill,
    ready: bounded(options.start_deadline_ms, 'worker_start_timeout', kill, async () => {
      const line = await read(readyLine);
      if (line.type === 'failed') throw failed(line.reason, line.message);
      return line.devices;
    }),
    attest: (nonce, signal) =>
      bounded(
        options.answer_deadline_ms,
        'worker_timeout',
        kill,
        async () => {
          requests.write(`${JSON.stringify({ type: 'attest', nonce })}\n`);
          const line = await read(answerLine);
          if ((await lines.next().catch(() => '')) !== null)
            throw failure('worker_second_answer', 'the worker said more than its one answer');
          if (line.type === 'failed') throw failed(line.reason, line.message);
          return line;
        },
        signal,
      ).finally(() => {
        kill();
        // The GPU is one device: the next collection begins when this process is no more.
        return Promise.race([gone, unreffed(EXIT_GRACE_MS)]);
      }),
  };
}

/** How long a killed process may take to go, before nobody waits for it any more: in the driver no signal reaches it. */
export const EXIT_GRACE_MS = 2_000;
const DRAIN_MS = 500;

const closed = (stream: Readable) =>
  stream.closed || stream.destroyed
    ? Promise.resolve()
    : new Promise<void>((resolve) => {
        stream.once('close', () => resolve());
      });

function parse<T>(line: string, schema: ZodType<T>): T {
  try {
    return schema.parse(JSON.parse(line));
  } catch (cause) {
    throw failure('worker_garbage', 'the worker wrote a line that is not its protocol', { cause });
  }
}

const failed = (reason: string, message: string) =>
  isReason(reason) ? failure(reason, message) : failure('worker_garbage', 'the worker gave a reason that is not known');

function how(child: ChildProcess): string {
  if (child.signalCode !== null) return `by ${child.signalCode}`;
  return child.exitCode === null ? 'its channel' : `with exit code ${child.exitCode}`;
}

/** The last line of what it wrote on stderr: NVIDIA's SDK and Python name their trouble on it. */
function lastLine(stderr: string): string {
  const last = stderr.trimEnd().split('\n').at(-1) ?? '';
  return last === '' ? '' : `: ${last.replace(/[^\x20-\x7e]+/g, ' ').slice(0, 300)}`;
}
