// Parses the keys file and follows its changes.
import { resolve } from 'node:path';
import type { Logger } from 'pino';
import { ConfigError, type GatewayConfig } from '../base/config.ts';
import { followFiles, type ReadFollowed } from './followed-files.ts';
import {
  callerOf,
  digestOf,
  type KeyLimits,
  type KeyLine,
  type Keys,
  NO_LIMITS,
  OPEN,
  type ParsedKeys,
  tableOf,
} from './keys.ts';

// One line of the keys file: `name:sha256:HEX rps=5 concurrent=10 streams=4 tee=2 tokens-per-day=100000 held-bytes=33554432 models=a,b admin`.
// The line `* rps=5 streams=4 …` has what applies to each key whose own line says nothing.

/** A line that cannot be used. The message never quotes the line, because that may be a key. */
export class KeyLineError extends Error {
  override readonly name = 'KeyLineError';
}

/** The largest limit of a key, of most kinds. */
const MAX_LIMIT = 1_000_000;
const MAX_TOKENS_PER_DAY = 1_000_000_000_000;
const MAX_HELD_BYTES = 2 ** 40;
const NAME = /^[A-Za-z0-9._@-]{1,64}$/;
/** Settings that are counts, with their members of {@link KeyLimits} and their maxima. */
const COUNTS = [
  { name: 'rps', member: 'rps', max: MAX_LIMIT },
  { name: 'concurrent', member: 'concurrent', max: MAX_LIMIT },
  { name: 'streams', member: 'streams', max: MAX_LIMIT },
  { name: 'tee', member: 'tee', max: MAX_LIMIT },
  { name: 'tokens-per-day', member: 'tokens_per_day', max: MAX_TOKENS_PER_DAY },
  { name: 'held-bytes', member: 'held_bytes', max: MAX_HELD_BYTES },
] as const;
type Count = (typeof COUNTS)[number];
const MAX_MODELS = 1_000;

/** Returns the name if it is valid. @throws {KeyLineError} */
export function checkName(name: string): string {
  if (!NAME.test(name)) throw new KeyLineError('a name is 1 to 64 of the characters A-Z a-z 0-9 . _ @ -');
  return name;
}

/** @param number the line's number in the file, from 1, which names a plain key. @throws {KeyLineError} */
export function readLine(line: string, number: number): KeyLine {
  const [first = '', ...settings] = line.split(/\s+/);
  // A line that begins like a hashed key is one: a mistyped hash must never be taken for a key.
  if (!/:sha\d/i.test(first)) {
    if (settings.length > 0) throw new KeyLineError('a line is one plain key, or a comment after #');
    return { name: `line-${number}`, digest: digestOf(first), limits: NO_LIMITS, plain: true };
  }
  const [name = '', scheme, hex = '', ...rest] = first.split(':');
  if (scheme !== 'sha256' || !/^[0-9a-f]{64}$/i.test(hex) || rest.length > 0)
    throw new KeyLineError('a hashed key is written name:sha256: and 64 hexadecimal digits');
  return { name: checkName(name), digest: Buffer.from(hex, 'hex'), limits: readSettings(settings), plain: false };
}

/** The name of the line with the limits of every key. */
const EVERY_KEY = '*';
export const isOfEveryKey = (line: string): boolean => /^\*(\s|$)/.test(line);

/** Parses the line `*`. @throws {KeyLineError} */
function readDefaults(line: string): KeyLimits {
  const limits = readSettings(line.split(/\s+/).slice(1));
  if (limits.models !== null || limits.admin)
    throw new KeyLineError('models and admin are given to a key by its name, not to every key');
  if (COUNTS.every(({ member }) => limits[member] === null))
    throw new KeyLineError('the line * has limits of every key, as in * rps=5');
  return limits;
}

