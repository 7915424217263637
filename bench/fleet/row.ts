// A line of the table: one fleet at one rate, simulated until its numbers are steady.
import { percentile } from '../report/stats.ts';
import { type Fleet, MOST_IN_A_BATCH, poisson, simulate } from './model.ts';

/** Counted for so many collections, after as many until the fleet is in its steady state: queues fill slowly near the limit, batches at once. */
const WARM_UP = { strict: 300, batch: 4 };
const WATCHED = { strict: 300, batch: 8 };
const LEAST_ANSWERS = 50_000;

export interface FleetRow extends Fleet {
  readonly rate: number;
  readonly throughput: number;
  /** NaN where more comes than can be signed: then waits have no end. */
  readonly p50_s: number;
  readonly p99_s: number;
  readonly utilisation: number;
  readonly per_signature: number;
  readonly node_seconds_per_million: number;
}

export function rowOf(fleet: Fleet, rate: number, seed: number): FleetRow {
  const kind = fleet.batch ? 'batch' : 'strict';
  const from_s = WARM_UP[kind] * fleet.collection_s;
  const until_s = from_s + Math.max(WATCHED[kind] * fleet.collection_s, LEAST_ANSWERS / rate);
  const outcome = simulate(fleet, { ...poisson(rate, seed), from_s, until_s });
  const most = (fleet.nodes * (fleet.batch ? MOST_IN_A_BATCH : 1)) / fleet.collection_s;
  const wait = (share: number) => (rate < most ? percentile(outcome.waits_s, share) : Number.NaN);
  const { throughput, utilisation, per_signature } = outcome;
  return {
    ...fleet,
    rate,
    throughput,
    p50_s: wait(0.5),
    p99_s: wait(0.99),
    utilisation,
    per_signature,
    node_seconds_per_million: (fleet.nodes / throughput) * 1e6,
  };
}
