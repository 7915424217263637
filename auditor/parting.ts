// Where two responses to one request part, by their tokens, and how likely the model found the one beside the other: a tie parts engines that
// compute the same in another order, and says nothing about their weights.
import { type Engine, Refused } from './audit/engine.ts';
import { MISS } from './audit/score.ts';

type Json = Readonly<Record<string, unknown>>;

export interface Parting {
  /** The number of the first token that differs, from 1. */
  readonly token: number;
  /** How far apart both tokens' log-probabilities are there, in nats; null: nothing says it. */
  readonly apart: number | null;
}

interface Tokens {
  /** Ids, or texts where the response has none. */
  readonly names: readonly unknown[];
  readonly ids: readonly number[] | null;
  readonly logprobs: readonly (number | undefined)[];
}

/** At temperature 0 a tie decides which of two tokens an engine takes; a sample is no tie. */
export const isTie = ({ temperature }: Json, { apart }: Parting): boolean =>
  temperature === 0 && apart !== null && apart <= MISS;

/** @param engine says what the responses do not; null: they must say it. @returns null where no tokens differ, or none are named */
export async function partingOf(request: Json, one: Json, other: Json, engine: Engine | null): Promise<Parting | null> {
  const [first, second] = [one, other].map(({ choices }) => (Array.isArray(choices) ? choices.map(tokensOf) : []));
  for (const [i, a] of (first ?? []).entries()) {
    const b = second?.[i];
    if (b === undefined || a.names.length === 0 || b.names.length === 0) continue;
    for (let at = 0; at < Math.max(a.names.length, b.names.length); at++) {
      const [own, others] = [a.logprobs[at], b.logprobs[at]];
      const apart = own === undefined || others === undefined ? null : Math.abs(own - others);
      const same = a.names[at] === b.names[at];
      if (same && (apart === null || apart <= MISS)) continue;
      return { token: at + 1, apart: apart ?? (same ? null : await byEngine(request, a, b, at, engine)) };
    }
  }
  return null;
}

function tokensOf(choice: Json): Tokens {
  const { token_ids, logprobs } = choice;
  const { content, tokens, token_logprobs } = (logprobs ?? {}) as Json;
  const items = (Array.isArray(content) ? content : []) as { token?: unknown; logprob?: unknown }[];
  const values =
    items.length > 0 ? items.map(({ logprob }) => logprob) : Array.isArray(token_logprobs) ? token_logprobs : [];
  const ids = Array.isArray(token_ids) ? (token_ids as number[]) : null;
  return {
    names: ids ?? (items.length > 0 ? items.map(({ token }) => token) : Array.isArray(tokens) ? tokens : []),
    ids,
    logprobs: values.map((value) => (typeof value === 'number' ? value : undefined)),
  };
}

async function byEngine(
  request: Json,
  a: Tokens,
  b: Tokens,
  at: number,
  engine: Engine | null,
): Promise<number | null> {
  const [own, other] = [a.ids?.[at], b.ids?.[at]];
  if (engine === null || a.ids === null || own === undefined || other === undefined) return null;
  try {
    const prompt = await engine.prompt({ request });
    const [row] = await engine.score([...prompt, ...a.ids.slice(0, at + 1)], prompt.length + at);
    const others = row?.best.get(other);
    return row === undefined || others === undefined ? null : Math.abs(row.logprob - others);
  } catch (error) {
    if (error instanceof Refused) return null;
    throw error;
  }
}
