// What makes random weights readable: embeddings that say what a token is, three attention heads that look back in a known
// way, and a head that turns both into what may follow.
import { FOLLOWS, RECENTLY, ROLES, type Role, type Slot } from './grammar.ts';
import type { Matrix } from './linear.ts';
import { normal, type Random } from './random.ts';
import { type Layer, SHAPE, STREAM, type Weights } from './shape.ts';
import type { Token, Vocabulary } from './vocabulary.ts';

const { dim, head_dim } = SHAPE;
const MEANINGS = dim - STREAM.meaning;

/** Size of a role and of the constant in an embedding. */
const LOUD = 3;
/** Roughly what the final norm leaves of LOUD. */
const HEARD = 0.9;
/** Below this a token is not said: logits. */
const NEVER = -40;
const UNLIKELY = -22;

/** How much a token's meaning, read earlier, speaks against saying it again; words of grammar may return. */
const AVERSION: Partial<Record<Slot, number>> = {
  noun: 1.4,
  verb: 1.4,
  adjective: 1.4,
  adverb: 1.4,
  preposition: 0.5,
  first: 0.5,
  later: 0.8,
};
const OTHER_AVERSION = 0.3;
/** How loudly the last dozens of words are remembered. */
const WEARINESS = 8;
/** Deviation of a token's own taste, per dimension of meaning. */
const TASTE = 0.22;
/** No answer ends while the clock stands at 1. */
const PATIENCE = 14;
/** How much likelier a sentence ends once the clock has run down. */
const HURRY = 2;

/** How an attention score falls with distance: `strength · Σ cos(θᵢ · distance)` over these rotary pairs. */
interface Gaze {
  readonly pairs: readonly number[];
  readonly strength: number;
}
const JUST_NOW: Gaze = { pairs: [2, 3, 4], strength: 3 };
const LATELY: Gaze = { pairs: [3, 4, 5], strength: 4 };
const SINCE_START: Gaze = { pairs: [3, 4], strength: 4.2 };

export function layCircuits(weights: Weights, vocabulary: Vocabulary, random: Random): void {
  for (const token of vocabulary.tokens) embed(weights.embedding, token, random);
  const [first, second] = weights.layers;
  if (first === undefined || second === undefined) throw new Error('the circuits need two layers');

  // Layer 0: the meanings of the last dozens of words, so that the head can turn away from them.
  for (let kv = 0; kv < SHAPE.kv_heads; kv++) {
    const from = STREAM.meaning + kv * head_dim;
    look(first, { head: 2 * kv, kv, gaze: LATELY, key_from: STREAM.one });
    copy(first, { head: 2 * kv, kv, from, to: from, length: head_dim, gain: WEARINESS });
  }

  // Layer 1: which roles came a few words ago, and how long ago the answer began.
  look(second, { head: 0, kv: 0, gaze: JUST_NOW, key_from: STREAM.one });
  copy(second, { head: 0, kv: 0, from: STREAM.role, to: STREAM.recent, length: ROLES.length, gain: LOUD });
  look(second, { head: 2, kv: 1, gaze: SINCE_START, key_from: STREAM.role + ROLES.indexOf('start') });
  copy(second, { head: 2, kv: 1, from: STREAM.role + ROLES.indexOf('start'), to: STREAM.clock, length: 1, gain: LOUD });

  const sizes = new Map<Slot, number>();
  for (const { slot } of vocabulary.tokens) if (slot !== null) sizes.set(slot, (sizes.get(slot) ?? 0) + 1);
  for (const token of vocabulary.tokens) speak(weights, token, sizes, random);
}

function embed(embedding: Matrix, token: Token, random: Random): void {
  const row = embedding.data.subarray(token.id * dim, (token.id + 1) * dim);
  if (token.role !== null) row[STREAM.role + ROLES.indexOf(token.role)] = LOUD;
  row[STREAM.one] = LOUD;
  for (let i = STREAM.meaning; i < dim; i++) row[i] = normal(random);
}

/** The scores of `head` depend on distance and on the one dimension `key_from` of what is looked at, on nothing else. */
function look(
  layer: Layer,
  { head, kv, gaze, key_from }: { head: number; kv: number; gaze: Gaze; key_from: number },
): void {
  clearRows(layer.query, head);
  clearRows(layer.key, kv);
  for (const pair of gaze.pairs) {
    layer.query.data[(head * head_dim + 2 * pair) * dim + STREAM.one] = (gaze.strength * Math.sqrt(head_dim)) / LOUD;
    layer.key.data[(kv * head_dim + 2 * pair) * dim + key_from] = 1 / LOUD;
  }
}

/** `head` carries dimensions of what it looks at, as they are, into the residual stream. */
function copy(
  layer: Layer,
  {
    head,
    kv,
    from,
    to,
    length,
    gain,
  }: { head: number; kv: number; from: number; to: number; length: number; gain: number },
): void {
  clearRows(layer.value, kv);
  for (let row = 0; row < dim; row++)
    layer.output.data.fill(0, row * dim + head * head_dim, row * dim + (head + 1) * head_dim);
  for (let i = 0; i < length; i++) {
    layer.value.data[(kv * head_dim + i) * dim + from + i] = 1;
    layer.output.data[(to + i) * dim + head * head_dim + i] = gain;
  }
}

function clearRows(m: Matrix, head: number): void {
  m.data.fill(0, head * head_dim * m.cols, (head + 1) * head_dim * m.cols);
}

function speak(weights: Weights, token: Token, sizes: ReadonlyMap<Slot, number>, random: Random): void {
  const { slot } = token;
  const row = weights.head.data.subarray(token.id * dim, (token.id + 1) * dim);
  if (slot === null) {
    weights.head_bias[token.id] = NEVER;
    return;
  }
  // The words of a slot share its probability; a large slot's best word stands out anyway.
  weights.head_bias[token.id] =
    -0.95 * Math.log(sizes.get(slot) ?? 1) + (RARE.get(token.text) ?? 0) + (slot === 'stop' ? HURRY / 2 : 0);
  ROLES.forEach((role, i) => {
    row[STREAM.role + i] = logit(role, slot) / HEARD;
  });
  for (const effect of RECENTLY)
    if (effect.slot === slot) row[STREAM.recent + ROLES.indexOf(effect.role)] = effect.logits / HEARD;
  if (slot === 'end') row[STREAM.clock] = -PATIENCE / HEARD;
  if (slot === 'stop') row[STREAM.clock] = -HURRY / HEARD;
  const aversion = (AVERSION[slot] ?? OTHER_AVERSION) / Math.sqrt(MEANINGS);
  for (let i = STREAM.meaning; i < dim; i++) {
    const meaning = weights.embedding.data[token.id * dim + i] ?? 0;
    row[i] = normal(random) * TASTE - aversion * meaning;
  }
}

const RARE: ReadonlyMap<string, number> = new Map([
  ['!', -3],
  ['?', -3],
  [';', -2],
  [':', -3],
]);

function logit(role: Role, slot: Slot): number {
  const probability = FOLLOWS[role][slot];
  return probability === undefined ? UNLIKELY : Math.log(probability);
}
