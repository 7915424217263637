// The command `countersign keys add|list|remove`. The keys file holds only the hashes of the keys that it makes.
import { parseArgs } from 'node:util';
import { keysFileOf } from '../base/config.ts';
import { KeyChangeError, readText, replaceFile, withKey, withoutKey } from './keys-edit.ts';
import { describeLine, KeyLineError, KeysFileError, parseKeys, readSettings } from './keys-file.ts';

const USAGE = `usage: countersign keys add NAME [--rps N] [--concurrent N] [--streams N] [--tee N] [--tokens-per-day N] [--held-bytes N]
                                [--models A,B] [--admin]
       countersign keys list
       countersign keys remove NAME
  --file FILE   the keys file; without it the one that API_KEYS_FILE names
--admin       the key may use the routes that manage the backend
add prints the new key once, on standard output. A running gateway takes the change up by itself.
A line in the file such as "* rps=5 streams=4" has the limits of every key that has none of its own; an editor writes it.`;

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
  const { text, key } = withKey(readText(file) ?? '', name, readSettings(settings));
  replaceFile(file, text);
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
  replaceFile(file, withoutKey(existingText(file), name));
  console.error(`${name} was removed from ${file}.`);
  return 0;
}

/** Reads a file that must exist: a mistyped path is not an empty list. */
function existingText(file: string): string {
  const text = readText(file);
  if (text === null) throw new KeysFileError('is not there');
  return text;
}

try {
  process.exitCode = main(process.argv.slice(process.argv[2] === 'keys' ? 3 : 2));
} catch (error) {
  if (error instanceof KeysFileError || error instanceof KeyChangeError) {
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
