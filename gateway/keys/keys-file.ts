// The keys file: one key a line, empty lines and lines that begin with # do not count.
import { type BigIntStats, readFileSync, statSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Logger } from 'pino';
import { ConfigError } from '../config.ts';
import { callerOf, type KeyLine, KeyLineError, type Keys, OPEN, readLine, tableOf } from './keys.ts';

const MAX_KEYS = 100_000;

/** The file cannot be used. One line, without a word of what the file holds. */
export class KeysFileError extends Error {
  override readonly name = 'KeysFileError';
}

/** @throws {KeysFileError} unreadable, a bad line (named by its number), a name or a key given twice, no key at all. */
function readKeysFile(file: string): KeyLine[] {
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

// Loads the keys file and follows it: a changed file counts within two seconds, and a broken one changes nothing.

/** The file is looked at by path this often: that sees a rename and a swapped symbolic link (Kubernetes) where a watch does not. */
const LOOK_EVERY_MS = 1_000;

/** null: everybody may ask. @throws {ConfigError} when the file cannot be used. */
export function loadKeys(file: string | null, log: Logger, look_every_ms = LOOK_EVERY_MS): Keys {
  if (file === null) return OPEN;
  const path = resolve(file);
  // Taken before the file is read: what changes in between is seen as a change.
  let mark = markOf(statSync(path, { bigint: true, throwIfNoEntry: false }));
  let table = tableOf(first(path, log));
  const look = async () => {
    const now = markOf(await stat(path, { bigint: true }).catch(() => undefined));
    if (now === mark) return;
    mark = now;
    try {
      const lines = readKeysFile(path);
      table = tableOf(lines);
      log.info({ keys: lines.length }, 'API_KEYS_FILE was read again');
      warnOfPlain(lines, log);
    } catch (error) {
      if (!(error instanceof KeysFileError)) throw error;
      log.error(`API_KEYS_FILE ${error.message}: the keys from before stay`);
    }
  };
  const timer = setInterval(() => void look(), look_every_ms);
  timer.unref();
  return {
    authenticate: (authorization) => callerOf(table, authorization),
    close: () => clearInterval(timer),
  };
}

/** Which file it is, and which state of it. */
function markOf(stats: BigIntStats | undefined): string {
  return stats === undefined ? 'absent' : [stats.dev, stats.ino, stats.size, stats.mtimeNs, stats.ctimeNs].join(' ');
}

function first(path: string, log: Logger): KeyLine[] {
  try {
    const lines = readKeysFile(path);
    warnOfPlain(lines, log);
    return lines;
  } catch (error) {
    if (error instanceof KeysFileError) throw new ConfigError(`API_KEYS_FILE ${error.message}`, { cause: error });
    throw error;
  }
}

function warnOfPlain(lines: readonly KeyLine[], log: Logger): void {
  const plain = lines.filter((line) => line.plain).length;
  if (plain > 0)
    log.warn({ plain }, 'API_KEYS_FILE holds plain keys: "countersign keys add NAME" makes keys that are kept hashed');
}
