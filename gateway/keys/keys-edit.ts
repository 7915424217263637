// Changes of the keys file, for the command line and for /admin/keys. A changed text has only the hashes of the keys that are made here.
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
import { digestOf, type KeyLimits, type KeyLine } from './keys.ts';
import { checkName, isOfEveryKey, KeysFileError, parseKeys, readLine, writeLine } from './keys-file.ts';

/** Makes a key: 256 random bits behind a prefix that people and secret scanners recognise. */
const makeKey = () => `csk-${randomBytes(32).toString('base64url')}`;

/** The file has no such key, or would have none that is needed. */
export class KeyChangeError extends Error {
  override readonly name = 'KeyChangeError';
  readonly missing: boolean;
  /** @param missing there is no key of that name */
  constructor(message: string, missing = false) {
    super(message);
    this.missing = missing;
  }
}

/** Returns the text with one key more, and that key, which is in no file. @throws {KeyLineError, KeyChangeError} */
export function withKey(
  text: string,
  name: string,
  limits: KeyLimits,
): { readonly text: string; readonly key: string } {
  const key = makeKey();
  const line: KeyLine = { name: checkName(name), digest: digestOf(key), limits, plain: false };
  if (parseKeys(text).keys.some((one) => one.name === name)) throw new KeyChangeError(`has a key named ${name}`);
  return { text: `${ended(text)}${writeLine(line)}\n`, key };
}

/** Returns the text with other limits of a hashed key. @throws {KeyChangeError} */
export function withLimits(text: string, name: string, limits: KeyLimits): string {
  const { plain } = named(text, name);
  if (plain) throw new KeyChangeError(`holds ${name} as a plain key, which has no limits`);
  return replaceLine(text, name, (line) => [writeLine({ ...line, limits })]);
}

/** Returns the text without a key. @throws {KeyChangeError} */
export function withoutKey(text: string, name: string): string {
  const { keys } = parseKeys(text);
  named(text, name);
  if (keys.length === 1)
    throw new KeyChangeError(
      'would hold no key, and a gateway keeps its keys then: add another first, or stop the gateway',
    );
  // A plain key is named by its line number. Where there is one, an empty line replaces the removed one, so that no name changes.
  return replaceLine(text, name, () => (keys.some((one) => one.plain) ? [''] : []));
}

/** @throws {KeyChangeError} */
export function named(text: string, name: string): KeyLine {
  const found = parseKeys(text).keys.find((one) => one.name === name);
  if (found === undefined) throw new KeyChangeError(`has no key named ${name}`, true);
  return found;
}

function replaceLine(text: string, name: string, replacement: (line: KeyLine) => readonly string[]): string {
  const lines = text.split('\n').flatMap((raw, i) => {
    const line = raw.trim();
    if (line === '' || line.startsWith('#') || isOfEveryKey(line)) return [raw];
    const key = readLine(line, i + 1);
    return key.name === name ? replacement(key) : [raw];
  });
  return ended(lines.join('\n'));
}

/** The text with a newline at its end, without which a gateway takes it for half-written. */
const ended = (text: string): string => (text === '' || text.endsWith('\n') ? text : `${text}\n`);

// The file itself.

/** Returns null where the file does not exist yet. @throws {KeysFileError} */
export function readText(file: string): string | null {
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
export function replaceFile(file: string, text: string): void {
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
