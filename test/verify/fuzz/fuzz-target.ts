// What is fuzzed: a parser or a whole verification, its good input, the ways to spoil it, and what may come of it.
import type { Random } from './fuzz-random.ts';

export interface Target<Input extends Uint8Array | string = Uint8Array | string> {
  readonly name: string;
  /** A share of the inputs: 1 for what checks signatures, more for what is quick. */
  readonly weight: number;
  readonly good: Input;
  readonly mutate: (good: Input, random: Random) => Input;
  /**
   * Throws what refuses the input. Otherwise what was understood of it, null where nothing is claimed: a parser alone, which
   * trusts nothing. For signed inputs it must equal what the good input gives.
   */
  readonly run: (input: Input) => unknown;
  /** The documented error classes, by name. */
  readonly refusals: readonly string[];
}

export type AnyTarget = Target<Uint8Array> | Target<string>;

export interface Finding {
  readonly target: string;
  readonly problem: string;
  readonly input: Uint8Array | string;
}

/**
 * Processor time that one input may take: what the machine does beside it does not count. An honest input takes a few
 * milliseconds; what this finds is work that grows out of all proportion.
 */
export const MAX_INPUT_MS = 250;
const ATTEMPTS = 4;

/** null: as it should be. `meaning`: what the good input gives, as {@link meaningOf} writes it. */
export async function tryInput<T extends Uint8Array | string>(
  target: Target<T>,
  input: T,
  meaning: string,
): Promise<Finding | null> {
  const found = (problem: string): Finding => ({ target: target.name, problem, input });
  let took = Number.POSITIVE_INFINITY;
  for (let attempt = 0; attempt < ATTEMPTS && took > MAX_INPUT_MS; attempt++) {
    const start = process.cpuUsage();
    const problem = await once(target, input, meaning);
    const { user, system } = process.cpuUsage(start);
    took = (user + system) / 1000;
    if (problem !== null) return found(problem);
  }
  return took > MAX_INPUT_MS ? found(`took ${Math.round(took)} ms`) : null;
}

async function once<T extends Uint8Array | string>(target: Target<T>, input: T, meaning: string) {
  try {
    const got = meaningOf(await target.run(input));
    return got === meaning || got === 'null' ? null : `passed with another meaning: ${got.slice(0, 400)}`;
  } catch (error) {
    const { name, message, code } = error as { name?: string; message?: string; code?: unknown };
    if (name === undefined || !target.refusals.includes(name)) return `threw ${name ?? typeof error}: ${message}`;
    return (name === 'CheckFailure' || name === 'VerificationError') && typeof code !== 'string'
      ? 'threw without a code'
      : null;
  }
}

export function meaningOf(value: unknown): string {
  return JSON.stringify(value ?? null, (_key, inner: unknown) => {
    if (typeof inner === 'bigint') return `${inner}n`;
    if (inner instanceof Uint8Array) return Buffer.from(inner).toString('hex');
    if (inner instanceof Map) return [...inner];
    if (inner instanceof Set) return [...inner];
    return inner;
  });
}
