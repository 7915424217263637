// Loads the keys file and follows it: a changed file counts within two seconds, and a broken one changes nothing.
import { type BigIntStats, statSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { Logger } from 'pino';
import { ConfigError } from '../config.ts';
import { KeysFileError, readKeysFile } from './file.ts';
import { callerOf, type Keys, OPEN, tableOf } from './keys.ts';
import type { KeyLine } from './line.ts';

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
