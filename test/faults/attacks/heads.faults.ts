// One key that announces requests and sends none of them: a place is for a request that is here, and others have theirs.
import { describe, expect, it } from 'vitest';
import { AttackStage, expectUnharmed } from './stage.ts';

const HEADS = 4_096;
/** Long before the time for a whole request lets go of them. */
const MS = 20_000;

/** The line of connections before the server is another attack's. */
const peaceful = { probe_connections: 'kept' } as const;

describe('a gateway', () => {
  it('4,096 heads without bodies from a key that may have all of them', async (context) => {
    const stage = await AttackStage.start(context, { peaceful, every_key: 'concurrent=0' });
    const seen = await stage.under('heads.ts', { heads: HEADS }, MS);
    expectUnharmed(seen);
    expect(seen.attack).toEqual({ heads: HEADS, answers: {} });
  });

  it('4,096 heads without bodies from a key with its half: the other half of them is refused', async (context) => {
    const stage = await AttackStage.start(context, { peaceful });
    const seen = await stage.under('heads.ts', { heads: HEADS }, MS);
    expectUnharmed(seen);
    const { heads, answers } = seen.attack as { heads: number; answers: Record<string, number> };
    expect(heads).toBe(HEADS);
    expect(Object.keys(answers)).toEqual(['429']);
    expect(answers['429']).toBeGreaterThanOrEqual(HEADS / 2);
  });
});
