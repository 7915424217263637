// npm run bench: four questions, everybody side by side in interleaved rounds; medians, ratios, bars, one report.
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import type { Backend } from './backend.ts';
import { type Bench, type Plan, planOf, type Question, warm } from './bench.ts';
import type { Load } from './load.ts';
import { calls, ROOT, start, stopAll } from './processes.ts';
import { proven } from './proven.ts';
import { relay } from './relay.ts';
import { barsText, judge, machineLine, type Row, tableText } from './report.ts';
import { stream } from './stream.ts';
import { type Kind, open, type Target } from './target.ts';
import { commitOf, kinds } from './targets.ts';
import { verification } from './verification.ts';

const QUESTIONS = [relay, stream, proven, verification];
const USAGE = `npm run bench -- [options]
  --quick            shorter times, one round, no other AI gateways
  --rounds N         interleaved rounds (3; with --quick 1)
  --before FOLDER    beside it another checkout of this repository with its own node_modules: "before"
  --only A,B         only these of the questions ${QUESTIONS.map(({ name }) => name).join(', ')}
                     and of the targets ${kinds(null)
                       .map(({ name }) => name)
                       .join(', ')}; direct and pipe stay
  --profile FOLDER   writes a .cpuprofile of each gateway of ours there; figures are slower then
  --into FILE.md     where the tables go (bench/LAST-RUN.md)`;

export interface Options {
  readonly plan: Plan;
  readonly questions: readonly Question[];
  readonly kinds: readonly Kind[];
  /** By nobody's wish: said loudly. */
  readonly skipped: readonly string[];
  readonly before: string | null;
  readonly profile: string | null;
  readonly into: string;
}

/** @throws {TypeError} naming what is wrong; null: help is asked for. */
export function readOptions(args: readonly string[]): Options | null {
  const text = { type: 'string' } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
      rounds: text,
      before: text,
      only: text,
      profile: text,
      into: text,
    },
  });
  if (values.help) return null;
  const rounds = Number(values.rounds ?? (values.quick ? 1 : 3));
  if (!Number.isInteger(rounds) || rounds < 1 || rounds > 100) throw new TypeError('--rounds must be 1 to 100');
  const before = values.before === undefined ? null : resolve(values.before);
  if (before !== null && !existsSync(join(before, 'gateway/main.ts')))
    throw new TypeError(`--before ${before} is no checkout of this repository`);
  const all = kinds(before);
  const only = (values.only ?? '').split(',').filter((name) => name !== '');
  const known = [...QUESTIONS, ...all].map(({ name }) => name);
  const unknown = only.find((name) => !known.includes(name));
  if (unknown !== undefined) throw new TypeError(`${unknown} is none of ${known.join(', ')}`);
  const questions = QUESTIONS.filter(({ name }) => only.includes(name));
  const named = all.filter(({ name }) => only.includes(name));
  const wanted =
    named.length === 0 ? all : all.filter((kind) => named.includes(kind) || /^(direct|pipe)$/.test(kind.name));
  const chosen = wanted.filter((kind) => !(values.quick && kind.other) || named.includes(kind));
  return {
    plan: planOf(values.quick, rounds),
    questions: questions.length > 0 ? questions : QUESTIONS,
    kinds: chosen,
    skipped: wanted
      .filter((kind) => !chosen.includes(kind))
      .map(({ name }) => `${name}: not in a quick run, unless it is named`),
    before,
    profile: values.profile === undefined ? null : resolve(values.profile),
    into: resolve(values.into ?? join(ROOT, 'bench/LAST-RUN.md')),
  };
}

/** What is not ours may be missing; ours may not. */
async function startTargets(options: Options, bench: Bench, skipped: string[]): Promise<Target[]> {
  const targets: Target[] = [];
  for (const kind of options.kinds) {
    bench.say(`starting ${kind.name}`);
    try {
      const target = await open(kind, bench.where, bench.own);
      targets.push(target);
      await warm(bench, target);
    } catch (error) {
      if (kind.root !== undefined || kind.name === 'direct' || kind.name === 'pipe') throw error;
      skipped.push(`${kind.name}: ${(error as Error).message.trim().split('\n').at(-1)}`);
    }
  }
  return targets;
}

