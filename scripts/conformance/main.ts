// `npm run conformance -- [--only PREFIX] [--json] [--timeout SECONDS] -- PROGRAM [ARGS…]`: somebody's verifier over vectors/.
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { agrees, compare, count, type Row } from './compare.ts';
import { readManifest } from './manifest.ts';
import { NoProgram } from './program.ts';

const USAGE = `usage: npm run conformance -- [--only PREFIX] [--json] [--timeout SECONDS] -- PROGRAM [ARGS…]
PROGRAM is called with ARGS and the path of one case, for each case whose name begins with PREFIX (vectors/README.md).
It ends with 0 where the program agrees on every case that it supports, with 1 where it does not, with 2 when called wrongly.`;
const FOLDER = fileURLToPath(new URL('../../vectors/', import.meta.url));
const TIMEOUT_S = 60;
const MAX_TIMEOUT_S = 3600;
const MAX_OUTPUT_BYTES = 64 * 1024;

interface Arguments {
  readonly only: string;
  readonly json: boolean;
  readonly timeout_s: number;
  readonly program: readonly string[];
}

const args = readArguments(process.argv.slice(2));
if (typeof args === 'string') {
  console.error(`conformance: ${args}\n${USAGE}`);
  process.exit(2);
}
const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
try {
  process.exitCode = await run(args);
} catch (error) {
  if (!(error instanceof NoProgram || error instanceof TypeError)) throw error;
  console.error(`conformance: ${error.message}`);
  process.exitCode = 2;
}

function readArguments(argv: readonly string[]): Arguments | string {
  const end = argv.indexOf('--');
  if (end < 0) return 'there is no `--` before the program';
  const program = argv.slice(end + 1);
  if (program.length === 0) return 'no program is named';
  try {
    const { values } = parseArgs({
      args: argv.slice(0, end),
      options: { only: { type: 'string' }, json: { type: 'boolean' }, timeout: { type: 'string' } },
    });
    const { only = '', json = false, timeout = String(TIMEOUT_S) } = values;
    const timeout_s = /^\d{1,4}$/.test(timeout) ? Number(timeout) : 0;
    if (timeout_s < 1 || timeout_s > MAX_TIMEOUT_S) return `--timeout takes 1 to ${MAX_TIMEOUT_S} seconds`;
    return { only, json, timeout_s, program };
  } catch (error) {
    return (error as Error).message;
  }
}

async function run({ only, json, timeout_s, program }: Arguments): Promise<number> {
  const cases = readManifest(FOLDER).cases.filter(({ file }) => file.startsWith(`cases/${only}`));
  if (cases.length === 0) throw new TypeError(`no case begins with ${only}`);
  const limits = { timeout_ms: timeout_s * 1000, max_output_bytes: MAX_OUTPUT_BYTES };
  const rows = await compare(program, FOLDER, cases, limits, stop.signal);
  console.log(json ? JSON.stringify({ program, counts: count(rows), cases: rows }, null, 2) : report(rows));
  return agrees(rows) ? 0 : 1;
}

function report(rows: readonly Row[]): string {
  const header = { name: 'case', expected: 'expected', said: 'the program says', outcome: '' };
  const differing = rows.filter(({ outcome }) => !['right', 'unsupported', 'not_asked'].includes(outcome));
  const table = differing.length === 0 ? [] : [header, ...differing];
  const width = (member: 'name' | 'expected' | 'said') => Math.max(...table.map((row) => row[member].length));
  const columns = (['name', 'expected', 'said'] as const).map((member) => [member, width(member)] as const);
  const lines = table.map((row) =>
    [...columns.map(([member, characters]) => row[member].padEnd(characters)), row.outcome].join('  ').trimEnd(),
  );
  const { right, accepted, refused, another, broken, unsupported, not_asked } = count(rows);
  const differ = accepted + refused + another + broken;
  const how = `${accepted} accepted what must be refused, ${refused} refused what is valid, ${another} gave another code, ${broken} gave no verdict`;
  const counts = `${rows.length} cases: ${right} right, ${differ} differ${differ === 0 ? '' : ` (${how})`}, ${unsupported} not supported`;
  const notAsked = `${not_asked} not asked: the run was stopped, or too many cases were not done in time`;
  return [
    ...lines,
    ...(lines.length === 0 ? [] : ['']),
    not_asked === 0 ? counts : `${counts}, ${notAsked}`,
    ...(right === 0 ? ['The program was right on no case: that is no agreement.'] : []),
  ].join('\n');
}
