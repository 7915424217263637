// A seeded random source, so that what a fuzzer found can be found again: mulberry32, one 32-bit word of state.

export interface Random {
  /** A whole number from 0 up to, not including, `below`. */
  below(below: number): number;
  pick<T>(items: readonly T[]): T;
  chance(probability: number): boolean;
  bytes(length: number): Uint8Array<ArrayBuffer>;
}

export function seeded(seed: number): Random {
  let state = seed >>> 0;
  const word = (): number => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
  const below = (limit: number): number => Math.floor((word() / 2 ** 32) * limit);
  return {
    below,
    pick: (items) => items[below(items.length)] as (typeof items)[number],
    chance: (probability) => word() / 2 ** 32 < probability,
    bytes: (length) => Uint8Array.from({ length }, () => below(256)),
  };
}

/** One seed for each input, so that any input is made again without those before it. */
export const seedOf = (seed: number, input: number): number => (Math.imul(seed, 0x9e3779b1) ^ (input + 1)) >>> 0;
