// Measures the core rooms: files, lines, functions, imports, exports, settings, and what one streamed request with tee executes.
// `node scripts/measure.ts` prints a table. A flag adds a list: `--files` what the request passes, `--circles`, `--chain` the longest
// chain of imports, `--exports` those that only test/ and bench/ use, `--functions` the long ones, `--settings`.
import { readFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { basename, join, relative } from 'node:path';
import { dirname } from 'node:path/posix';
import { fileURLToPath } from 'node:url';
import { schema as engine } from '../demo/engine/config.ts';
import { schema as gateway } from '../gateway/base/config.ts';
import { schema as sidecar } from '../sidecar/common/config.ts';
import { chatStream } from '../test/support/backend.ts';
import { startService } from '../test/support/harness.ts';
import { SUITES } from '../vitest.config.ts';
import { readSources, type Source, usedByTestsAlone } from './sources.ts';

const ROOMS = ['proto', 'node', 'verify', 'sealed', 'sidecar', 'gateway'];
const ROOT = fileURLToPath(new URL('..', import.meta.url));

const sources = readSources(ROOT);
const roomOf = (file: string): string => file.split('/', 1)[0] ?? '';
const files = [...sources.keys()].filter((file) => ROOMS.includes(roomOf(file))).sort();
const sourceOf = (file: string): Source => sources.get(file) as Source;
const linesOf = (of: readonly string[]): number => of.reduce((sum, file) => sum + sourceOf(file).lines, 0);

type Edges = ReadonlyMap<string, readonly string[]>;
const imports: Edges = new Map(files.map((file) => [file, sourceOf(file).imports]));
const folders: Edges = new Map(
  [...Map.groupBy(files, (file) => dirname(file))].map(([folder, inside]) => {
    const to = inside.flatMap((file) => sourceOf(file).imports).map((file) => dirname(file));
    return [folder, to.filter((other) => other !== folder)];
  }),
);

function percentile(numbers: readonly number[], percent: number): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.ceil((percent / 100) * sorted.length) - 1] ?? 0;
}

/** Groups of names that lead to one another, in a circle (Tarjan). */
function circles(edges: Edges): string[][] {
  const found: string[][] = [];
  const order = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const visit = (name: string): void => {
    order.set(name, order.size);
    low.set(name, order.get(name) as number);
    stack.push(name);
    for (const next of edges.get(name) ?? []) {
      if (!edges.has(next)) continue;
      if (!order.has(next)) visit(next);
      else if (!stack.includes(next)) continue;
      low.set(name, Math.min(low.get(name) as number, low.get(next) as number));
    }
    if (low.get(name) !== order.get(name)) return;
    const group = stack.splice(stack.indexOf(name));
    if (group.length > 1) found.push(group);
  };
  for (const name of edges.keys()) if (!order.has(name)) visit(name);
  return found;
}

/** The most files that lead from one to the next by imports, where there is no circle. */
function longestChain(): readonly string[] {
  const chains = new Map<string, readonly string[]>();
  const longest = (some: (readonly string[])[]) => some.toSorted((a, b) => b.length - a.length)[0] ?? [];
  const chainFrom = (file: string): readonly string[] => {
    const known = chains.get(file);
    if (known !== undefined) return known;
    chains.set(file, []);
    const chain = [file, ...longest((imports.get(file) ?? []).filter((to) => imports.has(to)).map(chainFrom))];
    chains.set(file, chain);
    return chain;
  };
  return longest(files.map(chainFrom));
}

/** What users of the npm package import, and its command. */
function entriesOfPackage(): string[] {
  const { exports, bin } = JSON.parse(readFileSync(join(ROOT, 'packages/verify/package.json'), 'utf8'));
  const built: string[] = [...Object.values<string>(exports), ...Object.values<string>(bin)];
  return built.map((path) => path.replace(/^(?:\.\/)?dist\//, '').replace(/\.js$/, '.ts'));
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
    .filter((file) => files.includes(file));
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

const { before, all } = await passed();
const inRoom = (room: string, of: readonly string[]) => of.filter((file) => roomOf(file) === room);
const ran = inRoom('gateway', all);
const lines = files.map((file) => sourceOf(file).lines);
const long = files.flatMap((file) => sourceOf(file).longFunctions);
const settings = [...new Set([gateway, sidecar, engine].flatMap(({ shape }) => Object.keys(shape)))].sort();
const fileCircles = circles(imports);
const folderCircles = circles(folders);
const testOnly = usedByTestsAlone(sources, files, entriesOfPackage(), (file) => /^(?:test|bench)\//.test(file));
const rows: [string, string | number][] = [
  ['files', files.length],
  ...ROOMS.map((room): [string, number] => [`files of ${room}`, inRoom(room, files).length]),
  ['lines', linesOf(files)],
  ['lines of a file, median', percentile(lines, 50)],
  ['lines of a file, p90', percentile(lines, 90)],
  ['functions over 100 lines', long.length],
  ['longest chain of imports', longestChain().length],
  ['circles of files, types included', fileCircles.length],
  ['circles of folders, types included', folderCircles.length],
  ['files with the basename of another', `${Math.round((100 * sharedBasenames()) / files.length)} %`],
  ['exports that only test/ and bench/ use, or nobody', testOnly.length],
  ['settings of gateway, sidecar and demo', settings.length],
  ['suites of test:with', Object.keys(SUITES).filter((name) => name !== 'unit').length],
  ['files that a streamed request with tee executes before the backend is asked', before.length],
  ['of them in the gateway', inRoom('gateway', before).length],
  ['in all, in the gateway', ran.length],
  ['lines of those', linesOf(ran)],
  ['in all, in the sidecar', inRoom('sidecar', all).length],
];
const lists: Readonly<Record<string, readonly string[]>> = {
  '--circles': [...fileCircles, ...folderCircles].map((group) => group.join(' ')),
  '--chain': longestChain(),
  '--exports': testOnly,
  '--functions': long,
  '--settings': settings,
  '--files': [...before, '', ...all.filter((file) => !before.includes(file))],
};
for (const [name, value] of rows) console.log(`| ${name} | ${value} |`);
for (const [flag, list] of Object.entries(lists)) if (process.argv.includes(flag)) console.log(list.join('\n'));
process.exit(0);
