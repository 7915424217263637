// The command line of the bench.
import { parseArgs } from 'node:util';
import { FULL, type Plan, QUICK } from './plan.ts';

export const USAGE = `npm run bench -- [options]
  --quick            about 90 seconds on an idle machine; one round, shorter times, no other AI gateways
  --only A,B         only these figures and targets (see --list; a beginning will do); direct, nginx and pipe stay as
                     yardsticks. One figure in about 20 s: --quick --rounds 3 --only whole-1k,ours,ours-tee
  --without A,B      not these figures and targets
  --rounds N         interleaved rounds (default 3)
  --streams N        paced streams (default 200); --chunks N: chunks a second of each (default 100)
  --idle N           open silent streams for memory (default 3000)
  --install          apt-get install nginx-light haproxy first
  --json FILE        where the result is saved (default bench/results/DATE.json)
  --list             names of figures and targets
Portkey (npm) and LiteLLM (PyPI) are installed into .cache/bench by the first run that needs them: it takes longer.

npm run bench -- --sidecar            instead: what nvtrust and native add to a GPU's own time, 200 requests at once;
                                      under 5 minutes
npm run bench -- --attested           instead: proven answers a second from one GPU, strict and in batches, at collections of
                                      0, 50, 200 and 700 ms, and from four GPUs, and latency over load; about 9 minutes.
                                      --chart FILE.svg draws that
npm run bench -- --chart FILE.svg     draws the newest saved result, or the one that --from FILE.json names
npm run bench -- --fleet              a model of many nodes, with what was measured on one beside it; --fleet --help
npm run bench -- --markdown FILE.md   writes it as tables

  BENCH_PROFILE=DIR  writes CPU profiles of our processes there (figures are slower then)`;

export interface Options {
  readonly plan: Plan;
  readonly quick: boolean;
  readonly only: readonly string[];
  readonly without: readonly string[];
  readonly install: boolean;
  readonly json: string | null;
  readonly chart: string | null;
  readonly markdown: string | null;
  readonly from: string | null;
  readonly sidecar: boolean;
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
      rounds: { type: 'string' },
      streams: { type: 'string' },
      chunks: { type: 'string' },
      idle: { type: 'string' },
      install: { type: 'boolean', default: false },
      json: { type: 'string' },
      chart: { type: 'string' },
      markdown: { type: 'string' },
      from: { type: 'string' },
      sidecar: { type: 'boolean', default: false },
      attested: { type: 'boolean', default: false },
      list: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  const base = values.quick ? QUICK : FULL;
  return {
    plan: {
      ...base,
      rounds: integer('rounds', values.rounds, base.rounds, 100),
      paced_streams: integer('streams', values.streams, base.paced_streams, 5_000),
      paced_rate: integer('chunks', values.chunks, base.paced_rate, 1_000),
      idle_streams: integer('idle', values.idle, base.idle_streams, 8_000),
    },
    quick: values.quick,
    only: split(values.only),
    without: split(values.without),
    install: values.install,
    json: values.json ?? null,
    chart: values.chart ?? null,
    markdown: values.markdown ?? null,
    from: values.from ?? null,
    sidecar: values.sidecar,
    attested: values.attested,
    list: values.list,
    help: values.help,
  };
}

function split(lists: readonly string[]): string[] {
  return lists.flatMap((names) => names.split(',').map((name) => name.trim())).filter((name) => name !== '');
}

function integer(name: string, given: string | undefined, fallback: number, max: number): number {
  if (given === undefined) return fallback;
  const value = Number(given);
  if (!Number.isInteger(value) || value < 1 || value > max) throw new TypeError(`--${name} must be 1 to ${max}`);
  return value;
}
