// One worker process: started, awaited, given one request, ended. It has a process group and a folder of its own and leaves neither behind.
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import type { ZodType } from 'zod';
import * as z from 'zod';
import { MAX_DEVICES } from '../../../proto/attestation/attestation.ts';
import { digestSchema, evidenceSchema } from '../../../proto/attestation/attestation-schema.ts';
import type { Nonce } from '../../../proto/attestation/raw.ts';
import type { Device } from '../../common/attester.ts';
import { withDeadline } from '../../common/lock.ts';
import { killGroup, lastLineOf, type ProgramEnvironment, tailOf, unreffed } from '../../common/program.ts';
import { failure, isWorkerReason, type WorkerReason } from './failures.ts';

// The lines that a worker writes: one when it is ready, and one result. They are read strictly, because they come from NVIDIA's code.

/** The longest line: room for 64 GPUs' evidence. */
const MAX_LINE_BYTES = 8 * 1024 * 1024;

const device = z.strictObject({ arch: z.string().min(1).max(32), model: z.string().min(1).max(128) });

const failedLine = z.strictObject({
  type: z.literal('failed'),
  reason: z.string().min(1).max(64),
  message: z.string().max(1024),
});
const readyLine = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('ready'), devices: z.array(device).min(1).max(MAX_DEVICES) }),
  failedLine,
]);
const resultLine = z.discriminatedUnion('type', [
  z.strictObject({
    type: z.literal('attested'),
    nonce: digestSchema,
    token: z.string().min(2).max(MAX_LINE_BYTES),
    evidence: z.array(evidenceSchema).min(1).max(MAX_DEVICES),
  }),
  failedLine,
]);
export type WorkerResult = Extract<z.infer<typeof resultLine>, { type: 'attested' }>;

// Reads lines from a stream, one at a time, none longer than allowed.

interface Lines {
  /** The next line without its end; null when the stream has ended. @throws {LineTooLong} */
  next(): Promise<string | null>;
}

/** More than `max_line_bytes` came without a line break. */
class LineTooLong extends Error {
  override readonly name = 'LineTooLong';
}

/** The rest after the last line break is a line too: the parser refuses an incomplete one. */
function readLines(stream: Readable, max_line_bytes: number): Lines {
  const lines = split(stream, max_line_bytes);
  return {
    async next() {
      const { value, done } = await lines.next().catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ERR_STREAM_PREMATURE_CLOSE') return { value: undefined, done: true as const };
        throw error; // too long, or the stream broke
      });
      return done ? null : value;
    },
  };
}

async function* split(stream: Readable, max_line_bytes: number): AsyncGenerator<string, undefined> {
  let held: Buffer[] = [];
  let held_bytes = 0;
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      yield Buffer.concat([...held, chunk.subarray(start, end)]).toString('utf8');
      held = [];
      held_bytes = 0;
      start = end + 1;
    }
    held.push(chunk.subarray(start));
    held_bytes += chunk.length - start;
    if (held_bytes > max_line_bytes) throw new LineTooLong(`a line is longer than ${max_line_bytes} bytes`);
  }
  if (held_bytes > 0) yield Buffer.concat(held).toString('utf8');
}

// A time limit for a worker's actions.

/** Runs `work`; past the deadline, on abort or on any error the process is killed. */
async function bounded<T>(
  deadline_ms: number,
  reason: WorkerReason,
  kill: () => void,
  work: () => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  const deadlineError = () => failure(reason, `no answer within ${deadline_ms} ms`);
  try {
    signal?.throwIfAborted();
    return await withDeadline(work(), deadline_ms, deadlineError, signal);
  } catch (error) {
    kill();
    throw error;
  }
}

interface WorkerOptions {
  /** The program and its arguments. */
  readonly command: readonly [string, ...string[]];
  readonly environment: ProgramEnvironment;
  /** Each worker gets a folder of its own in it as working directory, removed when the worker has ended. */
  readonly folder: string;
  /** From the start of the process to its first line. */
  readonly start_deadline_ms: number;
  /** From the nonce to the end of the result. */
  readonly answer_deadline_ms: number;
}

export interface Worker {
  /** Settles when the worker has loaded the SDK and NVML, or failed to. @throws {AttesterError} */
  readonly ready: Promise<readonly Device[]>;
  /** Settles when the process has ended and its folder is gone. */
  readonly gone: Promise<void>;
  /** To be called once. The result is from a process that wrote nothing else. @throws {AttesterError} */
  attest(nonce: Nonce, signal: AbortSignal): Promise<WorkerResult>;
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
  requests.on('error', () => {}); // a worker's end shows on the stream of its lines
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
    await Promise.race([closed(lines_from), unreffed(DRAIN_MS)]); // Its last lines may still be in the pipe.
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
      const detail = lastLineOf(stderr());
      const words = `the worker ended ${how(child)} without an answer`;
      throw failure('worker_died', detail === '' ? words : `${words}: ${detail}`);
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
          const line = await read(resultLine);
          if ((await lines.next().catch(() => '')) !== null)
            throw failure('worker_second_answer', 'the worker said more than its one answer');
          if (line.type === 'failed') throw failed(line.reason, line.message);
          return line;
        },
        signal,
      ).finally(() => {
        kill();
        // The GPU serves one collection at a time: the next begins when this process has ended.
        return Promise.race([gone, unreffed(EXIT_GRACE_MS)]);
      }),
  };
}

/** How long to wait for a killed process to end: no signal reaches it inside the driver. */
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
  isWorkerReason(reason)
    ? failure(reason, message)
    : failure('worker_garbage', 'the worker gave a reason that is not known');

function how(child: ChildProcess): string {
  if (child.signalCode !== null) return `by ${child.signalCode}`;
  return child.exitCode === null ? 'its channel' : `with exit code ${child.exitCode}`;
}
