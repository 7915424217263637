// The command `countersign keys add|list|remove`. The keys file holds only the hashes of the keys that it makes.
import { randomBytes } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { parseArgs } from 'node:util';
import { keysFileOf } from '../base/config.ts';
import { digestOf, type KeyLine } from './keys.ts';
import {
  checkName,
  describeLine,
  isOfEveryKey,
  KeyLineError,
  KeysFileError,
  parseKeys,
  readLine,
  readSettings,
  writeLine,
} from './keys-file.ts';

const USAGE = `usage: countersign keys add NAME [--rps N] [--concurrent N] [--streams N] [--tee N] [--tokens-per-day N] [--held-bytes N]
                                [--models A,B] [--admin]
       countersign keys list
       countersign keys remove NAME
  --file FILE   the keys file; without it the one that API_KEYS_FILE names
--admin       the key may use the routes that manage the backend
add prints the new key once, on standard output. A running gateway takes the change up by itself.
A line in the file such as "* rps=5 streams=4" has the limits of every key that has none of its own; an editor writes it.`;

/** Makes a key: 256 random bits behind a prefix that people and secret scanners recognise. */
const makeKey = () => `csk-${randomBytes(32).toString('base64url')}`;

class UsageError extends Error {}

const OPTIONS = {
  file: { type: 'string' },
  rps: { type: 'string' },
  concurrent: { type: 'string' },
  streams: { type: 'string' },
  tee: { type: 'string' },
  'tokens-per-day': { type: 'string' },
  'held-bytes': { type: 'string' },
  models: { type: 'string' },
  admin: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

function main(args: string[]): number {
  const { values, positionals } = parseArgs({ args, options: OPTIONS, allowPositionals: true });
  if (values.help === true) {
    console.log(USAGE);
    return 0;
  }
  const [command, name, ...more] = positionals;
  const file = values.file ?? keysFileOf(process.env);
  if (file === null) throw new UsageError('name the file: --file FILE, or API_KEYS_FILE in the environment');
  if (more.length > 0) throw new UsageError('too many arguments');
  const { file: _file, help: _help, ...settings } = values;
  if (command !== 'add' && Object.keys(settings).length > 0) throw new UsageError('only add takes settings');
  if (command === 'list' && name === undefined) return list(file);
  if (name === undefined) throw new UsageError('which name?');
  if (command === 'add')
    return add(
      file,
      name,
      Object.entries(settings).map(([key, value]) => (value === true ? key : `${key}=${value}`)),
    );
  if (command === 'remove') return remove(file, name);
  throw new UsageError(`no such command: ${command}`);
}

function add(file: string, name: string, settings: string[]): number {
  const key = makeKey();
  const line: KeyLine = { name: checkName(name), digest: digestOf(key), limits: readSettings(settings), plain: false };
  const text = textOf(file);
  if (parseKeys(text ?? '').keys.some((one) => one.name === name)) throw new KeysFileError(`has a key named ${name}`);
  replace(file, `${ended(text ?? '')}${writeLine(line)}\n`);
  console.log(key);
  console.error(`${name} was added to ${file}. This is the only time that its key is shown.`);
  return 0;
}

function list(file: string): number {
  const { keys, defaults } = parseKeys(existingText(file));
  if (defaults !== null) console.log(describeLine('*', defaults));
  for (const { name, limits, plain } of keys)
    console.log(`${describeLine(name, limits)}${plain ? ' (kept as a plain key)' : ''}`);
  return 0;
}

function remove(file: string, name: string): number {
  const text = existingText(file);
  const { keys } = parseKeys(text);
  if (!keys.some((one) => one.name === name)) throw new KeysFileError(`has no key named ${name}`);
  if (keys.length === 1)
    throw new KeysFileError(
      `would hold no key, and a gateway keeps its keys then: add another first, or stop the gateway`,
    );
  // A plain key is named by its line number. Where there is one, an empty line replaces the removed one, so that no name changes.
  const replacement = keys.some((one) => one.plain) ? [''] : [];
  const kept = text.split('\n').flatMap((raw, i) => {
    const line = raw.trim();
    const other = line === '' || line.startsWith('#') || isOfEveryKey(line) || readLine(line, i + 1).name !== name;
    return other ? [raw] : replacement;
  });
  replace(file, ended(kept.join('\n')));
  console.error(`${name} was removed from ${file}.`);
  return 0;
}

/** The text with a newline at its end, without which a gateway takes it for half-written. */
const ended = (text: string): string => (text === '' || text.endsWith('\n') ? text : `${text}\n`);

/** Reads a file that must exist: a mistyped path is not an empty list. */
function existingText(file: string): string {
  const text = textOf(file);
  if (text === null) throw new KeysFileError('is not there');
  return text;
}

/** Returns null where the file does not exist yet. */
function textOf(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw new KeysFileError(`cannot be read: ${(error as NodeJS.ErrnoException).code}`);
  }
}

/**
 * Writes the text to a new file, which only its owner can read and which locks out a second command. Then overwrites the old file in place:
 * a container that mounts only this file would not see a renamed one.
 * @throws {KeysFileError} also when a gateway could not use the text.
 */
function replace(file: string, text: string): void {
  parseKeys(text);
  const before = statSync(file, { throwIfNoEntry: false });
  const target = before === undefined ? file : realpathSync(file);
  const fresh = `${target}.new`;
  try {
    write(openSync(fresh, 'wx', 0o600), text);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') throw new KeysFileError(`is being written: ${fresh} is there`);
    rmSync(fresh, { force: true });
    throw new KeysFileError(`cannot be written: ${code}`);
  }
  try {
    if (before === undefined) return renameSync(fresh, target);
    write(openToWrite(target, before.mode & 0o777), text);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new KeysFileError(`cannot be written: ${code}; what it should hold is in ${fresh}`);
  }
  unlinkSync(fresh);
}

/** Opens a file for writing, even where its owner may only read it. */
function openToWrite(target: string, mode: number): number {
  if ((mode & 0o200) !== 0) return openSync(target, 'r+');
  chmodSync(target, mode | 0o200);
  try {
    return openSync(target, 'r+');
  } finally {
    chmodSync(target, mode);
  }
}

/** Overwrites the file and cuts off the rest of a longer one. */
function write(fd: number, text: string): void {
  try {
    writeFileSync(fd, text);
    ftruncateSync(fd, Buffer.byteLength(text));
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

try {
  process.exitCode = main(process.argv.slice(process.argv[2] === 'keys' ? 3 : 2));
} catch (error) {
  if (error instanceof KeysFileError) {
    console.error(`countersign keys: the file ${error.message}`);
    process.exitCode = 1;
  } else if (
    error instanceof UsageError ||
    error instanceof KeyLineError ||
    (error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS')
  ) {
    console.error(`countersign keys: ${(error as Error).message}\n${USAGE}`);
    process.exitCode = 2;
  } else throw error;
}
