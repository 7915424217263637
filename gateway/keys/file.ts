// The keys file: one key a line, empty lines and lines that begin with # do not count.
import { readFileSync } from 'node:fs';
import { type KeyLine, KeyLineError, readLine } from './line.ts';

const MAX_KEYS = 100_000;

/** The file cannot be used. One line, without a word of what the file holds. */
export class KeysFileError extends Error {
  override readonly name = 'KeysFileError';
}

/** @throws {KeysFileError} unreadable, a bad line (named by its number), a name or a key given twice, no key at all. */
export function readKeysFile(file: string): KeyLine[] {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    throw new KeysFileError(`cannot be read: ${(cause as NodeJS.ErrnoException).code ?? 'error'}`, { cause });
  }
  const keys = parseKeys(text);
  if (keys.length === 0) throw new KeysFileError('holds no key');
  return keys;
}

/** @throws {KeysFileError} as {@link readKeysFile}; an empty text holds no keys. */
export function parseKeys(text: string): KeyLine[] {
  const keys: KeyLine[] = [];
  const seen = new Set<string>();
  for (const [i, raw] of text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .entries()) {
    const line = raw.trim();
    if (line === '' || line.startsWith('#')) continue;
    const key = lineOf(line, i + 1);
    const hex = key.digest.toString('hex');
    if (seen.has(key.name) || seen.has(`:${hex}`))
      throw new KeysFileError(`line ${i + 1} repeats the name or the key of a line above`);
    seen.add(key.name).add(`:${hex}`);
    keys.push(key);
    if (keys.length > MAX_KEYS) throw new KeysFileError(`holds more than ${MAX_KEYS} keys`);
  }
  return keys;
}

function lineOf(line: string, number: number): KeyLine {
  try {
    return readLine(line, number);
  } catch (error) {
    if (error instanceof KeyLineError) throw new KeysFileError(`line ${number}: ${error.message}`);
    throw error;
  }
}
