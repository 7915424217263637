// A llama-style decoder: RMSNorm, rotary positions, grouped-query attention over a sliding window, SwiGLU.
import { add, addScaled, dot, type Matrix, multiply, rmsNorm, rotate, softmax, swiglu } from './linear.ts';
import { SHAPE, type Weights } from './shape.ts';
import { createVocabulary, type Vocabulary } from './vocabulary.ts';
import { createWeights, fingerprint } from './weights.ts';

const { dim, heads, kv_heads, head_dim, hidden, window } = SHAPE;
const kv_dim = kv_heads * head_dim;
const FIRST_CAPACITY = 32;

export interface Model {
  readonly vocabulary: Vocabulary;
  readonly weights: Weights;
  readonly fingerprint: string;
}

export function createModel(seed: number): Model {
  const vocabulary = createVocabulary();
  const weights = createWeights(vocabulary, seed);
  return { vocabulary, weights, fingerprint: fingerprint(weights) };
}

interface LayerCache {
  keys: Float32Array;
  values: Float32Array;
}

/** One text being read or written: its keys and values, and the residual stream at its last token. */
export class Sequence {
  readonly #weights: Weights;
  #cache: LayerCache[];
  /** Positions that the cache has room for; it is a ring once it is as long as the window. */
  #capacity = FIRST_CAPACITY;
  /** The first position that was read. */
  readonly #first: number;
  #position: number;
  readonly #x = new Float32Array(dim);

  /** @param position of the first token that will be read; what precedes it is out of reach. */
  constructor(weights: Weights, position = 0) {
    this.#weights = weights;
    this.#first = position;
    this.#position = position;
    this.#cache = weights.layers.map(() => ({
      keys: new Float32Array(FIRST_CAPACITY * kv_dim),
      values: new Float32Array(FIRST_CAPACITY * kv_dim),
    }));
  }

  /** A continuation of its own. */
  fork(): Sequence {
    const copy = new Sequence(this.#weights, this.#first);
    copy.#cache = this.#cache.map(({ keys, values }) => ({ keys: keys.slice(), values: values.slice() }));
    copy.#capacity = this.#capacity;
    copy.#position = this.#position;
    copy.#x.set(this.#x);
    return copy;
  }

  read(token: number): void {
    const x = this.#x;
    x.set(this.#weights.embedding.data.subarray(token * dim, (token + 1) * dim));
    if (this.#position - this.#first === this.#capacity && this.#capacity < window) this.#grow();
    this.#weights.layers.forEach((layer, i) => {
      const cache = this.#cache[i] as LayerCache;
      rmsNorm(normed, x);
      multiply(query, layer.query, normed);
      multiply(key, layer.key, normed);
      multiply(value, layer.value, normed);
      rotate(query, this.#position, head_dim);
      rotate(key, this.#position, head_dim);
      const slot = (this.#position - this.#first) % this.#capacity;
      cache.keys.set(key, slot * kv_dim);
      cache.values.set(value, slot * kv_dim);
      this.#attend(cache);
      project(x, layer.output, mixed);

      rmsNorm(normed, x);
      multiply(gate, layer.gate, normed);
      multiply(up, layer.up, normed);
      swiglu(gate, up);
      project(x, layer.down, gate);
    });
    this.#position++;
  }

  /** The logits of what follows the last token read. */
  logits(out: Float32Array): void {
    rmsNorm(normed, this.#x);
    multiply(out, this.#weights.head, normed);
    add(out, this.#weights.head_bias);
  }

  /** query against every key of the window, values into `mixed`. A rotated key knows its position: the ring's order is free. */
  #attend(cache: LayerCache): void {
    const seen = Math.min(this.#position - this.#first + 1, this.#capacity);
    mixed.fill(0);
    for (let head = 0; head < heads; head++) {
      const q = head * head_dim;
      const kv = Math.floor((head * kv_heads) / heads) * head_dim;
      for (let i = 0; i < seen; i++)
        scores[i] = dot(query, q, cache.keys, i * kv_dim + kv, head_dim) / Math.sqrt(head_dim);
      softmax(scores, seen);
      for (let i = 0; i < seen; i++) addScaled(mixed, q, cache.values, i * kv_dim + kv, head_dim, scores[i] ?? 0);
    }
  }

  #grow(): void {
    this.#capacity = Math.min(this.#capacity * 2, window);
    this.#cache = this.#cache.map(({ keys, values }) => ({
      keys: wider(keys, this.#capacity),
      values: wider(values, this.#capacity),
    }));
  }
}

// Scratch space of one token's pass, which never waits: all sequences share it.
const normed = new Float32Array(dim);
const query = new Float32Array(heads * head_dim);
const key = new Float32Array(kv_dim);
const value = new Float32Array(kv_dim);
const mixed = new Float32Array(heads * head_dim);
const scores = new Float32Array(window);
const gate = new Float32Array(hidden);
const up = new Float32Array(hidden);
const projected = new Float32Array(dim);

function project(x: Float32Array, m: Matrix, from: Float32Array): void {
  multiply(projected, m, from);
  add(x, projected);
}

function wider(from: Float32Array, capacity: number): Float32Array {
  const to = new Float32Array(capacity * kv_dim);
  to.set(from);
  return to;
}
