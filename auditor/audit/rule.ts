// The rule: which tests are made, what each says at the false-alarm rate, and the verdict.
import { type Finding, type Greedy, type Sampled, standardised, type Tally } from './score.ts';
import { binomialTail, clopperPearsonUpper, leastAlarm, normalQuantile, normalTail, shareFound } from './statistics.ts';

/** The least tokens for a verdict of consistency. */
export const ENOUGH = { greedy: 200, text: 200, sampled: 1_000 } as const;
export const CALIBRATION_TOKENS = 5_000;
const CONFIDENCE = 0.95;
/** The least share of misses that an honest engine is granted, and the least where text is tokenised again. */
const LEAST_SHARE = 0.001;
const LEAST_SHARE_TEXT = 0.02;
/** How surely what a test "could have seen" would have been seen. */
const POWER = 0.9;
/** Shares of misses that were measured with SmolLM2-135M at temperature 0. */
const MEASURED = [
  ['4-bit weights', 0.29],
  ['temperature 0.7 in place of 0', 0.28],
  ['a template without one newline', 0.018],
  ['a hidden system prompt', 0.017],
  ['8-bit weights', 0.003],
] as const;

export type Verdict = 'CONSISTENT' | 'NOT CONSISTENT' | 'TOO LITTLE';

export interface Test {
  readonly test: 'greedy' | 'text' | 'answer' | 'surprise' | 'outside' | 'against';
  readonly tokens: number;
  readonly alarm: boolean;
  /** The probability that honest answers look like this or worse; of `against` at most this. */
  readonly p: number;
  readonly words: string;
  /** What this many tokens could have seen. */
  readonly power: string | null;
}

/** What ids alone showed, and of how many answers tokens were scored. */
interface Seen {
  readonly answers: number;
  readonly findings: readonly Finding[];
}

export interface Decision {
  readonly verdict: Verdict;
  readonly tests: readonly Test[];
}

/** An upper bound of an honest engine's share of misses, of what a reference deployment missed. */
export const boundOf = ({ misses, tokens }: Pick<Greedy, 'misses' | 'tokens'>): number =>
  Math.max(LEAST_SHARE, clopperPearsonUpper(misses, tokens, CONFIDENCE));
export const UNCALIBRATED = LEAST_SHARE;
/** A reference deployment with more misses has other weights, or another precision. */
export const MAX_BOUND = LEAST_SHARE_TEXT;

/** @param alpha the false-alarm rate of all tests together */
export function decide(tally: Tally, bound: number, alpha: number, { answers, findings }: Seen): Decision {
  const { greedy, text, sampled, against } = tally;
  const made: ((alpha: number) => Test)[] = [];
  if (greedy.tokens > 0) made.push((each) => misses('greedy', greedy, bound, each));
  if (text.tokens > 0) made.push((each) => misses('text', text, Math.max(LEAST_SHARE_TEXT, bound), each));
  // Text that is tokenised again misses in clumps: only ids are judged one by one.
  if (greedy.answers > 1) made.push((each) => worstAnswer(greedy, bound, each));
  if (sampled.tokens > 0)
    made.push(
      (each) => surprise(sampled, each),
      (each) => outside(sampled, each),
    );
  if (against !== null && against.tokens > 0) made.push((each) => ratio(against, each));
  const tests = made.map((test) => test(alpha / made.length));
  const enough = Object.entries(ENOUGH).some(([name, least]) => tally[name as keyof typeof ENOUGH].tokens >= least);
  // Where the ids of no answer decode, this engine may have another tokenizer.
  const found = findings.some(({ finding }) => finding === 'prompt_differs' || answers > 0);
  const alarm = found || tests.some((test) => test.alarm);
  return { verdict: alarm ? 'NOT CONSISTENT' : enough ? 'CONSISTENT' : 'TOO LITTLE', tests };
}

