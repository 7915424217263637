// The command `countersign audit check FILE…`: follows the chain of an audit log's lines and says where it is broken.
import { createReadStream, existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { lineHash, NO_LINE, rotatedFiles } from './audit-log.ts';

const USAGE = `usage: countersign audit check FILE [FILE…] [--head HASH]
  FILE          an audit log; with one, the rotated files beside it (FILE.000000000001) come first
  --head HASH   a hash that an earlier check printed: the log must still hold that line, so that a cut end shows too
Exit codes: 0 unbroken, 1 broken, 2 usage.`;

/** Where and how the chain is broken. The message quotes no line. */
class Broken extends Error {}

interface Chain {
  readonly first: number;
  readonly last: number;
  readonly head: string;
  readonly lost: number;
  readonly hasHead: boolean;
}

/** @throws {Broken} */
async function follow(files: readonly string[], wanted: string | undefined): Promise<Chain> {
  let first = 0;
  let last = 0;
  let lost = 0;
  let head = NO_LINE;
  let hasHead = wanted === undefined;
  for (const file of files) {
    let number = 0;
    for await (const line of createInterface({ input: createReadStream(file, 'utf8'), crlfDelay: Infinity })) {
      const place = `${file}, line ${++number}`;
      const { seq, prev, missing } = readLine(line, place);
      if (last === 0) {
        first = seq;
        if (seq === 1 && prev !== NO_LINE) throw new Broken(`${place}: the first line names a line before it`);
      } else if (seq > last + 1) throw new Broken(`${place}: ${seq - last - 1} lines before it are missing`);
      else if (seq <= last) throw new Broken(`${place}: number ${seq} comes after number ${last}`);
      else if (prev !== head) throw new Broken(`${place}: the line before it was changed, or another stood there`);
      last = seq;
      lost += missing;
      head = lineHash(line);
      hasHead ||= head === wanted;
    }
  }
  if (last === 0) throw new Broken('there is no line');
  return { first, last, head, lost, hasHead };
}

function readLine(line: string, place: string): { seq: number; prev: string; missing: number } {
  try {
    const { seq, prev, lost = 0 } = JSON.parse(line) as { seq: unknown; prev: unknown; lost?: unknown };
    if (Number.isSafeInteger(seq) && (seq as number) > 0 && /^[0-9a-f]{64}$/.test(String(prev)))
      return { seq: seq as number, prev: String(prev), missing: Number(lost) };
  } catch {}
  throw new Broken(`${place}: no line of an audit log`);
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
  const head = values.head?.toLowerCase();
  if (command !== 'check' || given.length === 0 || (head !== undefined && !/^[0-9a-f]{64}$/.test(head))) {
    console.error(USAGE);
    return 2;
  }
  const absent = given.find((file) => !existsSync(file));
  if (absent !== undefined) {
    console.error(`countersign audit: ${absent} is not there`);
    return 2;
  }
  const files = given.length === 1 ? [...rotatedFiles(given[0] as string), ...given] : given;
  try {
    const chain = await follow(files, head);
    if (!chain.hasHead) throw new Broken(`no line has the hash ${head}: lines at the end are missing, or were changed`);
    const from = chain.first === 1 ? '' : ` The lines before ${chain.first} are in none of these files.`;
    const lost = chain.lost === 0 ? '' : ` ${chain.lost} requests are in none of them: the disk took nothing then.`;
    console.log(
      `UNBROKEN: lines ${chain.first} to ${chain.last} in ${files.length} file${files.length === 1 ? '' : 's'}.${from}${lost}`,
    );
    console.log(`head ${chain.head}`);
    return 0;
  } catch (error) {
    if (!(error instanceof Broken)) throw error;
    console.log(`BROKEN: ${error.message}`);
    return 1;
  }
}

try {
  process.exitCode = await main(process.argv.slice(process.argv[2] === 'audit' ? 3 : 2));
} catch (error) {
  if (!(error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS')) throw error;
  console.error(`countersign audit: ${(error as Error).message}\n${USAGE}`);
  process.exitCode = 2;
}
