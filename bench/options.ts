// The command line of the bench.
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { FULL, type Plan, QUICK } from './plan.ts';

export const USAGE = `npm run bench -- [options]
  --quick            about two minutes; one round, shorter times, no other AI gateways
  --before FOLDER    beside it another checkout of this repository, with its own node_modules: "before", what it was
  --only A,B         only these figures and targets (see --list; a beginning will do); direct, nginx and pipe stay as
                     yardsticks. One figure in about 20 s: --quick --rounds 3 --only whole-1k,ours
  --without A,B      not these figures and targets
  --rounds N         interleaved rounds (default 3)
  --install          apt-get install nginx-light haproxy first
  --json FILE        where the result is saved (default bench/results/DATE.json)
  --list             names of figures and targets
Portkey (npm) and LiteLLM (PyPI) are installed into .cache/bench by the first run that needs them: it takes longer.

npm run bench -- --attested           instead: proven answers a second from one GPU, strict and in batches, at collections of
                                      0, 50, 200 and 700 ms, and from four GPUs, and latency over load; about 9 minutes.
                                      --chart FILE.svg draws that
npm run bench -- --chart FILE.svg     draws the newest saved result, or the one that --from FILE.json names
npm run bench -- --markdown FILE.md   writes it as tables
npm run bench -- --fleet              a model of many nodes, with what was measured on one beside it; --fleet --help
npm run bench verify                  instead: what a verification costs

  BENCH_PROFILE=DIR  writes CPU profiles of our processes there (figures are slower then)`;

export interface Options {
  readonly plan: Plan;
  readonly quick: boolean;
  readonly only: readonly string[];
  readonly without: readonly string[];
  /** Another checkout; null: none is measured. */
  readonly before: string | null;
  readonly install: boolean;
  readonly json: string | null;
  readonly chart: string | null;
  readonly markdown: string | null;
  readonly from: string | null;
  readonly attested: boolean;
  readonly list: boolean;
  readonly help: boolean;
}

/** @throws {TypeError} naming what is wrong. */
export function readOptions(args: readonly string[]): Options {
  const names = { type: 'string', multiple: true, default: [] as string[] } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean', default: false },
      only: names,
      without: names,
      before: { type: 'string' },
      rounds: { type: 'string' },
      install: { type: 'boolean', default: false },
      json: { type: 'string' },
      chart: { type: 'string' },
      markdown: { type: 'string' },
      from: { type: 'string' },
      attested: { type: 'boolean', default: false },
      list: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  const base = values.quick ? QUICK : FULL;
  return {
    plan: { ...base, rounds: roundsOf(values.rounds, base.rounds) },
    quick: values.quick,
    only: split(values.only),
    without: split(values.without),
    before: checkoutIn(values.before),
    install: values.install,
    json: values.json ?? null,
    chart: values.chart ?? null,
    markdown: values.markdown ?? null,
    from: values.from ?? null,
    attested: values.attested,
    list: values.list,
    help: values.help,
  };
}

function split(lists: readonly string[]): string[] {
  return lists.flatMap((names) => names.split(',').map((name) => name.trim())).filter((name) => name !== '');
}

function checkoutIn(folder: string | undefined): string | null {
  if (folder === undefined) return null;
  if (!existsSync(join(folder, 'gateway/main.ts')))
    throw new TypeError(`--before ${folder} is no checkout of this repository`);
  return resolve(folder);
}

function roundsOf(given: string | undefined, fallback: number): number {
  const value = Number(given ?? fallback);
  if (!Number.isInteger(value) || value < 1 || value > 100) throw new TypeError('--rounds must be 1 to 100');
  return value;
}
