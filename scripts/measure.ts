// Measures the four core rooms: how many files and lines, how deep imports go, and how many files one streamed request with tee passes.
// `node scripts/measure.ts` prints a table; `--files` names the files that the request passes, `--circles` those in circles, `--chain` the longest chain.
import { globSync, readFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { basename, join, relative } from 'node:path';
import { dirname } from 'node:path/posix';
import { fileURLToPath } from 'node:url';
import { chatStream } from '../test/support/backend.ts';
import { startService } from '../test/support/harness.ts';

const ROOMS = ['proto', 'node', 'verify', 'sealed', 'sidecar', 'gateway'];
const ROOT = fileURLToPath(new URL('..', import.meta.url));

const files = globSync(
  ROOMS.map((room) => `${room}/**/*.ts`),
  { cwd: ROOT },
).sort();
const texts = new Map(files.map((file) => [file, readFileSync(join(ROOT, file), 'utf8')]));
const IMPORT = /^(?:import|export)\s[^;'"]*?from\s+'(?<to>\.[^']+)'/gm;
/** Type-only imports included. */
const imports = new Map(
  files.map((file) => [
    file,
    [...(texts.get(file) as string).matchAll(IMPORT)].map(({ groups }) => join(dirname(file), groups?.to as string)),
  ]),
);

const lineCount = (file: string): number => (texts.get(file) as string).split('\n').length - 1;

function percentile(numbers: readonly number[], percent: number): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.ceil((percent / 100) * sorted.length) - 1] ?? 0;
}

/** Groups of files that import one another, in a circle (Tarjan). */
function circles(): string[][] {
  const found: string[][] = [];
  const order = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const visit = (file: string): void => {
    order.set(file, order.size);
    low.set(file, order.get(file) as number);
    stack.push(file);
    for (const next of imports.get(file) ?? []) {
      if (!imports.has(next)) continue;
      if (!order.has(next)) visit(next);
      else if (!stack.includes(next)) continue;
      low.set(file, Math.min(low.get(file) as number, low.get(next) as number));
    }
    if (low.get(file) !== order.get(file)) return;
    const group = stack.splice(stack.indexOf(file));
    if (group.length > 1) found.push(group);
  };
  for (const file of files) if (!order.has(file)) visit(file);
  return found;
}

/** The most files that lead from one to the next by imports, no file twice; circles count each of their files once. */
function longestChain(): readonly string[] {
  const inCircle = new Map(circles().flatMap((group) => group.map((file) => [file, group] as const)));
  const chains = new Map<readonly string[], readonly string[]>();
  const groupOf = (file: string): readonly string[] => inCircle.get(file) ?? alone.get(file) ?? [];
  const alone = new Map(files.map((file) => [file, [file]]));
  const longest = (chains: (readonly string[])[]) => chains.toSorted((a, b) => b.length - a.length)[0] ?? [];
  const chainFrom = (group: readonly string[]): readonly string[] => {
    const known = chains.get(group);
    if (known !== undefined) return known;
    const next = group.flatMap((file) => imports.get(file) ?? []).filter((to) => imports.has(to));
    const below = next.map(groupOf).filter((other) => other !== group);
    const chain = [...group, ...longest(below.map(chainFrom))];
    chains.set(group, chain);
    return chain;
  };
  return longest(files.map((file) => chainFrom(groupOf(file))));
}

function sharedBasenames(): number {
  const counts = Map.groupBy(files, (file) => basename(file));
  return files.filter((file) => (counts.get(basename(file)) as string[]).length > 1).length;
}

/** Files of which a function ran since the last question. */
async function filesRun(session: Session): Promise<string[]> {
  const { result } = await session.post('Profiler.takePreciseCoverage');
  const ran = result.filter(({ functions }) => functions.some(({ ranges }) => (ranges[0]?.count ?? 0) > 0));
  return ran
    .filter(({ url }) => url.startsWith('file:'))
    .map(({ url }) => relative(ROOT, fileURLToPath(url)))
    .filter((file) => texts.has(file));
}

/** One streamed request with tee, through a gateway and a sidecar in this process that have served one before. */
async function passed(): Promise<{ before: string[]; all: string[] }> {
  const service = await startService();
  const script = chatStream(['Hello', ', ', 'you', '!']);
  service.backend.script = script;
  const body = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 'Hello' }], stream: true, tee: true });
  const ask = async () => {
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${service.gateway.url}/v1/chat/completions`, { method: 'POST', headers, body });
    const text = await response.text();
    if (!text.startsWith('data: ') || !text.includes('"attestation"'))
      throw new Error('it is no stream with an attestation');
  };
  const session = new Session();
  session.connect();
  try {
    await ask();
    await session.post('Profiler.enable');
    await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
    await filesRun(session);
    let before: string[] = [];
    service.backend.script = async (request, response) => {
      before = await filesRun(session);
      await script(request, response);
    };
    await ask();
    const after = await filesRun(session);
    return { before, all: [...new Set([...before, ...after])] };
  } finally {
    session.disconnect();
    await service.close();
  }
}

const lines = files.map(lineCount);
const { before, all } = await passed();
const inRoom = (room: string, of: readonly string[]) => of.filter((file) => file.startsWith(`${room}/`)).length;
const rows: [string, string | number][] = [
  ['files', files.length],
  ...ROOMS.map((room): [string, number] => [`files of ${room}`, inRoom(room, files)]),
  ['lines', lines.reduce((sum, one) => sum + one, 0)],
  ['lines of a file, median', percentile(lines, 50)],
  ['lines of a file, p90', percentile(lines, 90)],
  ['longest chain of imports', longestChain().length],
  ['circles of imports, types included', circles().length],
  ['files with the basename of another', `${Math.round((100 * sharedBasenames()) / files.length)} %`],
  ['a streamed request with tee passes, before the backend is asked', before.length],
  ['of them in the gateway', inRoom('gateway', before)],
  ['in all, in the gateway', inRoom('gateway', all)],
  ['in all, in the sidecar', inRoom('sidecar', all)],
];
for (const [name, value] of rows) console.log(`| ${name} | ${value} |`);
if (process.argv.includes('--circles')) for (const group of circles()) console.log(group.join(' '));
if (process.argv.includes('--chain')) console.log(longestChain().join('\n'));
if (process.argv.includes('--files'))
  console.log([...before, '', ...all.filter((file) => !before.includes(file))].join('\n'));
process.exit(0);
