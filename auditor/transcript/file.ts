// The sink that keeps a transcript in a file: each proven exchange is a line, the attestation by itself, and a bundle the line before the first
// that names it. `countersign verify FILE.jsonl` and `countersign transcript FILE` read it.
import { type FileHandle, open } from 'node:fs/promises';
import type { TranscriptRecord } from '../../verify/clients/transcript.ts';
import { LruMap } from '../../verify/common/lru.ts';

export type { TranscriptRecord, TranscriptSink } from '../../verify/clients/transcript.ts';

export interface TranscriptLimits {
  /** An exchange that would make the file larger is refused. 1 GiB by default. */
  readonly maxBytes?: number;
}

/** A TranscriptSink. */
export interface TranscriptFile {
  (record: TranscriptRecord): Promise<void>;
  /** Waits for what is being written. A later exchange opens the file again. */
  close(): Promise<void>;
}

const MAX_BYTES = 1024 ** 3;
/** Bundles that are known to be in the file. Of more, one is written again. */
const MAX_BUNDLES = 1000;
const PART_BYTES = 64 * 1024;
/** How the lines begin that are written here, and those of `--redact`. */
const BEGINNINGS = ['{"raw":', '{"token":', '{"evidence":', '{"cpu":', '{"redacted":'];

/**
 * Appends to a file that one process writes at a time; only its user may read it. A line that an earlier process could not finish is removed:
 * its answer was never handed over.
 *
 * ```ts
 * const client = new OpenAI({ baseURL, fetch: verifyingFetch({ transcript: transcriptFile('run.jsonl') }) });
 * ```
 * It throws where the file is full, cannot be written, or is not a transcript.
 */
export function transcriptFile(path: string, { maxBytes = MAX_BYTES }: TranscriptLimits = {}): TranscriptFile {
  if (!Number.isSafeInteger(maxBytes) || maxBytes < 1) throw new TypeError('maxBytes is not a whole number from 1');
  const written = new LruMap<string, true>(MAX_BUNDLES);
  let file: FileHandle | null = null;
  let last: Promise<void> = Promise.resolve();

  async function append({ attestation, bundle }: TranscriptRecord): Promise<void> {
    file ??= await openedAt(path);
    const name = bundle === null ? '' : String(attestation.bundle);
    const isKnown = bundle === null || written.get(name) === true;
    const lines = Buffer.from(`${isKnown ? '' : `${bundle}\n`}${JSON.stringify(attestation)}\n`);
    const { size } = await file.stat();
    if (size + lines.length > maxBytes) throw new Error(`${path}: the transcript is full (${maxBytes} bytes)`);
    const { bytesWritten } = await file.write(lines);
    if (bytesWritten < lines.length) throw new Error(`${path}: the line could not be written to its end`);
    await file.datasync();
    if (!isKnown) written.set(name, true);
  }

  async function close(): Promise<void> {
    const opened = file;
    file = null;
    await opened?.close();
  }

  /** After an error the file is opened anew, which removes what was written of the line. */
  const next = <T>(step: () => Promise<T>): Promise<T> => {
    const done = last.then(step);
    last = done.then(
      () => {},
      () => close().catch(() => {}),
    );
    return done;
  };

  return Object.assign((record: TranscriptRecord) => next(() => append(record)), { close: () => next(close) });
}

/** @throws {Error} where it cannot be opened, or is not a transcript */
async function openedAt(path: string): Promise<FileHandle> {
  const file = await open(path, 'a+', 0o600);
  try {
    await mend(path, file);
    return file;
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Removes a last line that does not end. */
async function mend(path: string, file: FileHandle): Promise<void> {
  const { size } = await file.stat();
  if (size === 0) return;
  const head = (await read(file, 0, Math.min(size, 16))).toString('latin1');
  if (!BEGINNINGS.some((one) => head.startsWith(one) || one.startsWith(head)))
    throw new Error(`${path}: not a transcript, so nothing is written to it`);
  for (let end = size; end > 0; end -= PART_BYTES) {
    const from = Math.max(0, end - PART_BYTES);
    const at = (await read(file, from, end - from)).lastIndexOf(10);
    if (at < 0 && from > 0) continue;
    const to = at < 0 ? 0 : from + at + 1;
    if (to < size) await file.truncate(to);
    return;
  }
}

async function read(file: FileHandle, from: number, length: number): Promise<Buffer> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, from);
  return buffer.subarray(0, bytesRead);
}
