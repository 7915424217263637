// From logits to the next token.
import { at, logSumExp } from './linear.ts';
import type { Random } from './random.ts';
import type { Sampling } from './request.ts';

export interface Likely {
  readonly token: number;
  readonly logprob: number;
}

export interface Pick extends Likely {
  /** The likeliest tokens, best first; empty unless asked. */
  readonly top: readonly Likely[];
  /** Its place among all tokens, from 1; 0: unknown. */
  readonly rank: number;
}

export interface Sampler {
  /** Chooses and remembers the choice, for the penalties. Changes `logits`. */
  pick(logits: Float32Array): Pick;
}

/** Log-probabilities are the model's own, before temperature, bias and penalties. */
export function createSampler(sampling: Sampling, end: number, random: Random): Sampler {
  const counts = new Map<number, number>();
  let picked = 0;
  return {
    pick(logits) {
      const wanted = sampling.top_logprobs;
      const total = wanted === null ? 0 : logSumExp(logits);
      const top = wanted
        ? likeliest(logits, wanted).map((token) => ({ token, logprob: at(logits, token) - total }))
        : [];
      const raw = wanted === null ? null : logits.slice();

      for (const [token, bias] of sampling.logit_bias)
        if (token < logits.length) logits[token] = at(logits, token) + bias;
      for (const [token, count] of counts) {
        logits[token] = at(logits, token) - sampling.presence_penalty - count * sampling.frequency_penalty;
      }
      if (picked < sampling.min_tokens) logits[end] = Number.NEGATIVE_INFINITY;

      const token = sampling.temperature === 0 ? greatest(logits) : draw(logits, sampling, random());
      counts.set(token, (counts.get(token) ?? 0) + 1);
      picked++;
      return { token, logprob: raw === null ? 0 : at(raw, token) - total, top, rank: 0 };
    },
  };
}

export function likeliest(logits: Float32Array, count: number): number[] {
  const best: number[] = [];
  for (let token = 0; token < logits.length; token++) {
    const logit = at(logits, token);
    if (best.length === count && logit <= at(logits, at(best, count - 1))) continue;
    let place = best.length;
    while (place > 0 && at(logits, at(best, place - 1)) < logit) place--;
    best.splice(place, 0, token);
    if (best.length > count) best.pop();
  }
  return best;
}

/** From 1. */
export function rankOf(logits: Float32Array, token: number): number {
  const own = at(logits, token);
  let rank = 1;
  for (let other = 0; other < logits.length; other++) if (at(logits, other) > own) rank++;
  return rank;
}

function greatest(logits: Float32Array): number {
  let best = 0;
  for (let token = 1; token < logits.length; token++) if (at(logits, token) > at(logits, best)) best = token;
  return best;
}

/** Softmax at the temperature, cut to the smallest set of tokens that holds `top_p`. `u` is uniform in [0, 1). */
function draw(logits: Float32Array, { temperature, top_p }: Sampling, u: number): number {
  const max = at(logits, greatest(logits));
  let sum = 0;
  for (let token = 0; token < logits.length; token++) {
    const weight = Math.exp((at(logits, token) - max) / temperature);
    logits[token] = weight;
    sum += weight;
  }
  const order = top_p < 1 ? nucleus(logits, top_p * sum) : null;
  let left = u * (order === null ? sum : order.reduce((total, token) => total + at(logits, token), 0));
  const count = order?.length ?? logits.length;
  let last = greatest(logits);
  for (let i = 0; i < count; i++) {
    const token = order === null ? i : at(order, i);
    const weight = at(logits, token);
    if (weight === 0) continue;
    last = token;
    left -= weight;
    if (left < 0) break;
  }
  return last;
}

function nucleus(weights: Float32Array, mass: number): number[] {
  const order = Array.from(weights.keys()).sort((a, b) => at(weights, b) - at(weights, a));
  let held = 0;
  const size = order.findIndex((token) => {
    held += at(weights, token);
    return held >= mass;
  });
  return size < 0 ? order : order.slice(0, size + 1);
}
