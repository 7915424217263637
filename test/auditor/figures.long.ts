// False alarms of the audit, over whole answers of the demo engine: seeds 1 to 200 as they come, at temperature 0 and sampled.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Engine, openEngine } from '../../auditor/audit/engine.ts';
import type { RunningEngine } from '../../demo/engine/server.ts';
import { startDemo, type Weights } from './demo.ts';
import { auditAll, exchangeOf, requestOf } from './trial.ts';

const SEEDS = 200;
const TOKENS = 200;
const TEST_MS = 900_000;

let own: RunningEngine;
let engine: Engine;
beforeAll(async () => {
  own = await startDemo();
  engine = await openEngine('--engine', own.url, null);
});
afterAll(() => own.close());

/** Answers of one seed until they have 200 tokens: the demo's end by themselves. */
async function* answersOf(seed: number, url: string, temperature: number) {
  for (let part = 0; ; part++) yield exchangeOf(url, requestOf(seed + part * SEEDS, { temperature }));
}

describe('of 200 times 200 honest tokens at most 6 are called not consistent', () => {
  const cases: readonly (readonly [Weights, number])[] = [
    [7, 0],
    [7, 1],
    [7, 0.7],
    ['bf16', 0],
    ['bf16', 1],
  ];
  it.each(cases)(
    'weights %s, temperature %f',
    async (weights, temperature) => {
      const served = weights === 7 ? own : await startDemo(weights);
      let alarms = 0;
      for (let seed = 1; seed <= SEEDS; seed++) {
        const { decision } = await auditAll(answersOf(seed, served.url, temperature), engine, { tokens: TOKENS });
        if (decision.verdict === 'NOT CONSISTENT') alarms++;
      }
      if (served !== own) await served.close();
      console.log(`${weights}, temperature ${temperature}: ${alarms} alarms of ${SEEDS}`);
      expect(alarms).toBeLessThanOrEqual(6);
    },
    TEST_MS,
  );
});
