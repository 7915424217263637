// How the time of a function grows with its input: CPU of this thread, which others on the machine change little.

/** Three inputs are looked at, each so many times as long as the one before. */
const STEP = 8;
/**
 * Linear work takes 8 times as long in each step, quadratic work 64 times. Where a copy leaves a cache or a pool, linear work makes one
 * such leap, too: quadratic work is what leaps in the second step and has begun to in the first one.
 */
const LEAP = 22;
const BEGINNING = 12;
const AGAIN = 4;
/** The longest input has so many characters, or more where it takes less than QUICK_US. */
const FIRST = 1 << 17;
const QUICK_US = 2_000;
/** What is faster is done several times in a row. */
const LEAST_US = 1_000;

export interface Growth {
  readonly steep: boolean;
  /** Of the two steps. */
  readonly times: readonly [number, number];
  /** What ended the reading of the longest input; null: it was read to its end. */
  readonly thrown: unknown;
}
type Begin = (n: number) => Promise<() => unknown>;

/** `begin` makes the work over an input of `n` characters, `most` at most. What seems to grow too much is looked at again. */
export async function growthOf(begin: Begin, most: number, n = Math.min(FIRST, most)): Promise<Growth> {
  const long = await begin(n);
  // The longest one first: what is compiled at run time is so for the others.
  const { us, thrown } = await run(long);
  if (us < QUICK_US && n * STEP <= most) return growthOf(begin, most, n * STEP);
  const [middle, short] = [await begin(Math.ceil(n / STEP)), await begin(Math.ceil(n / STEP ** 2))];
  for (let again = 1; ; again++) {
    const [one, two] = [Math.min(await each_us(short), await each_us(short)), await each_us(middle)];
    const times = [two / one, (again === 1 && us > LEAST_US ? us : await each_us(long)) / two] as const;
    const steep = times[1] > LEAP && times[0] > BEGINNING;
    if (!steep || again === AGAIN) return { steep, times, thrown };
  }
}

async function each_us(work: () => unknown): Promise<number> {
  let [took, count] = [0, 0];
  for (; took < LEAST_US; count++) took += (await run(work)).us;
  return took / count;
}

async function run(work: () => unknown): Promise<{ readonly us: number; readonly thrown: unknown }> {
  const before = process.threadCpuUsage();
  let thrown: unknown = null;
  try {
    await work();
  } catch (error) {
    thrown = error;
  }
  const { user, system } = process.threadCpuUsage(before);
  return { us: Math.max(1, user + system), thrown };
}
