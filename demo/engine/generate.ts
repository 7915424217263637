// One choice: the model read and asked, token after token, until it ends, is stopped or has said enough.
import { at, logSumExp } from './linear.ts';
import { type Model, Sequence } from './model.ts';
import { randomFrom } from './random.ts';
import type { Sampling } from './request.ts';
import { createSampler, likeliest, type Pick, rankOf } from './sampler.ts';
import { REACH } from './shape.ts';
import { createStopper } from './stopper.ts';
import { createDecoder } from './tokenizer.ts';
import { breathe } from './turn.ts';

const PROMPT_TOKENS_A_TURN = 8;

export type FinishReason = 'stop' | 'length';

/** Text that can no longer change, with the tokens that made it; more than one where a stop text or a character was awaited. */
export interface Piece {
  readonly text: string;
  readonly tokens: readonly Pick[];
}

export interface Ending {
  readonly finish_reason: FinishReason;
  /** The stop text that ended it. */
  readonly stop: string | null;
  /** All tokens generated, those that a stop text cut away included, the end token not. */
  readonly completion_tokens: number;
  /** The tokens that went out with no piece: those that a stop text cut away, and the end token. */
  readonly rest: readonly number[];
}

/** A prompt that has been read; any number of choices continue from it. */
export interface ReadPrompt {
  readonly sequence: Sequence;
  /** How likely each prompt token was where it stood; null for the first, and unless asked. */
  readonly picks: readonly (Pick | null)[] | null;
}

/** @param top_logprobs for the prompt's own tokens; null: they are not wanted, and what is out of reach is not even read */
export async function readPrompt(
  model: Model,
  prompt: readonly number[],
  top_logprobs: number | null,
  signal: AbortSignal,
): Promise<ReadPrompt> {
  const tokens = [model.vocabulary.begin, ...prompt];
  const first = top_logprobs === null ? Math.max(0, tokens.length - REACH) : 0;
  const sequence = new Sequence(model.weights, first);
  const picks: (Pick | null)[] = [];
  const logits = new Float32Array(model.vocabulary.tokens.length);
  for (let i = first; i < tokens.length; i++) {
    if (top_logprobs !== null && i > 0)
      picks.push(i === 1 ? null : judge(sequence, logits, at(tokens, i), top_logprobs));
    sequence.read(at(tokens, i));
    if ((i - first) % PROMPT_TOKENS_A_TURN === PROMPT_TOKENS_A_TURN - 1) await breathe(signal);
  }
  return { sequence, picks: top_logprobs === null ? null : picks };
}

function judge(sequence: Sequence, logits: Float32Array, token: number, top_logprobs: number): Pick {
  sequence.logits(logits);
  const total = logSumExp(logits);
  const logprob = (id: number) => at(logits, id) - total;
  return {
    token,
    logprob: logprob(token),
    rank: rankOf(logits, token),
    top: likeliest(logits, top_logprobs).map((id) => ({ token: id, logprob: logprob(id) })),
  };
}

/** @param index of the choice: each draws its own numbers from the seed */
export async function* generate(
  model: Model,
  prompt: ReadPrompt,
  sampling: Sampling,
  index: number,
  signal: AbortSignal,
): AsyncGenerator<Piece, Ending> {
  const { vocabulary } = model;
  const sequence = prompt.sequence.fork();
  const sampler = createSampler(sampling, vocabulary.end, randomFrom(sampling.seed, index));
  const decoder = createDecoder(vocabulary);
  const stopper = createStopper(sampling.stops);
  const logits = new Float32Array(vocabulary.tokens.length);
  const unsent: number[] = [];
  const sent = (piece: Piece): Piece => {
    unsent.splice(0, piece.tokens.length);
    return piece;
  };
  let completion_tokens = 0;
  let finish_reason: FinishReason = 'length';
  while (completion_tokens < sampling.max_tokens) {
    await breathe(signal);
    sequence.logits(logits);
    const pick = sampler.pick(logits);
    unsent.push(pick.token);
    if (pick.token === vocabulary.end) {
      finish_reason = 'stop';
      break;
    }
    completion_tokens++;
    const piece = stopper.push(decoder.push(pick.token), pick);
    if (piece !== null) yield sent(piece);
    if (stopper.stop !== null) return { finish_reason: 'stop', stop: stopper.stop, completion_tokens, rest: unsent };
    sequence.read(pick.token);
  }
  const rest = stopper.end(decoder.end());
  if (rest !== null) yield sent(rest);
  const { stop } = stopper;
  return { finish_reason: stop === null ? finish_reason : 'stop', stop, completion_tokens, rest: unsent };
}
