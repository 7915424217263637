// npm run bench: every proxy side by side in one run, in interleaved rounds; medians, ratios, one report.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { BackendCalls } from './backend/main.ts';
import { remote } from './calls.ts';
import type { Bench, Figure, Measured } from './figures/figure.ts';
import { FIGURES } from './figures/index.ts';
import type { LoadCalls } from './jobs.ts';
import { describeMachine, type Machine, machineLine } from './machine.ts';
import { type Options, readOptions, USAGE } from './options.ts';
import { pidOf, ROOT, startNode, stopAll } from './process.ts';
import { summarise } from './results.ts';
import { table } from './table.ts';
import { TARGETS } from './targets/index.ts';
import { type Target, type TargetKind, Unavailable } from './targets/target.ts';

const CALL_MS = 60_000;
/** The ratios need them, whatever was asked for. */
const YARDSTICKS = new Set(['direct', 'nginx', 'pipe']);

const folder = mkdtempSync(join(tmpdir(), 'bench-'));
const say = (line: string) => void process.stderr.write(`${line}\n`);
let ending = false;

async function end(code: number): Promise<void> {
  if (ending) return;
  ending = true;
  await stopAll();
  rmSync(folder, { recursive: true, force: true });
  process.exit(code);
}
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => void end(130));

// A reader that closes its end (| head) and whatever nobody caught end everything too.
process.stdout.on('error', () => void end(1));
process.on('uncaughtException', (error) => {
  if (!ending) console.error(error);
  void end(1);
});

try {
  const options = readOptions(process.argv.slice(2));
  if (options.help) console.log(USAGE);
  else if (options.list)
    console.log(
      `figures: ${FIGURES.map(({ name }) => name).join(', ')}\ntargets: ${TARGETS.map(({ name }) => name).join(', ')}`,
    );
  else await run(options);
  await end(0);
} catch (error) {
  if (!ending) {
    console.error(`bench: ${error instanceof TypeError ? error.message : (error as Error).stack}`);
    await end(1);
  }
}

async function run(options: Options): Promise<void> {
  const began = performance.now();
  const machine = describeMachine();
  console.log(machineLine(machine));
  if (options.install) install();
  const { kinds, figures } = chosen(options);

  const processes = {
    backend: startNode('bench/backend/main.ts', { channel: true }),
    load: startNode('bench/load/main.ts', { channel: true }),
  };
  const backend = remote<BackendCalls>(processes.backend, 'backend', CALL_MS);
  const load = remote<LoadCalls>(processes.load, 'load generator', CALL_MS);
  const own = [process.pid, pidOf(processes.backend), pidOf(processes.load)];
  const where = { backendPort: await backend.port(), folder };
  const { targets, skipped } = await startTargets(kinds, options, where, own);

  const bench: Bench = { plan: options.plan, where, load, backend, targets, kinds, say };
  const saved: Record<string, unknown> = {};
  for (const target of targets) await warm(bench, target);
  const order = kinds.map(({ name }) => name);
  for (const figure of figures) {
    const rounds = await measure(figure, bench);
    const rows = summarise({ figure, rounds }, order);
    const block = table(figure.title(bench.plan), figure.columns, rows);
    console.log(block);
    saved[figure.name] = { title: figure.title(bench.plan), columns: figure.columns, rows, rounds };
  }

  const lines = [
    '',
    ...targets.map(({ name }) => `  ${name}: ${kinds.find((kind) => kind.name === name)?.about}`),
    ...skipped.map((line) => `  SKIPPED ${line}`),
    "  A rate at which the proxy is far from 100 % busy is the generator's, the backend's or the machine's: compare CPU there.",
    `  Medians of ${options.plan.rounds} interleaved round(s); ratios are medians of the ratios within a round. ${((performance.now() - began) / 1e3).toFixed(0)} s.`,
  ];
  console.log(lines.join('\n'));
  save(options, { machine, plan: options.plan, skipped, figures: saved });
}

/** A name may be a figure's or a target's; naming none of a sort means all of it. */
function chosen({ only, flags }: Options): { kinds: TargetKind[]; figures: Figure[] } {
  const names = new Set(only.flatMap((given) => matching(given)));
  const figures = FIGURES.filter(({ name }) => names.has(name));
  const named = TARGETS.filter(({ name }) => names.has(name));
  const kinds = TARGETS.filter((kind) => {
    if (named.length > 0) return YARDSTICKS.has(kind.name) || named.includes(kind);
    return kind.flag === undefined || flags.has(kind.flag);
  });
  return { kinds, figures: figures.length > 0 ? figures : [...FIGURES] };
}

/** The name itself, hyphens and spaces alike; or else all that begin with it: `whole` is whole-1k and whole-16k. */
function matching(given: string): string[] {
  const plain = (name: string) => name.replaceAll(' ', '-');
  const names = [...FIGURES, ...TARGETS].map(({ name }) => name);
  const exact = names.filter((name) => plain(name) === plain(given));
  const found = exact.length > 0 ? exact : names.filter((name) => plain(name).startsWith(plain(given)));
  if (found.length === 0) throw new TypeError(`--only ${given}: not known. ${names.join(', ')}`);
  return found;
}

async function startTargets(
  kinds: readonly TargetKind[],
  { flags }: Options,
  where: Bench['where'],
  own: readonly number[],
) {
  const targets: Target[] = [];
  const skipped = TARGETS.filter(
    (kind) => kind.flag !== undefined && !flags.has(kind.flag) && !kinds.includes(kind),
  ).map(({ name, flag }) => `${name}: only with --${flag}`);
  for (const kind of kinds) {
    try {
      const target = await kind.start(where);
      targets.push({ ...target, watch: { ...target.watch, bench: own } });
      say(`started ${kind.name}${target.streams === null ? '' : `; STREAMS NOT MEASURED: ${target.streams}`}`);
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error;
      skipped.push(`${kind.name}: ${error.message}`);
    }
  }
  for (const line of skipped) say(`SKIPPED ${line}`);
  return { targets, skipped };
}

/** One pass that nobody counts. */
async function warm({ load, plan, say: tell }: Bench, { name, aim, watch, streams }: Target): Promise<void> {
  tell(`warming ${name}`);
  const job = { aim, watch, concurrency: 16, warm_ms: 0, duration_ms: plan.first_warm_ms };
  await load.closed({ ...job, scene: { kind: 'whole', bytes: 1024 } });
  if (streams === null) await load.closed({ ...job, scene: { kind: 'burst', chunks: 50 } });
}

async function measure(figure: Figure, bench: Bench): Promise<Measured[][]> {
  const rounds: Measured[][] = [];
  const count = figure.once ? 1 : bench.plan.rounds;
  for (let turn = 0; turn < count; turn++) {
    bench.say(`${figure.name}: round ${turn + 1} of ${count}`);
    rounds.push(await figure.round(bench, turn));
  }
  return rounds;
}

function install(): void {
  say('apt-get install nginx-light haproxy');
  const { status } = spawnSync('apt-get', ['install', '-y', '--no-install-recommends', 'nginx-light', 'haproxy'], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  if (status !== 0) say('INSTALL FAILED: nginx and HAProxy may be missing below');
}

function save({ json }: Options, result: { machine: Machine; [more: string]: unknown }): void {
  const file = json ?? join(ROOT, 'bench/results', `${result.machine.date.replaceAll(':', '')}.json`);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, `${JSON.stringify(result, null, 2)}\n`);
  say(`saved ${file}`);
}
