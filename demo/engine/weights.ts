// The model's weights from a seed: random meanings and random mixing, with a rough grammar laid over them (circuits.ts).
import { createHash } from 'node:crypto';
import { layCircuits } from './circuits.ts';
import { type Matrix, matrix } from './linear.ts';
import { normal, type Random, randomFrom } from './random.ts';
import { type Layer, SHAPE, STREAM, type Weights } from './shape.ts';
import type { Vocabulary } from './vocabulary.ts';

/** Deviation of a random query or key: how sharply attention picks. */
const SHARPNESS = 1.4;
const GATE = 1.5;
const MIXING = 1;

export function createWeights(vocabulary: Vocabulary, seed: number): Weights {
  const random = randomFrom(seed);
  const { dim, heads, kv_heads, head_dim, hidden } = SHAPE;
  const embedding = matrix(vocabulary.tokens.length, dim);
  const layers = Array.from({ length: SHAPE.layers }, (): Layer => {
    const from = 1 / Math.sqrt(dim - STREAM.meaning);
    // Only meaning is mixed at random: the dimensions before it carry the grammar and would drown it out.
    const reads = { first_col: STREAM.meaning };
    const writes = { first_row: STREAM.meaning };
    return {
      query: gaussian(random, heads * head_dim, dim, SHARPNESS * from, reads),
      key: gaussian(random, kv_heads * head_dim, dim, SHARPNESS * from, reads),
      value: gaussian(random, kv_heads * head_dim, dim, from, reads),
      output: gaussian(random, dim, heads * head_dim, MIXING / Math.sqrt(heads * head_dim), writes),
      gate: gaussian(random, hidden, dim, GATE * from, reads),
      up: gaussian(random, hidden, dim, GATE * from, reads),
      down: gaussian(random, dim, hidden, MIXING / Math.sqrt(hidden), writes),
    };
  });
  const weights = {
    embedding,
    layers,
    head: matrix(vocabulary.tokens.length, dim),
    head_bias: new Float32Array(vocabulary.tokens.length),
  };
  layCircuits(weights, vocabulary, random);
  return weights;
}

/** What lies before `first_row` or `first_col` stays zero. */
function gaussian(
  random: Random,
  rows: number,
  cols: number,
  deviation: number,
  { first_row = 0, first_col = 0 },
): Matrix {
  const m = matrix(rows, cols);
  for (let row = first_row; row < rows; row++) {
    for (let col = first_col; col < cols; col++) m.data[row * cols + col] = normal(random) * deviation;
  }
  return m;
}

/** Names these weights: OpenAI's `system_fingerprint`. */
export function fingerprint(weights: Weights): string {
  const hash = createHash('sha256').update(weights.embedding.data).update(weights.head.data);
  return `fp_${hash.digest('hex').slice(0, 10)}`;
}
