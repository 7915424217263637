// Reads the files that the command line names.
import { closeSync, openSync, readSync } from 'node:fs';
import { concat } from '../common/bytes.ts';
import { isTranscript } from '../index.ts';

/** The command line cannot be followed. The message is one line. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** Larger files are refused before they are read into memory as text. */
export const MAX_INPUT_BYTES = 256 * 1024 * 1024;
const PART_BYTES = 1024 * 1024;
/** Every file that can be read can be checked: a gateway attests more than the library accepts by default. */
export const INPUT_LIMITS = { maxCharacters: MAX_INPUT_BYTES };

/** The error for a path that the file system refuses. */
export function unusable(path: string, error: unknown): UsageError {
  const { code } = error as NodeJS.ErrnoException;
  return new UsageError(
    `${path}: ${code === 'ENOENT' ? 'no such file or folder' : `cannot be used (${code ?? 'unknown'})`}`,
  );
}

/** @throws {UsageError} when it cannot be read. */
export function readBytes(file: string): Uint8Array<ArrayBuffer> {
  try {
    const opened = file === '-' ? 0 : openSync(file, 'r');
    try {
      return readAtMost(opened, file);
    } finally {
      if (opened !== 0) closeSync(opened);
    }
  } catch (error) {
    throw error instanceof UsageError ? error : unusable(file, error);
  }
}

/** Reads in parts, because a pipe or a device may have no end. @throws {UsageError} */
function readAtMost(opened: number, file: string): Uint8Array<ArrayBuffer> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  const buffer = new Uint8Array(PART_BYTES);
  for (let size = readSync(opened, buffer); size > 0; size = readSync(opened, buffer)) {
    length += size;
    if (length > MAX_INPUT_BYTES) throw new UsageError(`${file}: larger than ${MAX_INPUT_BYTES} bytes`);
    parts.push(buffer.slice(0, size));
  }
  return concat(parts);
}

/** @throws {UsageError} when it cannot be read, or is not UTF-8. */
export function readText(file: string): string {
  return decode(readBytes(file), file);
}

/**
 * The input of verifyAttestation: the text of JSON, or the bytes of a stream.
 * @throws {UsageError} when the file cannot be read, or is not UTF-8.
 */
export function readInput(file: string): string | Uint8Array<ArrayBuffer> {
  const bytes = readBytes(file);
  const text = decode(bytes, file);
  return isTranscript(text) ? bytes : text;
}

/** Rejects invalid UTF-8: a lossy decoding could equal another file's text. */
function decode(bytes: Uint8Array, file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new UsageError(`${file}: not a text in UTF-8`);
  }
}