/** Parses settings such as `rps=5` and `admin`. @throws {KeyLineError} */
export function readSettings(settings: readonly string[]): KeyLimits {
  const limits: { -readonly [K in keyof KeyLimits]: KeyLimits[K] } = { ...NO_LIMITS };
  for (const setting of settings) {
    if (setting === 'admin') {
      if (limits.admin) throw new KeyLineError('admin is given twice');
      limits.admin = true;
      continue;
    }
    const [key = '', value = ''] = setting.split(/=(.*)/s);
    const count = COUNTS.find(({ name }) => name === key);
    if (count === undefined && key !== 'models') {
      const names = [...COUNTS.map(({ name }) => name), 'models'];
      throw new KeyLineError(`a setting is admin, or one of ${names.join(', ')}, as in rps=5`);
    }
    if (limits[count?.member ?? 'models'] !== null) throw new KeyLineError(`${key} is given twice`);
    if (count === undefined) limits.models = readModels(value);
    else limits[count.member] = readCount(count, value);
  }
  return limits;
}

function readCount({ name, max }: Count, value: string): number {
  if (!/^\d{1,13}$/.test(value) || Number(value) > max)
    throw new KeyLineError(`${name} is a whole number from 0 (no limit) to ${max}`);
  return Number(value);
}

function readModels(value: string): ReadonlySet<string> {
  const models = value.split(',').filter((model) => model !== '');
  if (models.length === 0 || models.length > MAX_MODELS)
    throw new KeyLineError(`models names 1 to ${MAX_MODELS} models, with commas and no spaces between them`);
  return new Set(models);
}

/** The inverse of {@link readSettings}. */
function writeSettings(limits: KeyLimits): string[] {
  const { models, admin } = limits;
  const settings = COUNTS.filter(({ member }) => limits[member] !== null).map(
    ({ name, member }) => `${name}=${limits[member]}`,
  );
  if (models !== null) settings.push(`models=${[...models].join(',')}`);
  if (admin) settings.push('admin');
  return settings;
}

/** The inverse of {@link readLine}, for a hashed key. */
export const writeLine = ({ name, digest, limits }: KeyLine): string =>
  [`${name}:sha256:${digest.toString('hex')}`, ...writeSettings(limits)].join(' ');

/** A line for people: the key's name, or `*`, and its settings. */
export const describeLine = (name: string, limits: KeyLimits): string => [name, ...writeSettings(limits)].join(' ');

// The whole file: one key a line, and at most one line `*`. Empty lines and lines that begin with # are ignored.

const MAX_KEYS = 100_000;

/** The file cannot be used. The message is one line and quotes nothing of the file. */
export class KeysFileError extends Error {
  override readonly name = 'KeysFileError';
}

/**
 * @param again the gateway has keys already, so a file that may be half-written is refused.
 * @throws {KeysFileError} for an unreadable file, a bad line (named by its number), a name or key given twice, or no key at all.
 */
function readKeysFile(file: string, read: ReadFollowed, again: boolean, max_body_bytes: number): ParsedKeys {
  let text: string;
  try {
    text = read(file);
  } catch (cause) {
    throw new KeysFileError(`cannot be read: ${(cause as NodeJS.ErrnoException).code ?? 'error'}`, { cause });
  }
  if (again && text !== '' && !text.endsWith('\n'))
    throw new KeysFileError('has no newline at its end, as if half-written');
  const parsed = parseKeys(text, max_body_bytes);
  if (parsed.keys.length === 0) throw new KeysFileError('holds no key');
  return parsed;
}

/**
 * @param max_body_bytes where it is known: a key that may hold less could never send such a body.
 * @throws {KeysFileError} as {@link readKeysFile}, but an empty text is valid and has no keys.
 */
