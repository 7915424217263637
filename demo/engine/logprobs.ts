// Log-probabilities in the shapes of the two endpoints.
import type { Likely, Pick } from './sampler.ts';
import type { Vocabulary } from './vocabulary.ts';

export interface TokenLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: number[] | null;
  readonly top_logprobs: readonly Omit<TokenLogprob, 'top_logprobs'>[];
}

export function chatLogprobs(vocabulary: Vocabulary, picks: readonly Pick[]): TokenLogprob[] {
  const shape = ({ token, logprob }: Likely) => {
    const { text, bytes } = known(vocabulary, token);
    return { token: text, logprob, bytes: bytes.length > 0 ? [...bytes] : null };
  };
  return picks.map((pick) => ({ ...shape(pick), top_logprobs: pick.top.map(shape) }));
}

export interface CompletionLogprobs {
  readonly tokens: string[];
  readonly token_logprobs: (number | null)[];
  readonly top_logprobs: (Record<string, number> | null)[];
  readonly text_offset: number[];
}

/** Collects one choice's tokens, each with where it begins in the answer's text. */
export function createCompletionLogprobs(vocabulary: Vocabulary) {
  let offset = 0;
  return {
    /** null: a token that nothing came before, and so without a probability. */
    shape(tokens: readonly { readonly token: number; readonly pick: Pick | null }[]): CompletionLogprobs {
      const out: CompletionLogprobs = { tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] };
      for (const { token, pick } of tokens) {
        const { text } = known(vocabulary, token);
        out.tokens.push(text);
        out.token_logprobs.push(pick?.logprob ?? null);
        out.top_logprobs.push(
          pick === null
            ? null
            : Object.fromEntries(
                [...pick.top, pick].map((likely) => [known(vocabulary, likely.token).text, likely.logprob]),
              ),
        );
        out.text_offset.push(offset);
        offset += text.length;
      }
      return out;
    },
  };
}

/** vLLM's form of a prompt's log-probabilities: a row a token, by the ids of the likeliest and of the token that stands there. */
export function promptLogprobs({ tokens }: Vocabulary, picks: readonly (Pick | null)[]): (object | null)[] {
  return picks.map((pick) => {
    if (pick === null) return null;
    const row = pick.top.map(({ token, logprob }, i) => [token, logprob, i + 1] as const);
    if (!row.some(([token]) => token === pick.token)) row.push([pick.token, pick.logprob, pick.rank]);
    return Object.fromEntries(
      row.map(([token, logprob, rank]) => [token, { logprob, rank, decoded_token: tokens[token]?.text }]),
    );
  });
}

/** Appends `more` to `all`. */
export function join(all: CompletionLogprobs, more: CompletionLogprobs): void {
  all.tokens.push(...more.tokens);
  all.token_logprobs.push(...more.token_logprobs);
  all.top_logprobs.push(...more.top_logprobs);
  all.text_offset.push(...more.text_offset);
}

function known(vocabulary: Vocabulary, token: number) {
  const found = vocabulary.tokens[token];
  if (found === undefined) throw new RangeError(`no token ${token}`);
  return found;
}