async function run(options: Options, folder: string): Promise<string> {
  const { plan, questions, before, profile } = options;
  const began = performance.now();
  const machine = machineLine();
  const say = (line: string) =>
    void process.stderr.write(`${((performance.now() - began) / 1e3).toFixed(0)} s  ${line}\n`);
  const children = ['bench/backend.ts', 'bench/load.ts'].map((file) =>
    start([process.execPath, file], { channel: true }),
  );
  const [backend, load] = [calls<Backend>(children[0] as never), calls<Load>(children[1] as never)];
  const where = { backendPort: await backend.port(), folder, profile };
  const own = [process.pid, ...children.map(({ pid }) => pid ?? 0)];
  const checkouts = { ours: ROOT, ...(before === null ? {} : { before }) };
  const skipped = [...options.skipped];
  const saying = (line: string) => {
    if (line.startsWith('SKIPPED ')) if (!skipped.includes(line.slice(8))) skipped.push(line.slice(8));
    say(line);
  };
  let bench: Bench = { plan, where, load, backend, own, targets: [], checkouts, say: saying };
  if (questions.some(({ name }) => ['relay', 'stream'].includes(name)))
    bench = { ...bench, targets: await startTargets(options, bench, skipped) };
  const found = new Map<string, Row[][]>();
  for (let turn = 0; turn < plan.rounds; turn++)
    for (const question of questions) {
      say(`${question.name}, round ${turn + 1} of ${plan.rounds}`);
      for (const [table, rows] of Object.entries(await question.round(bench, turn)))
        if (rows.length > 0) found.set(table, [...(found.get(table) ?? []), [...rows]]);
    }
  const tables = questions.flatMap((question) => question.tables(plan)).filter(({ name }) => found.has(name));
  const bars = questions
    .flatMap((question) => question.bars)
    .filter(({ by }) => before !== null || by?.startsWith('before') !== true)
    .flatMap((bar) =>
      tables.filter(({ name }) => name === bar.table).map((table) => judge(bar, table, found.get(bar.table) ?? [])),
    );
  const compared = before === null ? '' : ` "before" is ${commitOf(before)}.`;
  const rounds = `Medians of ${plan.rounds} interleaved round${plan.rounds === 1 ? '' : 's'}, ratios within a round`;
  return [
    `${machine}. ${rounds}. ${((performance.now() - began) / 1e3).toFixed(0)} s. "ours" is ${commitOf(ROOT)}.${compared}`,
    barsText(bars),
    ...tables.map((table) => tableText(table, found.get(table.name) ?? [])),
    options.kinds.map(({ name, about }) => `- **${name}**: ${about}`).join('\n'),
    ...skipped.map((line) => `SKIPPED ${line}`),
    '"others" is what the rest of the machine took, in percent of a core: with much of it CPU holds roughly, rates and latencies do not.\n',
  ].join('\n\n');
}

async function main(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'bench-'));
  let ending = false;
  async function end(code: number): Promise<void> {
    if (ending) return;
    ending = true;
    await stopAll();
    rmSync(folder, { recursive: true, force: true });
    process.exit(code);
  }
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => void end(130));
  try {
    const options = readOptions(process.argv.slice(2));
    if (options === null) console.log(USAGE);
    else {
      if (options.profile !== null) mkdirSync(options.profile, { recursive: true });
      const text = await run(options, folder);
      console.log(text);
      writeFileSync(options.into, text);
    }
    await end(0);
  } catch (error) {
    if (!ending) console.error(`bench: ${error instanceof TypeError ? error.message : (error as Error).stack}`);
    await end(1);
  }
}

if (import.meta.main) await main();