function misses(test: 'greedy' | 'text', { tokens, misses: count }: Greedy, bound: number, alpha: number): Test {
  const least = leastAlarm(tokens, bound, alpha);
  const p = binomialTail(tokens, bound, count);
  const found = MEASURED.map(([name, share]) => `${name} ${percent(binomialTail(tokens, share, least), 0)}`);
  const weaker = test === 'text' ? ' whose text was tokenised again: the weaker rule, ids would say more' : '';
  return {
    test,
    tokens,
    alarm: p < alpha,
    p,
    words: `${tokens} tokens of temperature 0${weaker}: ${count} miss by more than 0.25 nats; ${least} or more would be an alarm (an honest engine misses at most ${percent(bound)})`,
    power: `a share of misses of ${percent(shareFound(least, tokens, POWER))} is found in 9 of 10 audits of this size${test === 'text' ? '' : `; measured with a small model: ${found.join(', ')}`}`,
  };
}

/** One answer of other weights among many honest ones, whose tokens it is too few to show among. */
function worstAnswer({ tokens, answers, missing }: Greedy, bound: number, alpha: number): Test {
  const each = missing.map((one) => ({ ...one, p: binomialTail(one.tokens, bound, one.misses) }));
  const worst = each.reduce((most, one) => (one.p < most.p ? one : most), { tokens: 0, misses: 0, p: 1 });
  const p = Math.min(1, worst.p * answers);
  const most = worst.misses === 0 ? 'none misses twice' : `the worst misses ${worst.misses} of ${worst.tokens} tokens`;
  return {
    test: 'answer',
    tokens,
    alarm: p < alpha,
    p,
    words: `${answers} answers of temperature 0, each by itself: ${most}`,
    power: null,
  };
}

function surprise(sampled: Sampled, alpha: number): Test {
  const z = standardised(sampled);
  const limit = normalQuantile(alpha / 2);
  const p = 2 * normalTail(Math.abs(z));
  const shift = ((limit + normalQuantile(1 - POWER)) * Math.sqrt(sampled.variance)) / sampled.tokens;
  return {
    test: 'surprise',
    tokens: sampled.tokens,
    alarm: p < alpha,
    p,
    words: `${sampled.tokens} sampled tokens: standardised surprise ${z.toFixed(1)}; beyond ±${limit.toFixed(1)} would be an alarm`,
    power: `a mean surprise that is off by ${shift.toFixed(2)} nats a token is found in 9 of 10 audits of this size: other weights, 4 bits, another temperature; not 8 bits, and no hidden prompt`,
  };
}

function outside({ tokens, outside: count, expected }: Sampled, alpha: number): Test {
  // Of trials with unequal chances, equal ones with the same mean have the heavier tail (Hoeffding 1956).
  const share = Math.min(1, expected / tokens);
  const p = count <= expected ? 1 : binomialTail(tokens, share, count);
  return {
    test: 'outside',
    tokens,
    alarm: p < alpha,
    p,
    words: `${count} of them are not among the 20 likeliest, where at most ${expected.toFixed(1)} were to be expected; ${leastAlarm(tokens, share, alpha)} or more would be an alarm`,
    power: null,
  };
}

function ratio({ tokens, logRatio }: NonNullable<Tally['against']>, alpha: number): Test {
  // Markov's inequality: under these weights a likelihood ratio of 1/p or more has at most the probability p.
  const p = Math.min(1, Math.exp(-logRatio));
  const limit = -Math.log(alpha);
  const side = logRatio >= limit ? 'the alternative' : logRatio <= -limit ? 'these weights' : 'neither';
  return {
    test: 'against',
    tokens,
    alarm: p < alpha,
    p,
    words: `${tokens} tokens beside the named alternative: log of the likelihood ratio ${logRatio.toFixed(1)}, which favours ${side}; ${limit.toFixed(1)} or more would be an alarm`,
    power: null,
  };
}

const percent = (share: number, digits = 2): string => `${(share * 100).toFixed(digits)} %`;
