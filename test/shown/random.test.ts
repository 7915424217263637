// What a client shows is what was signed: in random streams. `npm run fuzz shown` gives the SDKs 20,000.
import { describe, expect, test } from 'vitest';
import { seedOf } from '../verify/fuzz/fuzz-random.ts';
import { examine, type Recipe, recipeOf, report, streamOf } from './random.ts';

/** FUZZ_STREAMS and FUZZ_SEED set how many and which; a finding is made again by its own seed. */
const STREAMS = Number(process.env.FUZZ_STREAMS ?? 300);
const SEED = Number(process.env.FUZZ_SEED ?? 20_260_301);
const TIMEOUT_MS = 60_000 + STREAMS * 100;
/** What refuses everything proves nothing. */
const ACCEPTED_SHARE = 0.15;
const MOST_REPORTS = 8;

describe('of a random stream that is provable, every SDK', () => {
  test(`shows what was signed, or throws: ${STREAMS} streams from seed ${SEED}`, { timeout: TIMEOUT_MS }, async () => {
    const found: Recipe[] = [];
    let accepted = 0;
    for (let i = 0; i < STREAMS; i++) {
      const recipe = recipeOf(seedOf(SEED, i));
      const differences = await examine(streamOf(recipe), recipe.mutations.length > 0);
      if (differences === null && recipe.mutations.length > 0) continue;
      if (differences !== null) accepted += 1;
      if (differences?.length !== 0) found.push(recipe);
    }
    const reports = await Promise.all(found.slice(0, MOST_REPORTS).map(report));
    if (found.length > 0)
      expect.fail([`${found.length} of ${STREAMS} (${accepted} provable)`, ...reports].join('\n\n'));
    expect(accepted / STREAMS).toBeGreaterThan(ACCEPTED_SHARE);
  });
});