export function parseKeys(text: string, max_body_bytes = 0): ParsedKeys {
  const keys: KeyLine[] = [];
  let defaults: KeyLimits | null = null;
  const seen = new Set<string>();
  for (const [i, raw] of text
    .replace(/^\uFEFF/, '')
    .split('\n')
    .entries()) {
    const line = raw.trim();
    if (line === '' || line.startsWith('#')) continue;
    if (isOfEveryKey(line)) {
      if (defaults !== null) throw new KeysFileError(`line ${i + 1} is a second line ${EVERY_KEY}`);
      defaults = numbered(i + 1, () => checkHeld(readDefaults(line), max_body_bytes));
      continue;
    }
    const key = numbered(i + 1, () => readLine(line, i + 1));
    numbered(i + 1, () => checkHeld(key.limits, max_body_bytes));
    const hex = key.digest.toString('hex');
    if (seen.has(key.name) || seen.has(`:${hex}`))
      throw new KeysFileError(`line ${i + 1} repeats the name or the key of a line above`);
    seen.add(key.name).add(`:${hex}`);
    keys.push(key);
    if (keys.length > MAX_KEYS) throw new KeysFileError(`holds more than ${MAX_KEYS} keys`);
  }
  return { keys, defaults };
}

/** @throws {KeyLineError} */
function checkHeld(limits: KeyLimits, max_body_bytes: number): KeyLimits {
  if (limits.held_bytes !== null && limits.held_bytes !== 0 && limits.held_bytes < max_body_bytes)
    throw new KeyLineError(`held-bytes is 0 (no limit) or not less than MAX_BODY_BYTES (${max_body_bytes})`);
  return limits;
}

/** Reads a part of a line, whose number an error names. @throws {KeysFileError} */
function numbered<T>(number: number, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof KeyLineError) throw new KeysFileError(`line ${number}: ${error.message}`);
    throw error;
  }
}

// Loads the keys file and follows it: a changed file takes effect within two seconds, and an invalid one changes nothing.

/** Keys that came sealed: no file holds them, and they never change. @throws {KeysFileError} */
export function sealedKeys(text: string, max_body_bytes: number): Keys {
  const { keys, defaults } = parseKeys(text, max_body_bytes);
  if (keys.length === 0) throw new KeysFileError('holds no key');
  const table = tableOf(keys, defaults ?? undefined);
  return { authenticate: (headers) => callerOf(table, headers), file: null, use() {}, close() {} };
}

/** Without a file and without keys that came sealed, no key is required. @throws {ConfigError} when the file cannot be used. */
export function loadKeys(
  { api_keys_file, received, max_body_bytes }: Pick<GatewayConfig, 'api_keys_file' | 'received' | 'max_body_bytes'>,
  log: Logger,
  poll_ms?: number,
): Keys {
  if (received !== null && received.api_keys !== null) return sealedKeys(received.api_keys, max_body_bytes);
  if (api_keys_file === null) return OPEN;
  const path = resolve(api_keys_file);
  let table: ReturnType<typeof tableOf> | null = null;
  const close = followFiles((read) => {
    try {
      const { keys, defaults } = readKeysFile(path, read, table !== null, max_body_bytes);
      if (table !== null) log.info({ keys: keys.length }, 'API_KEYS_FILE was read again');
      table = tableOf(keys, defaults ?? undefined);
      warnAboutPlainKeys(keys, log);
    } catch (error) {
      if (!(error instanceof KeysFileError)) throw error;
      if (table === null) throw new ConfigError(`API_KEYS_FILE ${error.message}`, { cause: error });
      log.error(`API_KEYS_FILE ${error.message}: the keys from before stay`);
    }
  }, poll_ms);
  return {
    authenticate: (headers) => callerOf(table as ReturnType<typeof tableOf>, headers),
    file: path,
    use({ keys, defaults }) {
      table = tableOf(keys, defaults ?? undefined);
    },
    close,
  };
}

function warnAboutPlainKeys(lines: readonly KeyLine[], log: Logger): void {
  const plain = lines.filter((line) => line.plain).length;
  if (plain > 0)
    log.warn({ plain }, 'API_KEYS_FILE holds plain keys: "countersign keys add NAME" makes keys that are kept hashed');
}
