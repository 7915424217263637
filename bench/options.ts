// The command line of the bench.
import { parseArgs } from 'node:util';
import { FULL, type Plan, QUICK } from './plan.ts';

export const USAGE = `npm run bench -- [options]
  --quick          under 90 seconds; one round, shorter times
  --only A,B       only these figures and targets (see --list; a beginning will do); direct, nginx and pipe stay as
                   yardsticks. One figure in about 20 s: --quick --rounds 3 --only whole-1k,ours,ours-tee
  --rounds N       interleaved rounds (default 3)
  --streams N      paced streams (default 200); --chunks N: chunks a second of each (default 50)
  --idle N         open silent streams for memory (default 3000)
  --install        apt-get install nginx-light haproxy first, where they are missing
  --portkey        also measure @portkey-ai/gateway, installed from npm into .cache/bench
  --litellm        also measure litellm, installed from PyPI into .cache/bench
  --json FILE      where the result is saved (default bench/results/DATE.json)
  --list           names of figures and targets
  BENCH_PROFILE=DIR  writes CPU profiles of our processes there (figures are slower then)`;

export interface Options {
  readonly plan: Plan;
  readonly only: readonly string[];
  readonly install: boolean;
  readonly flags: ReadonlySet<string>;
  readonly json: string | null;
  readonly list: boolean;
  readonly help: boolean;
}

/** @throws {TypeError} naming what is wrong. */
export function readOptions(args: readonly string[]): Options {
  const { values } = parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean', default: false },
      only: { type: 'string', multiple: true, default: [] },
      rounds: { type: 'string' },
      streams: { type: 'string' },
      chunks: { type: 'string' },
      idle: { type: 'string' },
      install: { type: 'boolean', default: false },
      portkey: { type: 'boolean', default: false },
      litellm: { type: 'boolean', default: false },
      json: { type: 'string' },
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
    only: values.only.flatMap((names) => names.split(',').map((name) => name.trim())),
    install: values.install,
    flags: new Set([...(values.portkey ? ['portkey'] : []), ...(values.litellm ? ['litellm'] : [])]),
    json: values.json ?? null,
    list: values.list,
    help: values.help,
  };
}

function integer(name: string, given: string | undefined, fallback: number, max: number): number {
  if (given === undefined) return fallback;
  const value = Number(given);
  if (!Number.isInteger(value) || value < 1 || value > max) throw new TypeError(`--${name} must be 1 to ${max}`);
  return value;
}
