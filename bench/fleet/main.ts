// npm run bench -- --fleet: what many nodes prove, from a model with what was measured on one beside it. Nothing is measured here.
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { number } from '../report/number.ts';
import { aligned, type Grid } from '../report/table.ts';
import { fleetChart } from './chart.ts';
import { MEASURED, MEASURED_ALONE, MEASURED_ON } from './measured.ts';
import { type Fleet, ROUTINGS } from './model.ts';
import { type FleetRow, rowOf } from './row.ts';

const USAGE = `npm run bench -- --fleet [options]
  --nodes N --rate R        this fleet and this many answers a second; without them the table
  --collection MS           how long a GPU takes for a signature (700)
  --batch on|off            (off)
  --routing random|round-robin|least-queue   (random, as GPUs meet answers that take different times to generate)
  --seed N                  (26)
  --price-per-node-hour P   also the price of a million proofs; without it only node-seconds
  --chart FILE.svg          draws the table`;

const TABLE = [
  { nodes: 50, strict: [35, 57, 68, 100], batch: [35, 68, 1_000, 10_000, 25_000] },
  { nodes: 5_000, strict: [3_500, 5_700, 6_800, 10_000], batch: [3_500, 6_800, 100_000, 1_000_000] },
] as const;

interface Options {
  readonly fleet: Omit<Fleet, 'nodes'>;
  readonly nodes: number | null;
  readonly rate: number | null;
  readonly seed: number;
  readonly price: number | null;
  readonly chart: string | null;
}

/** @throws {TypeError} naming what is wrong. */
export function readFleetOptions(args: readonly string[]): Options | null {
  const text = { type: 'string' } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      fleet: { type: 'boolean' },
      nodes: text,
      rate: text,
      collection: text,
      batch: text,
      routing: text,
      seed: text,
      'price-per-node-hour': text,
      chart: text,
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) return null;
  if ((values.nodes === undefined) !== (values.rate === undefined))
    throw new TypeError('--nodes and --rate go together');
  if (values.rate !== undefined && values.chart !== undefined)
    throw new TypeError('--chart draws the table: without --rate');
  const within = (name: keyof typeof values, least: number, most: number) => {
    const given = values[name];
    if (given === undefined) return null;
    const value = Number(given);
    if (given === '' || !(value >= least && value <= most))
      throw new TypeError(`--${name} must be ${least} to ${most}`);
    return value;
  };
  const nodes = within('nodes', 1, 100_000);
  if (nodes !== null && !Number.isInteger(nodes)) throw new TypeError('--nodes must be a whole number');
  return {
    fleet: {
      collection_s: (within('collection', 1, 600_000) ?? 700) / 1e3,
      batch: oneOf('batch', values.batch ?? 'off', ['on', 'off']) === 'on',
      routing: oneOf('routing', values.routing ?? 'random', ROUTINGS),
    },
    nodes,
    rate: within('rate', 0.001, 10_000_000),
    seed: within('seed', 0, 2 ** 32 - 1) ?? 26,
    price: within('price-per-node-hour', 0, 1e9),
    chart: values.chart ?? null,
  };
}

function oneOf<T extends string>(name: string, given: string, allowed: readonly T[]): T {
  const found = allowed.find((one) => one === given);
  if (found === undefined) throw new TypeError(`--${name} must be ${allowed.join(' or ')}`);
  return found;
}

function tableOf(title: string, rows: readonly FleetRow[], price: number | null): Grid {
  const heads = ['proven/s', 'p50 s', 'p99 s', 'busy', 'a signature', 'node-s a million'];
  return {
    title,
    heads: price === null ? heads : [...heads, 'price of a million'],
    lines: rows.map((row) => ({
      name: `${number(row.nodes, 0)} nodes, ${row.batch ? 'batch ' : 'strict'} ${row.routing}, ${number(row.rate, 0)}/s`,
      cells: [
        number(row.throughput, row.throughput < 100 ? 1 : 0),
        number(row.p50_s, 2),
        number(row.p99_s, 2),
        `${number(100 * row.utilisation, 0)} %`,
        number(row.per_signature, 1),
        number(row.node_seconds_per_million, 0),
        ...(price === null ? [] : [number((row.node_seconds_per_million / 3600) * price, 2)]),
      ],
      ...(Number.isNaN(row.p50_s) ? { note: 'more than can be signed: waits grow without end' } : {}),
    })),
  };
}

/** The model of one node at the loads that were measured on one. */
function besideMeasured(seed: number): Grid {
  return {
    title: `One node, collection 700 ms: the model, and what was measured (${MEASURED_ON})`,
    heads: ['p50 s', 'measured', 'p99 s', 'measured'],
    lines: MEASURED.map(({ batch, rate, p50_s, p99_s }) => {
      const row = rowOf({ nodes: 1, collection_s: 0.7, batch, routing: 'random' }, rate, seed);
      return {
        name: `${batch ? 'batch' : 'strict'}, ${rate}/s`,
        cells: [number(row.p50_s, 2), number(p50_s, 2), number(row.p99_s, 2), number(p99_s, 2)],
      };
    }),
  };
}

export function runFleet(args: readonly string[]): void {
  let options: Options | null;
  try {
    options = readFleetOptions(args);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    console.error(`${error.message}\n${USAGE}`);
    process.exitCode = 2;
    return;
  }
  if (options === null) return console.log(USAGE);
  const { fleet, nodes, rate, seed, price, chart } = options;
  console.log(
    `A model, not a measurement: random arrivals (seed ${seed}), each GPU takes ${fleet.collection_s * 1e3} ms for every signature.`,
  );
  if (nodes !== null && rate !== null)
    return console.log(aligned(tableOf('This fleet', [rowOf({ ...fleet, nodes }, rate, seed)], price)));
  const rows = TABLE.flatMap(({ nodes: of, strict, batch }) =>
    ROUTINGS.flatMap((routing) => [
      ...strict.map((one) => rowOf({ ...fleet, batch: false, routing, nodes: of }, one, seed)),
      ...batch.map((one) => rowOf({ ...fleet, batch: true, routing, nodes: of }, one, seed)),
    ]),
  );
  console.log(aligned(tableOf('Fleets', rows, price)));
  console.log(aligned(besideMeasured(seed)));
  const { p50_s, most_per_second } = MEASURED_ALONE;
  console.log(
    `  one client alone 0.70 s, measured ${p50_s}; the most strict answers a second 1.43, measured ${most_per_second}`,
  );
  if (chart === null) return;
  writeFileSync(chart, fleetChart(rows, seed));
  console.log(`\n${chart} is written`);
}
