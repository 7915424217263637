// Reads the files that the command line names.
import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { concat } from '../common/bytes.ts';
import { isTranscript } from '../index.ts';
import { SAVE } from './words.ts';

/** The command line cannot be followed. The message is one line, and so is what to do next. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  readonly next: string | null;
  constructor(message: string, next: string | null = null) {
    super(message);
    this.next = next;
  }
}

/** Larger files are refused before they are read into memory as text. */
export const MAX_INPUT_BYTES = 256 * 1024 * 1024;
const PART_BYTES = 1024 * 1024;
/** Every file that can be read can be checked: a gateway attests more than the library accepts by default. */
export const INPUT_LIMITS = { maxCharacters: MAX_INPUT_BYTES };

/** A folder of files, or a file of lines. */
export const isMany = (path: string): boolean =>
  path.endsWith('.jsonl') || statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;

/** The error for a path that the file system refuses. */
export function unusable(path: string, error: unknown): UsageError {
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'EISDIR') return new UsageError(`${path}: a folder, not a file`, 'name a file that is in it');
  return new UsageError(
    `${path}: ${code === 'ENOENT' ? 'no such file or folder' : `cannot be used (${code ?? 'unknown'})`}`,
  );
}

/** @throws {UsageError} when it cannot be read. */
export function readBytes(file: string): Uint8Array<ArrayBuffer> {
  try {
    const opened = file === '-' ? 0 : openSync(file, 'r');
    try {
      if (fstatSync(opened).size > MAX_INPUT_BYTES) throw tooLarge(file);
      return readAtMost(opened, file);
    } finally {
      if (opened !== 0) closeSync(opened);
    }
  } catch (error) {
    throw error instanceof UsageError ? error : unusable(file, error);
  }
}

const tooLarge = (file: string): UsageError =>
  new UsageError(`${file}: larger than 256 MiB, and so no answer`, 'give the file of one answer');

/** Reads in parts, because a pipe or a device may have no end. @throws {UsageError} */
function readAtMost(opened: number, file: string): Uint8Array<ArrayBuffer> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let length = 0;
  const buffer = new Uint8Array(PART_BYTES);
  for (let size = readSync(opened, buffer); size > 0; size = readSync(opened, buffer)) {
    length += size;
    if (length > MAX_INPUT_BYTES) throw tooLarge(file);
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

/** @throws {UsageError} Rejects invalid UTF-8: a lossy decoding could equal another file's text. */
export function decode(bytes: Uint8Array, file: string): string {
  if (isUtf16(bytes)) throw new UsageError(`${file}: a text in UTF-16, not in UTF-8`, UTF_8);
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    const form = FORMS.find(([begin]) => begin.every((byte, i) => bytes[i] === byte));
    if (form !== undefined) throw new UsageError(`${file}: ${form[1]}, not a text`, form[2]);
    throw new UsageError(`${file}: not a text in UTF-8`, SAVE);
  }
}

const UTF_8 = "save it as UTF-8: Windows PowerShell's > writes UTF-16, curl.exe -o FILE does not";
const FORMS: readonly (readonly [begin: readonly number[], what: string, next: string])[] = [
  [[0x89, 0x50, 0x4e, 0x47], 'an image (PNG)', SAVE],
  [[0x1f, 0x8b], 'compressed (gzip)', 'unpack it first, or ask with curl --compressed'],
];

/** By its mark, or by the zero beside its first character: a text in UTF-8 has none there. */
function isUtf16([first, second]: Uint8Array): boolean {
  const marked = (first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff);
  return marked || (first === 0) !== (second === 0);
}
