// Numbers from a seed: the same seed gives the same weights and the same text.

/** Uniform in [0, 1). */
export type Random = () => number;

/** mulberry32, its state mixed from all parts of the seed. */
export function randomFrom(...seed: readonly number[]): Random {
  let state = 0x9e3779b9;
  for (const part of seed) {
    // A seed may be wider than 32 bits: both halves count.
    for (const half of [part >>> 0, Math.floor(part / 2 ** 32) >>> 0]) {
      state = Math.imul(state ^ half, 0x85ebca6b);
      state ^= state >>> 13;
    }
  }
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Normally distributed, mean 0, deviation 1 (Box and Muller). */
export function normal(random: Random): number {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}
