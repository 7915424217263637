// One answer beside the engine's log-probabilities: what it adds to each test, over all answers.
import { type Engine, Refused, type Row } from './engine.ts';
import { type Auditable, BEST, type Choice, isTextOf } from './ids.ts';

/** A token misses where the best one is likelier by more nats: bf16's logits have steps of 0.125, and tie. */
export const MISS = 0.25;
/** The gaps of the chart, in nats. */
export const GAPS = [0, 0.05, 0.125, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 5] as const;
/** At temperature 0 an honest engine's noise prefers a token at most as sampling at this temperature does. */
const NOISE = 0.1;

/** Tokens of temperature 0. */
export interface Greedy {
  tokens: number;
  misses: number;
  /** How many have a gap above each of {@link GAPS}. */
  readonly above: number[];
  answers: number;
  /** The answers with more than one miss. */
  readonly missing: Pick<Greedy, 'tokens' | 'misses'>[];
}

/** Sampled tokens, by the 20 best of each place. */
export interface Sampled {
  tokens: number;
  /** Tokens that are not among the best, and how many of them were to be expected. */
  outside: number;
  expected: number;
  /** Sums over the others: the surprise beyond its expectation, and its variance. */
  surprise: number;
  variance: number;
  /** The standardised surprise after each answer, for the chart. */
  readonly path: { readonly tokens: number; readonly z: number }[];
}

export interface Tally {
  readonly greedy: Greedy;
  /** Greedy too, of answers whose text was tokenised again. */
  readonly text: Greedy;
  readonly sampled: Sampled;
  /** The log of how much likelier another engine makes the same tokens; null without one. */
  against: { tokens: number; logRatio: number } | null;
}

const noGreedy = (): Greedy => ({ tokens: 0, misses: 0, above: GAPS.map(() => 0), answers: 0, missing: [] });
export const newTally = (against: boolean): Tally => ({
  greedy: noGreedy(),
  text: noGreedy(),
  sampled: { tokens: 0, outside: 0, expected: 0, surprise: 0, variance: 0, path: [] },
  against: against ? { tokens: 0, logRatio: 0 } : null,
});

/** A place in an answer that the engine finds unlikely. Its ids show words of the answer. */
export interface Passage {
  readonly file: string;
  readonly token: number;
  readonly nats: number;
  readonly ids: readonly number[];
}

export type Finding =
  /** The ids of the signed prompt are not those of the signed messages in this engine's template. */
  | { readonly finding: 'prompt_differs'; readonly token: number; readonly signed: number; readonly expected: number }
  /** The ids are not those of the signed text. */
  | { readonly finding: 'ids_differ_from_text'; readonly choice: number };

export interface Scored {
  readonly findings: readonly Finding[];
  readonly passages: readonly Passage[];
  /** Choices whose ids decode to their text, or that have none. */
  readonly choices: number;
}

const MAX_PASSAGES = 3;
const PASSAGE_BEFORE = 6;
const PASSAGE_AFTER = 6;

/** Adds an answer to the tally. @throws {Refused} before anything is added, where an engine refuses it */
export async function scoreAnswer(
  file: string,
  auditable: Auditable,
  tally: Tally,
  engine: Engine,
  against: Engine | null,
): Promise<Scored> {
  const { signedPrompt, temperature, stops } = auditable;
  const prompt = await engine.prompt(auditable);
  const findings: Finding[] = [];
  const differs = signedPrompt === null ? -1 : firstDifference(signedPrompt, prompt);
  if (signedPrompt !== null && differs >= 0)
    findings.push({
      finding: 'prompt_differs',
      token: differs + 1,
      signed: signedPrompt.length,
      expected: prompt.length,
    });
  const all: { choice: Choice; ids: readonly number[]; rows: readonly Row[]; others: readonly Row[] | null }[] = [];
  for (const choice of auditable.choices) {
    if (choice.ids !== null && !(await isDecoded(choice.ids, choice, stops, engine))) {
      findings.push({ finding: 'ids_differ_from_text', choice: choice.index });
      continue;
    }
    const ids = choice.ids ?? (await engine.encode(choice.texts.join('')));
    if (ids.length === 0) continue;
    const rows = await engine.score([...prompt, ...ids], prompt.length);
    const others = against === null ? null : await against.score([...prompt, ...ids], prompt.length);
    all.push({ choice, ids, rows, others });
  }
  const passages: Passage[] = [];
  for (const { choice, ids, rows, others } of all) {
    const part = choice.ids === null ? tally.text : tally.greedy;
    const before = part.misses;
    for (const [i, id] of ids.entries()) {
      const row = rows[i] as Row;
      const nats = temperature === 0 ? addGreedy(part, row) : addSampled(tally.sampled, row, id, temperature);
      if (nats > MISS) {
        const around = ids.slice(Math.max(0, i - PASSAGE_BEFORE), i + PASSAGE_AFTER);
        keepWorst(passages, { file, token: i + 1, nats, ids: around });
      }
      if (tally.against !== null && others !== null)
        addAgainst(tally.against, row, others[i] as Row, id, Math.max(temperature, NOISE));
    }
    const { sampled } = tally;
    if (temperature !== 0) sampled.path.push({ tokens: sampled.tokens, z: standardised(sampled) });
    else part.answers++;
    const misses = part.misses - before;
    if (misses > 1) part.missing.push({ tokens: ids.length, misses });
  }
  return { findings, passages, choices: all.length };
}

