import { describe, expect, it } from 'vitest';
import { type Share, Shares } from '../../../gateway/limits/shares.ts';

/** Shares of `max`, with the names of those that were evicted. */
function stage(max: number) {
  const evicted: string[] = [];
  const shares = new Shares(max);
  return {
    evicted,
    open(owner: string, name: string, amount: number): Share {
      const share = shares.open(owner, () => evicted.push(name));
      share.acquire(amount);
      return share;
    },
  };
}
const OVERLOADED = expect.objectContaining({ code: 'overloaded' });

describe('a bounded amount, shared by owner,', () => {
  it('is all of it for one who is alone, and not more', () => {
    const { evicted, open } = stage(10);
    open('a', 'a1', 6);
    const second = open('a', 'a2', 4);
    expect(() => open('a', 'a3', 1)).toThrow(OVERLOADED);
    second.release();
    open('a', 'a4', 4);
    expect(evicted).toEqual([]);
  });

  it('is given up by the one who has most, the latest first, as long as that is more than the other has then', () => {
    const { evicted, open } = stage(10);
    for (let i = 1; i <= 5; i++) open('a', `a${i}`, 2);
    const b = open('b', 'b1', 1);
    expect(evicted).toEqual(['a5']);
    b.acquire(1);
    expect(evicted).toEqual(['a5']);
    b.acquire(2);
    expect(evicted).toEqual(['a5', 'a4']);
    // Five and five would be fair, and six and four are not given for more.
    expect(() => b.acquire(3)).toThrow(OVERLOADED);
    expect([b.amount, evicted]).toEqual([4, ['a5', 'a4']]);
  });

  it('is no stage for two who take it from one another', () => {
    const { evicted, open } = stage(10);
    open('a', 'a1', 5);
    open('b', 'b1', 5);
    expect(() => open('a', 'a2', 1)).toThrow(OVERLOADED);
    expect(() => open('b', 'b2', 1)).toThrow(OVERLOADED);
    expect(evicted).toEqual([]);
  });

  it('is kept where it is in use', () => {
    const { evicted, open } = stage(10);
    const first = open('a', 'a1', 5);
    const second = open('a', 'a2', 5);
    second.onEvict = null;
    open('b', 'b1', 1);
    expect(evicted).toEqual(['a1']);
    expect(first.amount).toBe(0);
    open('c', 'c1', 1).acquire(3);
    for (const owner of ['d', 'e', 'f']) open(owner, owner, 1);
    expect(evicted).toEqual(['a1', 'c1']);
    open('g', 'g', 1);
    expect(() => open('h', 'h', 1)).toThrow(OVERLOADED);
    second.release();
    open('h', 'h', 1);
  });

  it('is given back in part too', () => {
    const { evicted, open } = stage(10);
    const first = open('a', 'a1', 9);
    first.shrinkTo(9);
    expect(() => open('a', 'a2', 2)).toThrow(OVERLOADED);
    first.shrinkTo(3);
    first.shrinkTo(5);
    expect(first.amount).toBe(3);
    open('b', 'b1', 2);
    open('c', 'c1', 5);
    open('d', 'd1', 2);
    expect(evicted).toEqual(['c1']);
  });

  it('is free again when all have left, in whatever order', () => {
    const { open } = stage(10);
    for (let round = 0; round < 3; round++) {
      const all = ['a', 'b', 'a', 'c'].map((owner, i) => open(owner, String(i), i === 3 ? 4 : 2));
      for (const share of all.toSorted(() => (round === 1 ? -1 : 1))) share.release();
      for (const share of all) share.release();
    }
    open('d', 'd', 10);
  });
});
