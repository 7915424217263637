import { expect, test } from 'vitest';
import { multiply, rmsNorm, rotate, softmax, swiglu } from '../../demo/engine/linear.ts';
import { createModel, Sequence } from '../../demo/engine/model.ts';
import { REACH, SHAPE, type Weights } from '../../demo/engine/shape.ts';

const model = createModel(3);
const size = model.vocabulary.tokens.length;
const tokens = (count: number, salt = 1) => Array.from({ length: count }, (_, i) => (i * 7919 * salt + 13) % size);

function logitsAfter(ids: readonly number[], position = 0): Float32Array {
  const sequence = new Sequence(model.weights, position);
  for (const id of ids) sequence.read(id);
  const out = new Float32Array(size);
  sequence.logits(out);
  return out;
}

function difference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  expect(a.length).toBe(b.length);
  return Math.max(...Array.from(a, (value, i) => Math.abs(value - (b[i] ?? Number.NaN))));
}

/** The same network written out from the papers: all positions at once, double precision, no cache. */
function reference(weights: Weights, ids: readonly number[]): number[] {
  const { dim, heads, kv_heads, head_dim, window } = SHAPE;
  type Vector = readonly number[];
  const get = (x: ArrayLike<number>, i: number) => x[i] ?? Number.NaN;
  const sum = (x: Vector) => x.reduce((a, b) => a + b, 0);
  const times = (m: Weights['head'], x: Vector) =>
    Array.from({ length: m.rows }, (_, r) => sum(x.map((v, c) => v * get(m.data, r * m.cols + c))));
  const norm = (x: Vector) => x.map((v) => v / Math.sqrt(sum(x.map((w) => w * w)) / x.length + 1e-5));
  const plus = (x: Vector, y: Vector) => x.map((v, i) => v + get(y, i));
  const turn = (x: Vector, position: number) =>
    x.map((v, i) => {
      const angle = position / 10_000 ** (((i % head_dim) - (i % 2)) / head_dim);
      return i % 2 === 0
        ? v * Math.cos(angle) - get(x, i + 1) * Math.sin(angle)
        : v * Math.cos(angle) + get(x, i - 1) * Math.sin(angle);
    });
  let xs: Vector[] = ids.map((id) => Array.from({ length: dim }, (_, i) => get(weights.embedding.data, id * dim + i)));
  for (const layer of weights.layers) {
    const queries = xs.map((x, p) => turn(times(layer.query, norm(x)), p));
    const keys = xs.map((x, p) => turn(times(layer.key, norm(x)), p));
    const values = xs.map((x) => times(layer.value, norm(x)));
    xs = xs.map((x, p) => {
      const mixed = Array.from({ length: heads * head_dim }, (_, at) => {
        const head = Math.floor(at / head_dim);
        const kv = Math.floor(head / (heads / kv_heads)) * head_dim;
        const seen = keys.slice(Math.max(0, p - window + 1), p + 1);
        const scores = seen.map((key) =>
          Math.exp(
            sum(
              Array.from({ length: head_dim }, (_, i) => get(queries[p] ?? [], head * head_dim + i) * get(key, kv + i)),
            ) / Math.sqrt(head_dim),
          ),
        );
        const seen_values = values.slice(Math.max(0, p - window + 1), p + 1);
        return sum(scores.map((score, i) => score * get(seen_values[i] ?? [], kv + (at % head_dim)))) / sum(scores);
      });
      const attended = plus(x, times(layer.output, mixed));
      const gate = times(layer.gate, norm(attended)).map((g) => g / (1 + Math.exp(-g)));
      const up = times(layer.up, norm(attended));
      return plus(
        attended,
        times(
          layer.down,
          gate.map((g, i) => g * get(up, i)),
        ),
      );
    });
  }
  return plus(times(weights.head, norm(xs.at(-1) ?? [])), Array.from(weights.head_bias));
}

test('reading token by token with a cache equals the whole network computed at once', () => {
  const ids = tokens(40);
  expect(difference(logitsAfter(ids), reference(model.weights, ids))).toBeLessThan(2e-3);
});

test('a fork continues like its origin and leaves it alone', () => {
  const ids = tokens(50);
  const origin = new Sequence(model.weights);
  for (const id of ids) origin.read(id);
  const fork = origin.fork();
  const more = tokens(30, 3);
  for (const id of more) fork.read(id);
  for (const id of tokens(40, 5)) origin.read(id);
  const out = new Float32Array(size);
  fork.logits(out);
  expect(out).toEqual(logitsAfter([...ids, ...more]));
});

test('what is further back than the reach of the window changes nothing, what is nearer does', () => {
  const tail = tokens(REACH);
  const whole = logitsAfter([...tokens(300, 3), ...tail]);
  expect(difference(whole, logitsAfter(tail, 300))).toBeLessThan(1e-3);
  const other = [...tail];
  other[REACH - 200] = ((other[REACH - 200] ?? 0) + 1) % size;
  expect(difference(whole, logitsAfter(other, 300))).toBeGreaterThan(1e-3);
});

test('the building blocks give the values of their definitions', () => {
  const out = new Float32Array(2);
  multiply(
    out,
    { rows: 2, cols: 5, data: Float32Array.of(1, 2, 3, 4, 5, 0, -1, 0, 1, 0.5) },
    Float32Array.of(1, 1, 2, 2, 10),
  );
  expect([...out]).toEqual([67, 6]);

  const normed = new Float32Array(2);
  rmsNorm(normed, Float32Array.of(3, 4), 0);
  expect(difference(normed, [3 / Math.sqrt(12.5), 4 / Math.sqrt(12.5)])).toBeLessThan(1e-6);

  const probabilities = Float32Array.of(Math.log(1), Math.log(2), Math.log(5), 99);
  softmax(probabilities, 3);
  expect(difference(probabilities, [0.125, 0.25, 0.625, 99])).toBeLessThan(1e-6);

  const turned = Float32Array.of(1, 0, 0, 1);
  rotate(turned, 2, 4, 100);
  expect(difference(turned, [Math.cos(2), Math.sin(2), -Math.sin(0.2), Math.cos(0.2)])).toBeLessThan(1e-6);

  const gate = Float32Array.of(0, 2);
  swiglu(gate, Float32Array.of(7, 3));
  expect(difference(gate, [0, 6 / (1 + Math.exp(-2))])).toBeLessThan(1e-6);
});
