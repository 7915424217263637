// Reads the files that the command line names.
import { readFileSync } from 'node:fs';
import { isTranscript } from '../index.ts';

/** The command line cannot be followed. The message is one line. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** Larger files are refused before they are read into memory as text. */
export const MAX_INPUT_BYTES = 256 * 1024 * 1024;

/** The error for a path that the file system refuses. */
export function unusable(path: string, error: unknown): UsageError {
  const { code } = error as NodeJS.ErrnoException;
  return new UsageError(
    `${path}: ${code === 'ENOENT' ? 'no such file or folder' : `cannot be used (${code ?? 'unknown'})`}`,
  );
}

/** @throws {UsageError} when it cannot be read. */
export function readBytes(file: string): Uint8Array<ArrayBuffer> {
  let bytes: Buffer;
  try {
    bytes = readFileSync(file === '-' ? 0 : file);
  } catch (error) {
    throw unusable(file, error);
  }
  if (bytes.length > MAX_INPUT_BYTES) throw new UsageError(`${file}: larger than ${MAX_INPUT_BYTES} bytes`);
  return new Uint8Array(bytes);
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

/** The value of a JSON string; any other text as it is. */
export function unquoted(text: string): string {
  if (!text.trimStart().startsWith('"')) return text;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'string' ? value : text;
  } catch {
    return text;
  }
}