/** Keeps the worst passages, the worst first. */
export function keepWorst(passages: Passage[], ...more: readonly Passage[]): void {
  passages.push(...more);
  passages.sort((a, b) => b.nats - a.nats);
  passages.splice(MAX_PASSAGES);
}

async function isDecoded(ids: readonly number[], choice: Choice, stops: readonly string[], engine: Engine) {
  if (ids.length === 0) return choice.texts.length === 0;
  try {
    const text = await engine.decode(ids);
    const head = ids.length === 1 ? '' : await engine.decode(ids.slice(0, -1));
    return isTextOf(text, head, choice, stops);
  } catch (error) {
    // Ids that this engine's vocabulary does not have.
    if (error instanceof Refused) return false;
    throw error;
  }
}

export const standardised = ({ surprise, variance }: Sampled): number =>
  variance === 0 ? 0 : surprise / Math.sqrt(variance);

/** The index of the first difference; -1: they are the same. */
export function firstDifference(a: readonly number[], b: readonly number[]): number {
  for (let i = 0; i < Math.max(a.length, b.length); i++) if (a[i] !== b[i]) return i;
  return -1;
}

/** @returns the gap to the best token, in nats. */
export function gapOf({ best, logprob }: Row): number {
  const [first = logprob] = best.values();
  return Math.max(0, first - logprob);
}

function addGreedy(part: Greedy, row: Row): number {
  const gap = gapOf(row);
  part.tokens++;
  if (gap > MISS) part.misses++;
  for (const [i, above] of GAPS.entries()) if (gap > above) part.above[i] = (part.above[i] ?? 0) + 1;
  return gap;
}

/**
 * The surprise of a token among the 20 best, beyond what it is expected to be: exact at any temperature, because the tokens outside of the 20
 * are conditioned away. How many those are is a test of its own: another model's tokens are mostly outside.
 * @returns the surprise in nats.
 */
function addSampled(sampled: Sampled, row: Row, id: number, temperature: number): number {
  sampled.tokens++;
  sampled.expected += outsideAtMost(row, temperature);
  const q = tempered(row.best, [...row.best.keys()], temperature);
  const own = q.get(id);
  if (own === undefined) {
    sampled.outside++;
    return gapOf(row);
  }
  let [entropy, square] = [0, 0];
  for (const log of q.values()) {
    entropy -= Math.exp(log) * log;
    square += Math.exp(log) * log * log;
  }
  sampled.surprise += -own - entropy;
  sampled.variance += square - entropy * entropy;
  return -own - entropy;
}

/** No vocabulary is larger. */
const MAX_VOCABULARY = 300_000;

/** The greatest probability that a token outside of the 20 best can have at this temperature, for all that is known of them. */
function outsideAtMost({ best }: Row, temperature: number): number {
  const logs = [...best.values()];
  const rest = Math.max(0, 1 - logs.reduce((sum, log) => sum + Math.exp(log), 0));
  if (rest === 0) return 0;
  const inside = logs.reduce((sum, log) => sum + Math.exp(log / temperature), 0);
  // None of the others is likelier than the last of the best; at a high temperature they say most where all are equally likely.
  const each = temperature <= 1 ? Math.min(rest, Math.exp(logs.at(-1) ?? 0)) : rest / (MAX_VOCABULARY - BEST);
  const outside = (rest / each) * each ** (1 / temperature);
  return outside / (inside + outside);
}

function addAgainst(
  against: NonNullable<Tally['against']>,
  row: Row,
  other: Row,
  id: number,
  temperature: number,
): void {
  // Only what both engines tell of: what the tokens are is independent of which was said.
  const common = [...row.best.keys()].filter((token) => other.best.has(token));
  if (!common.includes(id)) return;
  const [own, others] = [row, other].map(({ best }) => tempered(best, common, temperature).get(id) ?? 0);
  against.tokens++;
  against.logRatio += (others ?? 0) - (own ?? 0);
}

/** Log-probabilities at a temperature, of these tokens alone. */
function tempered(best: ReadonlyMap<number, number>, tokens: readonly number[], temperature: number) {
  const scaled = tokens.map((token) => (best.get(token) ?? 0) / temperature);
  const max = Math.max(...scaled);
  const total = max + Math.log(scaled.reduce((sum, one) => sum + Math.exp(one - max), 0));
  return new Map(tokens.map((token, i) => [token, (scaled[i] ?? 0) - total]));
}
