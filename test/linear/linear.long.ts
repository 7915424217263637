// Everything that reads what others wrote takes one pass: its time grows with its input, not with the square of it. Whether a regular
// expression backtracks, recheck decides (test/fuzz/regular-expressions.long.ts). A reader is a row of readers.ts.
import { describe, expect, it } from 'vitest';
import { KINDS, type Kind } from './inputs.ts';
import { growthOf } from './measure.ts';
import { LINEAR, QUADRATIC } from './planted.ts';
import { type Given, READERS } from './readers.ts';

const PLANTED = 1 << 17;
const TIMEOUT_MS = 300_000;
/** What is read to its end takes longer for more; most of what is refused early does not. */
const IS_READ = 2;

describe('the measure', () => {
  it.each(Object.entries(QUADRATIC))('finds %s', { timeout: TIMEOUT_MS }, async (_name, begin) => {
    expect(await growthOf(async (n) => begin(n), PLANTED)).toMatchObject({ steep: true });
  });

  it.each(Object.entries(LINEAR))('lets %s by', { timeout: TIMEOUT_MS }, async (_name, begin) => {
    expect(await growthOf(async (n) => begin(n), PLANTED)).toMatchObject({ steep: false });
  });
});

function givenOf(made: string, encoding: Kind['encoding']): Given {
  const bytes = Buffer.from(made, encoding);
  const cut = (size: number) =>
    Array.from({ length: Math.ceil(bytes.length / size) || 1 }, (_, i) =>
      Buffer.from(bytes.subarray(i * size || 0, (i + 1) * size)),
    );
  return { s: bytes.toString(encoding), bytes, cut };
}

describe('a reader of what others wrote', () => {
  it.each(READERS)('takes one pass: $name', { timeout: TIMEOUT_MS }, async ({ kinds, read }) => {
    const wrong: string[] = [];
    let isRead = false;
    for (const kind of kinds)
      for (const [name, make] of Object.entries<Kind['makes'][string]>(KINDS[kind].makes)) {
        const { most, encoding }: Kind = KINDS[kind];
        const begin = async (n: number) => {
          const given = givenOf(await make(n), encoding);
          return () => read(given);
        };
        const { steep, times, thrown } = await growthOf(begin, most);
        isRead ||= times[0] * times[1] > IS_READ;
        if (steep) wrong.push(`${times.map(Math.round).join(' and ')} times: ${kind}: ${name}`);
        if (thrown instanceof TypeError || thrown instanceof ReferenceError)
          wrong.push(`${kind}: ${name}: ${thrown.stack}`);
      }
    expect(wrong).toEqual([]);
    expect(isRead, 'it reads none of its inputs').toBe(true);
  });
});
