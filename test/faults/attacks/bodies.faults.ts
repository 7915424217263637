// One key that asks for more than there is memory: it is refused, and nobody else notices.
import { describe, expect, it } from 'vitest';
import { AttackStage, expectUnharmed } from './stage.ts';

describe('a gateway', () => {
  it.for([
    ['of letters', 'abcdefgh'],
    ['that JSON has to quote', '\\"\\"'],
    ['beyond Latin-1', 'ж漢'],
  ])('40 requests of 15.9 MB with tee at once, %s', async ([_name, text], context) => {
    const stage = await AttackStage.start(context);
    const seen = await stage.under('bodies.ts', { at_once: 40, bytes: 15_000_000, text }, 25_000);
    expectUnharmed(seen);
    const { became, afterwards } = seen.attack as { became: Record<string, number>; afterwards: string };
    expect(Object.keys(became).filter((what) => !/^(200|429 rate_limit_exceeded|503 overloaded)/.test(what))).toEqual(
      [],
    );
    // What they held is free again.
    expect(afterwards).toBe('200 ');
  });
});
