// Reads what the CLI is given: an attestation, a response, or a transcript of server-sent events.
import { readFileSync } from 'node:fs';
import { UsageError } from './args.ts';

/** Larger files are refused before they are read into memory as text. */
export const MAX_INPUT_BYTES = 256 * 1024 * 1024;

/** Where the file system says no. */
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

/** For verifyAttestation: an attestation's JSON or a whole response's; of a stream its bytes. @throws {UsageError} when it cannot be read, or is not UTF-8. */
export function readInput(file: string): string | Uint8Array<ArrayBuffer> {
  const bytes = readBytes(file);
  const text = decode(bytes, file);
  return /^\ufeff?\s*(data|event|id|retry)?:/.test(text.slice(0, 64)) ? bytes : text;
}

/** What is not UTF-8 has no text: one that is nearly right would be the text of other files too. */
function decode(bytes: Uint8Array, file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new UsageError(`${file}: not a text in UTF-8`);
  }
}
