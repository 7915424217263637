// The command `countersign audit-log check FILE…`: checks the hash chain of an audit log's lines and says where it is broken.
import { closeSync, createReadStream, existsSync, fstatSync, openSync, readSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { lineHash, NO_LINE, rotatedFiles } from './audit-log.ts';

const USAGE = `usage: countersign audit-log check FILE [FILE…] [--head N:HASH]
  FILE          an audit log; with one, the rotated files beside it (FILE.000000000001) come first
  --head N:HASH what an earlier check printed as the head: the log must still hold that line, so that a cut end shows too
Exit codes: 0 unbroken, 1 broken, 2 usage.`;

/** Where and how the chain is broken. The message quotes no line. */
class BrokenChain extends Error {}

interface Chain {
  readonly first: number;
  readonly last: number;
  readonly head: string;
  readonly lost: number;
  /** The hash of the wanted line; null: it is missing. */
  readonly found: string | null;
  /** The last line is incomplete: a crash or a full disk cut it off. */
  readonly cut: boolean;
}

/** @throws {BrokenChain} */
async function checkChain(files: readonly Opened[], wanted: number | null): Promise<Chain> {
  let first = 0;
  let last = 0;
  let lost = 0;
  let head = NO_LINE;
  let found: string | null = null;
  for (const [i, { name, fd, cut }] of files.entries()) {
    let number = 0;
    let previous: string | null = null;
    const take = (line: string) => {
      const place = `${name}, line ${++number}`;
      const { seq, prev, missing } = readLine(line, place);
      if (last === 0) {
        first = seq;
        if (seq === 1 && prev !== NO_LINE) throw new BrokenChain(`${place}: the first line names a line before it`);
      } else if (seq > last + 1) throw new BrokenChain(`${place}: ${seq - last - 1} lines before it are missing`);
      else if (seq <= last) throw new BrokenChain(`${place}: number ${seq} comes after number ${last}`);
      else if (prev !== head) throw new BrokenChain(`${place}: the line before it was changed, or another stood there`);
      last = seq;
      lost += missing;
      head = lineHash(line);
      if (seq === wanted) found = head;
    };
    for await (const line of createInterface({
      input: createReadStream(name, { fd, encoding: 'utf8' }),
      crlfDelay: Infinity,
    })) {
      if (previous !== null) take(previous);
      previous = line;
    }
    // Only the last line of all can be cut off, and it does not count.
    if (previous !== null && !(cut && i === files.length - 1)) take(previous);
  }
  if (last === 0) throw new BrokenChain('there is no line');
  return { first, last, head, lost, found, cut: files.at(-1)?.cut === true };
}

interface Opened {
  readonly name: string;
  readonly fd: number;
  /** The file does not end in a line feed. */
  readonly cut: boolean;
}

/** The log's files, the oldest first: the given ones, or one given file after its rotated ones. */
const filesOf = (given: readonly string[]): string[] => {
  const [file = ''] = given;
  return given.length > 1 ? [...given] : [...rotatedFiles(file), ...(existsSync(file) ? [file] : [])];
};

/** Opens all files before one is read. If a gateway rotates them meanwhile, they are listed again. */
function openAll(given: readonly string[]): Opened[] {
  for (;;) {
    const names = filesOf(given);
    const opened: Opened[] = [];
    try {
      for (const name of names) opened.push(openOne(name));
      if (filesOf(given).join('\n') === names.join('\n')) return opened;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || given.length > 1) throw error;
    }
    for (const { fd } of opened) closeSync(fd);
  }
}

function openOne(name: string): Opened {
  const fd = openSync(name, 'r');
  const { size } = fstatSync(fd);
  const last = Buffer.alloc(1);
  const read = size === 0 ? 0 : readSync(fd, last, 0, 1, size - 1);
  return { name, fd, cut: read === 1 && last[0] !== 0x0a };
}

function readLine(line: string, place: string): { seq: number; prev: string; missing: number } {
  try {
    const { seq, prev, lost = 0 } = JSON.parse(line) as { seq: unknown; prev: unknown; lost?: unknown };
    if (Number.isSafeInteger(seq) && (seq as number) > 0 && /^[0-9a-f]{64}$/.test(String(prev)))
      return { seq: seq as number, prev: String(prev), missing: Number(lost) };
  } catch {}
  throw new BrokenChain(`${place}: no line of an audit log`);
}

async function main(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args,
    options: { head: { type: 'string' }, help: { type: 'boolean', short: 'h' } },
    allowPositionals: true,
  });
  const [command, ...given] = positionals;
  if (values.help === true) {
    console.log(USAGE);
    return 0;
  }
  const [, wanted, hash] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(values.head?.toLowerCase() ?? '') ?? [];
  if (command !== 'check' || given.length === 0 || (values.head !== undefined && hash === undefined)) {
    console.error(USAGE);
    return 2;
  }
  const absent = given.find((file) => !existsSync(file) && (given.length > 1 || filesOf(given).length === 0));
  if (absent !== undefined) {
    console.error(`countersign audit-log: ${absent} is not there`);
    return 2;
  }
  try {
    const files = openAll(given);
    const chain = await checkChain(files, wanted === undefined ? null : Number(wanted));
    if (wanted !== undefined) checkHead(chain, Number(wanted), hash as string);
    const notes = [
      ...(chain.first === 1 ? [] : [`The lines before ${chain.first} are in none of these files.`]),
      ...(chain.lost === 0 ? [] : [`${chain.lost} requests are in none of them: the disk took nothing then.`]),
      ...(chain.cut ? ['The last line is cut off, and does not count.'] : []),
    ];
    const count = `${files.length} file${files.length === 1 ? '' : 's'}`;
    console.log([`UNBROKEN: lines ${chain.first} to ${chain.last} in ${count}.`, ...notes].join(' '));
    console.log(`head ${chain.last}:${chain.head}`);
    return 0;
  } catch (error) {
    if (!(error instanceof BrokenChain)) throw error;
    console.log(`BROKEN: ${error.message}`);
    return 1;
  }
}

/** @throws {BrokenChain} */
function checkHead({ first, last, found }: Chain, wanted: number, hash: string): void {
  if (wanted > last) throw new BrokenChain(`line ${wanted} is missing: the log ends with line ${last}`);
  if (wanted < first) throw new BrokenChain(`line ${wanted} is in none of these files, which begin with line ${first}`);
  if (found !== hash) throw new BrokenChain(`line ${wanted}, or one before it, was changed`);
}

try {
  process.exitCode = await main(process.argv.slice(process.argv[2] === 'audit-log' ? 3 : 2));
} catch (error) {
  if (!(error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS')) throw error;
  console.error(`countersign audit-log: ${(error as Error).message}\n${USAGE}`);
  process.exitCode = 2;
}
