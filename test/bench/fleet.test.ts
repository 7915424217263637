import { describe, expect, it } from 'vitest';
import { type Fleet, MOST_IN_A_BATCH, type Outcome, poisson, simulate } from '../../bench/fleet/model.ts';

const SEED = 26;
const C = 0.7;
const ONE: Fleet = { nodes: 1, collection_s: C, batch: false, routing: 'round-robin' };

const following = (gaps: number[]) => ({ next_s: () => gaps.shift() ?? Number.POSITIVE_INFINITY, random: () => 0.5 });

/** Answers at these times, and no later ones. */
function at(fleet: Fleet, ...times_s: number[]): Outcome {
  const gaps = times_s.map((time, i) => time - (times_s[i - 1] ?? 0));
  return simulate(fleet, { ...following(gaps), from_s: 0, until_s: 1_000 });
}
const rounded = (numbers: readonly number[]) => numbers.map((one) => Math.round(one * 1e6) / 1e6);

describe('the model of a fleet', () => {
  const two: Fleet = { ...ONE, nodes: 2, collection_s: 1 };

  it('gives each strict answer a signature of its own, one after the other', () => {
    const { waits_s, per_signature, mean_s } = at({ ...two, nodes: 1 }, 0.1, 0.2, 0.3, 5);
    expect(rounded(waits_s)).toEqual([1, 1.9, 2.8, 1]);
    expect([per_signature, rounded([mean_s])]).toEqual([1, [1.675]]);
  });

  it('lets all that wait share the next signature in batches', () => {
    const { waits_s, per_signature } = at({ ...two, nodes: 1, batch: true }, 0.1, 0.2, 0.3, 5);
    expect(rounded(waits_s)).toEqual([1, 1.9, 1.8, 1]);
    expect(per_signature).toBeCloseTo(4 / 3);
  });

  it('puts no more into a batch than the sidecar does', () => {
    const times = [0.5, ...Array.from({ length: MOST_IN_A_BATCH + 1 }, () => 0.6)];
    const { waits_s, per_signature } = at({ ...two, nodes: 1, batch: true }, ...times);
    expect(rounded([waits_s[1] ?? 0, waits_s.at(-2) ?? 0, waits_s.at(-1) ?? 0])).toEqual([1.9, 1.9, 2.9]);
    expect(per_signature).toBe((MOST_IN_A_BATCH + 2) / 3);
  });

  it('routes by turns, or to a node that has least', () => {
    const three = { ...two, nodes: 3 };
    const sorted = (fleet: Fleet, ...times: number[]) => rounded(at(fleet, ...times).waits_s).sort((a, b) => a - b);
    // The last one comes when the first node is free and the second is not.
    const times = [0.1, 0.2, 0.3, 0.4, 1.15];
    expect(sorted(three, ...times)).toEqual([1, 1, 1, 1.05, 1.7]);
    expect(sorted({ ...three, routing: 'least-queue' }, ...times)).toEqual([1, 1, 1, 1, 1.9]);
  });

  it('finds the node that has least among many', () => {
    const fleet: Fleet = { nodes: 50, collection_s: C, batch: false, routing: 'least-queue' };
    // While fewer answers are there than nodes, none waits for another.
    const few = Array.from({ length: 200 }, (_, i) => 0.015 * (i + 1));
    expect(rounded([Math.max(...at(fleet, ...few).waits_s)])).toEqual([C]);
    const spread = at({ ...fleet, batch: true }, ...Array.from({ length: 150 }, () => 0.5));
    expect(rounded([...new Set(rounded(spread.waits_s))])).toEqual([C, 2 * C]);
  });

  it('counts only what comes after the warm-up', () => {
    const gaps = [0.1, 0.1, 4];
    const watch = { ...following(gaps), from_s: 2, until_s: 12 };
    const { waits_s, throughput, utilisation } = simulate({ ...two, nodes: 1 }, watch);
    // The second answer's signature ends at 2.1: a tenth of it is in the time that is watched, the answer's wait is not.
    expect([rounded(waits_s), rounded([throughput, utilisation])]).toEqual([[1], [0.11, 0.11]]);
  });
});

describe('the model of one node beside queueing theory', () => {
  const run = (fleet: Fleet, rate: number, until_s: number) =>
    simulate(fleet, { ...poisson(rate, SEED), from_s: 200 * C, until_s });

  // Pollaczek–Khinchine for M/D/1: a mean wait of ρC/(2(1−ρ)) in the queue, and C for the signature.
  it.each([0.2, 0.5, 0.8, 0.9])('strict answers at a load of %d wait as M/D/1 says', (load) => {
    const { mean_s, utilisation, throughput } = run(ONE, load / C, 600_000);
    const queue_s = (load * C) / (2 * (1 - load));
    expect(Math.abs((mean_s - C) / queue_s - 1)).toBeLessThan(0.04);
    expect([utilisation, throughput]).toEqual([expect.closeTo(load, 2), expect.closeTo(load / C, 2)]);
  });

  it('and so does each of many nodes that answers reach at random', () => {
    const { mean_s, utilisation } = run({ ...ONE, nodes: 50, routing: 'random' }, (0.8 * 50) / C, 12_000);
    expect([(mean_s - C) / (2 * C), utilisation]).toEqual([expect.closeTo(1, 1), expect.closeTo(0.8, 2)]);
  });

  it('strict answers past a load of 1 are signed as fast as the GPU can', () => {
    const { throughput, utilisation } = run(ONE, 3, 5_000);
    expect([throughput * C, utilisation]).toEqual([expect.closeTo(1, 3), expect.closeTo(1, 3)]);
  });

  it('many batched answers wait between C and 2C, evenly', () => {
    const { waits_s, mean_s, per_signature } = run({ ...ONE, batch: true }, 500, 500);
    expect([Math.min(...waits_s.slice(0, 1e5)) >= C, Math.max(...waits_s.slice(0, 1e5)) < 2 * C + 1e-9]).toEqual([
      true,
      true,
    ]);
    expect(mean_s).toBeCloseTo(1.5 * C, 2);
    expect(per_signature / (500 * C)).toBeCloseTo(1, 2);
  });

  it('gives the same for the same seed, and another for another', () => {
    const mean = (seed: number) => simulate(ONE, { ...poisson(1, seed), from_s: 0, until_s: 1_000 }).mean_s;
    expect(mean(1)).toBe(mean(1));
    expect(mean(1)).not.toBe(mean(2));
  });
});
