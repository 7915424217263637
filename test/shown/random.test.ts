// What a client shows is what was signed: in random streams. `npm run fuzz shown` gives the SDKs 20,000.
import { beforeAll, describe, expect, test, vi } from 'vitest';
import { seedOf } from '../verify/fuzz/fuzz-random.ts';
import { examine, type Recipe, recipeOf, report, streamOf } from './random.ts';
import { ENDPOINTS } from './stream.ts';

beforeAll(() => void vi.spyOn(console, 'log').mockImplementation(() => {})); // LangChain's warnings

/** FUZZ_STREAMS and FUZZ_SEED set how many and which; a finding is made again by its own seed. */
const STREAMS = Number(process.env.FUZZ_STREAMS ?? 300);
const SEED = Number(process.env.FUZZ_SEED ?? 20_260_301);
const TIMEOUT_MS = 60_000 + STREAMS * 100;
/** Of each endpoint's streams. What refuses everything proves nothing. */
const ACCEPTED_SHARE = 0.15;
const MOST_REPORTS = 8;

describe('of a random stream that is provable, every SDK', () => {
  test(`shows what was signed, or throws: ${STREAMS} streams from seed ${SEED}`, { timeout: TIMEOUT_MS }, async () => {
    const found: Recipe[] = [];
    const all: string[] = [];
    const accepted: string[] = [];
    for (let i = 0; i < STREAMS; i++) {
      const recipe = recipeOf(seedOf(SEED, i));
      const differences = await examine(streamOf(recipe), recipe.mutations.length > 0);
      all.push(recipe.endpoint);
      if (differences !== null) accepted.push(recipe.endpoint);
      // Without a mutation it must be provable.
      if (differences === null ? recipe.mutations.length === 0 : differences.length > 0) found.push(recipe);
    }
    const reports = await Promise.all(found.slice(0, MOST_REPORTS).map(report));
    if (found.length > 0)
      expect.fail([`${found.length} of ${STREAMS} (${accepted.length} provable)`, ...reports].join('\n\n'));
    const count = (endpoints: readonly string[], one: string) =>
      endpoints.filter((endpoint) => endpoint === one).length;
    for (const endpoint of ENDPOINTS)
      expect(count(accepted, endpoint)).toBeGreaterThan(count(all, endpoint) * ACCEPTED_SHARE);
  });
});
