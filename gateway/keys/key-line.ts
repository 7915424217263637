// One line of the keys file: `name:sha256:HEX rps=5 concurrent=10 streams=4 tee=2 models=a,b admin`, read and written.
import { hash } from 'node:crypto';
import { type KeyLimits, NO_LIMITS } from './caller.ts';

/** One key as the file holds it. */
export interface KeyLine {
  readonly name: string;
  /** SHA-256 of the key, 32 bytes. */
  readonly digest: Buffer;
  readonly limits: KeyLimits;
  /** The file holds the key itself and not its hash. */
  readonly plain: boolean;
}

/** A line cannot be used. Its message never quotes the line: that may be a key. */
export class KeyLineError extends Error {
  override readonly name = 'KeyLineError';
}

const NAME = /^[A-Za-z0-9._@-]{1,64}$/;
const COUNTS = ['rps', 'concurrent', 'streams', 'tee'] as const;
const MAX_COUNT = 1_000_000;
const MAX_MODELS = 1_000;

/** The name, as it is. @throws {KeyLineError} */
export function checkName(name: string): string {
  if (!NAME.test(name)) throw new KeyLineError('a name is 1 to 64 of the characters A-Z a-z 0-9 . _ @ -');
  return name;
}

/**
 * SHA-256, and no slow hash: a key that `countersign keys add` made has 256 random bits, which nobody finds by trying,
 * and a slow hash on every request would be a way to overload the gateway.
 */
export function digestOf(key: string): Buffer {
  return hash('sha256', key, 'buffer');
}

/** @param number the line's place in the file, from 1: the name of a key that has none. @throws {KeyLineError} */
export function readLine(line: string, number: number): KeyLine {
  const [first = '', ...settings] = line.split(/\s+/);
  // Whatever begins like a hashed line is one: a mistyped hash must never be taken for a key.
  if (!/:sha\d/i.test(first)) {
    if (settings.length > 0)
      throw new KeyLineError('a plain key stands alone on its line, and so does a comment, after #');
    return { name: `line-${number}`, digest: digestOf(first), limits: NO_LIMITS, plain: true };
  }
  const [name = '', scheme, hex = '', ...rest] = first.split(':');
  if (scheme !== 'sha256' || !/^[0-9a-f]{64}$/i.test(hex) || rest.length > 0)
    throw new KeyLineError('a hashed key is written name:sha256: and 64 hexadecimal digits');
  return { name: checkName(name), digest: Buffer.from(hex, 'hex'), limits: readSettings(settings), plain: false };
}

/** From `rps=5` and the like, and `admin`. @throws {KeyLineError} */
export function readSettings(settings: readonly string[]): KeyLimits {
  const limits: { -readonly [K in keyof KeyLimits]: KeyLimits[K] } = { ...NO_LIMITS };
  for (const setting of settings) {
    if (setting === 'admin') {
      if (limits.admin) throw new KeyLineError('admin is given twice');
      limits.admin = true;
      continue;
    }
    const [key = '', value = ''] = setting.split(/=(.*)/s);
    const count = COUNTS.find((one) => one === key);
    if (count === undefined && key !== 'models')
      throw new KeyLineError(`a setting is admin, or one of ${[...COUNTS, 'models'].join(', ')}, as in rps=5`);
    if (limits[count ?? 'models'] !== null) throw new KeyLineError(`${key} is given twice`);
    if (count === undefined) limits.models = readModels(value);
    else limits[count] = readCount(count, value);
  }
  return limits;
}

function readCount(name: string, value: string): number {
  if (!/^\d{1,7}$/.test(value) || Number(value) > MAX_COUNT)
    throw new KeyLineError(`${name} is a whole number from 0 (no limit) to ${MAX_COUNT}`);
  return Number(value);
}

function readModels(value: string): ReadonlySet<string> {
  const models = value.split(',').filter((model) => model !== '');
  if (models.length === 0 || models.length > MAX_MODELS)
    throw new KeyLineError(`models names 1 to ${MAX_MODELS} models, with commas and no spaces between them`);
  return new Set(models);
}

/** The opposite of {@link readLine}, of a hashed line. */
export function writeLine(line: KeyLine): string {
  const { models, admin } = line.limits;
  const settings = COUNTS.filter((count) => line.limits[count] !== null).map(
    (count) => `${count}=${line.limits[count]}`,
  );
  if (models !== null) settings.push(`models=${[...models].join(',')}`);
  if (admin) settings.push('admin');
  return [`${line.name}:sha256:${line.digest.toString('hex')}`, ...settings].join(' ');
}
