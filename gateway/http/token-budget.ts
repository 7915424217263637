// An API key's budget of LLM tokens a day: a request is refused once it is spent, and reserves what it may cost before the
// backend is asked.
import { Problem } from '../base/problem.ts';
import { ANYONE } from '../keys/keys.ts';
import { type Estimate, USUAL_OUTPUT } from '../usage/budget.ts';
import { restOfDay_ms, type UsageBook } from '../usage/usage.ts';
import type { Bindings, Middleware } from './context.ts';

interface BudgetDeps {
  readonly book: UsageBook;
}

/** Rejects requests that may cost LLM tokens once the budget is spent, as far as known here. @throws {Problem} insufficient_quota */
export function withinBudget({ book }: BudgetDeps): Middleware {
  return ({ env }) => {
    const { caller, incoming } = env;
    const limit = caller.limits.tokens_per_day ?? 0;
    if (limit === 0 || incoming.method === 'GET' || caller === ANYONE) return;
    env.budget = limit;
    const used = book.tokensToday(caller.name);
    if (used >= limit) throw spent(env, limit, used, 0);
  };
}

/**
 * Reserves the LLM tokens of a request whose API key has a budget. The exchange's end replaces them by those that it did cost.
 * @throws {Problem} insufficient_quota
 */
export async function reserveTokens(env: Bindings, book: UsageBook, { prompt, output }: Estimate): Promise<void> {
  const { budget: limit = 0, caller, id, outgoing, watch } = env;
  if (limit === 0) return;
  const least = prompt + (output ?? 1);
  const { tokens, used } = await book.reserve(caller.name, id, {
    limit,
    least,
    most: prompt + (output ?? USUAL_OUTPUT),
  });
  if (tokens === null) throw spent(env, limit, used, least);
  watch.reserved({ prompt, output }, tokens - prompt, () => book.release(caller.name, id));
  setHeaders(outgoing, limit, used);
}

function setHeaders(outgoing: Bindings['outgoing'], limit: number, used: number): void {
  outgoing.setHeader('x-ratelimit-limit-tokens', String(limit));
  outgoing.setHeader('x-ratelimit-remaining-tokens', String(Math.max(0, limit - used)));
  outgoing.setHeader('x-ratelimit-reset-tokens', `${Math.ceil(restOfDay_ms(Date.now()))}ms`);
}

/** `least` 0: it is not known what the request may cost. */
function spent({ outgoing }: Bindings, limit: number, used: number, least: number): Problem {
  setHeaders(outgoing, limit, used);
  const rest = Math.max(0, limit - used);
  const state =
    rest === 0 || least === 0
      ? 'and has'
      : `has ${rest} left, running requests counted, and this one may cost ${least}`;
  return new Problem('insufficient_quota', `This API key may use ${limit} tokens a day, ${state}. The day is UTC's.`, {
    retryAfterSeconds: restOfDay_ms(Date.now()) / 1000,
    // OpenAI's clients would retry at once.
    headers: { 'x-should-retry': 'false' },
  });
}
