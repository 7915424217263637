import { describe, expect, it } from 'vitest';
import { type Share, Shares } from '../../gateway/verifier/verifier.ts';

/** Shares of `max`, with the names of those that gave way. */
function stage(max: number) {
  const gone: string[] = [];
  const shares = new Shares(max);
  return {
    gone,
    enter(owner: string, name: string, amount: number): Share {
      const share = shares.open(owner, () => gone.push(name));
      share.acquire(amount);
      return share;
    },
  };
}
const OVERLOADED = expect.objectContaining({ code: 'overloaded' });

describe('a bounded amount, shared by owner,', () => {
  it('is all of it for one who is alone, and not more', () => {
    const { gone, enter } = stage(10);
    enter('a', 'a1', 6);
    const second = enter('a', 'a2', 4);
    expect(() => enter('a', 'a3', 1)).toThrow(OVERLOADED);
    second.release();
    enter('a', 'a4', 4);
    expect(gone).toEqual([]);
  });

  it('is given up by whoever has most, the latest first, as long as that is more than the other has then', () => {
    const { gone, enter } = stage(10);
    for (let i = 1; i <= 5; i++) enter('a', `a${i}`, 2);
    const b = enter('b', 'b1', 1);
    expect(gone).toEqual(['a5']);
    b.acquire(1);
    expect(gone).toEqual(['a5']);
    b.acquire(2);
    expect(gone).toEqual(['a5', 'a4']);
    // Five and five would be fair, and six and four are not given for more.
    expect(() => b.acquire(3)).toThrow(OVERLOADED);
    expect([b.amount, gone]).toEqual([4, ['a5', 'a4']]);
  });

  it('is no stage for two who take it from one another', () => {
    const { gone, enter } = stage(10);
    enter('a', 'a1', 5);
    enter('b', 'b1', 5);
    expect(() => enter('a', 'a2', 1)).toThrow(OVERLOADED);
    expect(() => enter('b', 'b2', 1)).toThrow(OVERLOADED);
    expect(gone).toEqual([]);
  });

  it('is kept where it is in use', () => {
    const { gone, enter } = stage(10);
    const first = enter('a', 'a1', 5);
    const second = enter('a', 'a2', 5);
    second.onEvict = null;
    enter('b', 'b1', 1);
    expect(gone).toEqual(['a1']);
    expect(first.amount).toBe(0);
    enter('c', 'c1', 1).acquire(3);
    for (const owner of ['d', 'e', 'f']) enter(owner, owner, 1);
    expect(gone).toEqual(['a1', 'c1']);
    enter('g', 'g', 1);
    expect(() => enter('h', 'h', 1)).toThrow(OVERLOADED);
    second.release();
    enter('h', 'h', 1);
  });

  it('is given back in part too', () => {
    const { gone, enter } = stage(10);
    const first = enter('a', 'a1', 9);
    first.shrinkTo(9);
    expect(() => enter('a', 'a2', 2)).toThrow(OVERLOADED);
    first.shrinkTo(3);
    first.shrinkTo(5);
    expect(first.amount).toBe(3);
    enter('b', 'b1', 2);
    enter('c', 'c1', 5);
    enter('d', 'd1', 2);
    expect(gone).toEqual(['c1']);
  });

  it('is free again when all have left, in whatever order', () => {
    const { enter } = stage(10);
    for (let round = 0; round < 3; round++) {
      const all = ['a', 'b', 'a', 'c'].map((owner, i) => enter(owner, String(i), i === 3 ? 4 : 2));
      for (const share of all.toSorted(() => (round === 1 ? -1 : 1))) share.release();
      for (const share of all) share.release();
    }
    enter('d', 'd', 10);
  });
});
