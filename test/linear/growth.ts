// How the count of what a function does grows with its input: at n, at 2n and at 4n.
import { type Count, countOf } from './counter.ts';

/** Twice the input may take so many times the work. */
export const MAX_GROWTH = 2.2;
/**
 * Some inputs are refused earlier than those twice as long, and buffers grow in steps: what seems to grow too much is looked
 * at again in other sizes, and the mean counts.
 */
const OTHER_SIZES = [0.53, 0.6, 0.69, 0.78, 0.88];

export interface Growth {
  /** At n, 2n and 4n, less what an input that is nearly empty costs. */
  readonly operations: readonly [number, number, number];
  /** The larger of the two. */
  readonly times: number;
  /** Files that had a part in it. */
  readonly files: readonly string[];
  /** By the largest input. */
  readonly thrown: unknown;
}

/** Makes an input of a size, and what is to be counted of it. */
type Begin = (n: number) => Promise<() => unknown>;

export async function growthOf(begin: Begin, n: number): Promise<Growth> {
  // What is made once, no matter who comes first, is made now.
  await countOf(await begin(1));
  const { operations: least } = await countOf(await begin(1));
  const first = await growthAt(begin, n, least);
  if (first.times <= MAX_GROWTH) return first;
  const all = [first.operations];
  for (const share of OTHER_SIZES) all.push((await growthAt(begin, n * share, least)).operations);
  const operations = first.operations.map((_, i) => all.reduce((sum, each) => sum + (each[i] ?? 0), 0) / all.length);
  return { ...first, ...grown(operations, (n * (1 + OTHER_SIZES.reduce((sum, share) => sum + share))) / all.length) };
}

async function growthAt(begin: Begin, n: number, least: number): Promise<Growth> {
  const counts: Count[] = [];
  for (const size of [n, 2 * n, 4 * n]) counts.push(await countOf(await begin(size)));
  const [one, , four] = counts as [Count, Count, Count];
  const floor = Math.min(least, one.operations / 2);
  const files = [...four.files].filter(([, done]) => done > 0).map(([file]) => file);
  return {
    ...grown(
      counts.map(({ operations }) => operations - floor),
      n,
    ),
    files,
    thrown: four.thrown,
  };
}

/** To read a character is an operation, too. */
function grown(counts: readonly number[], n: number): Pick<Growth, 'operations' | 'times'> {
  const [one = 0, two = 0, four = 0] = counts;
  return { operations: [one, two, four], times: Math.max((two + 2 * n) / (one + n), (four + 4 * n) / (two + 2 * n)) };
}
