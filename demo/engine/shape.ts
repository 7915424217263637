// The dimensions of the demo model and the layout of its residual stream.

import { ROLES } from './grammar.ts';
import type { Matrix } from './linear.ts';

export const SHAPE = {
  dim: 96,
  layers: 3,
  heads: 6,
  /** Grouped-query attention: two heads share a key and a value. */
  kv_heads: 3,
  head_dim: 16,
  hidden: 192,
  /** Sliding-window attention: a position sees itself and the 255 before it. */
  window: 256,
  max_context_tokens: 1_048_576,
} as const;

/** Nothing further back than this reaches the next token: `window - 1` positions a layer. */
export const REACH = SHAPE.layers * (SHAPE.window - 1) + 1;

/** The residual stream: the role of the token just read, the roles read a few words ago, a constant, a clock, and meaning. */
export const STREAM = {
  role: 0,
  recent: 16,
  one: 32,
  clock: 33,
  meaning: 34,
} as const;

if (ROLES.length > SHAPE.head_dim) throw new Error('the roles do not fit into one attention head');

export interface Layer {
  readonly query: Matrix;
  readonly key: Matrix;
  readonly value: Matrix;
  readonly output: Matrix;
  readonly gate: Matrix;
  readonly up: Matrix;
  readonly down: Matrix;
}

export interface Weights {
  /** One row a token. */
  readonly embedding: Matrix;
  readonly layers: readonly Layer[];
  /** One row a token. */
  readonly head: Matrix;
  readonly head_bias: Float32Array;
}
