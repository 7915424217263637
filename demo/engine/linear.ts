// The arithmetic of the model on Float32Arrays. Indices are in range by construction here, hence the casts.

/** Row-major: `data[row * cols + col]`. */
export interface Matrix {
  readonly rows: number;
  readonly cols: number;
  readonly data: Float32Array;
}

export function matrix(rows: number, cols: number): Matrix {
  return { rows, cols, data: new Float32Array(rows * cols) };
}

/** out = m · x. Four sums at once: one alone waits for itself. */
export function multiply(out: Float32Array, m: Matrix, x: Float32Array): void {
  const { rows, cols, data } = m;
  for (let row = 0, at = 0; row < rows; row++) {
    let a = 0;
    let b = 0;
    let c = 0;
    let d = 0;
    let col = 0;
    for (; col + 3 < cols; col += 4, at += 4) {
      a += (data[at] as number) * (x[col] as number);
      b += (data[at + 1] as number) * (x[col + 1] as number);
      c += (data[at + 2] as number) * (x[col + 2] as number);
      d += (data[at + 3] as number) * (x[col + 3] as number);
    }
    for (; col < cols; col++, at++) a += (data[at] as number) * (x[col] as number);
    out[row] = a + b + c + d;
  }
}

/** x += y */
export function add(x: Float32Array, y: Float32Array): void {
  for (let i = 0; i < x.length; i++) x[i] = (x[i] as number) + (y[i] as number);
}

/** Dot product of `length` numbers of `a` from `a_at` and of `b` from `b_at`. */
export function dot(a: Float32Array, a_at: number, b: Float32Array, b_at: number, length: number): number {
  let sum = 0;
  for (let i = 0; i < length; i++) sum += (a[a_at + i] as number) * (b[b_at + i] as number);
  return sum;
}

/** out[out_at…] += scale · x[x_at…] */
export function addScaled(
  out: Float32Array,
  out_at: number,
  x: Float32Array,
  x_at: number,
  length: number,
  scale: number,
): void {
  for (let i = 0; i < length; i++) out[out_at + i] = (out[out_at + i] as number) + scale * (x[x_at + i] as number);
}

/** out = x / rms(x): Zhang and Sennrich 2019; the gain is part of the matrix that follows. */
export function rmsNorm(out: Float32Array, x: Float32Array, epsilon = 1e-5): void {
  const scale = 1 / Math.sqrt(dot(x, 0, x, 0, x.length) / x.length + epsilon);
  for (let i = 0; i < x.length; i++) out[i] = (x[i] as number) * scale;
}

/** The first `length` numbers of `x` become probabilities. */
export function softmax(x: Float32Array, length = x.length): void {
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < length; i++) max = Math.max(max, x[i] as number);
  let sum = 0;
  for (let i = 0; i < length; i++) {
    const e = Math.exp((x[i] as number) - max);
    x[i] = e;
    sum += e;
  }
  for (let i = 0; i < length; i++) x[i] = (x[i] as number) / sum;
}

/** ln of the sum of exp: a logit minus this is its log-probability. */
export function logSumExp(x: Float32Array): number {
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < x.length; i++) max = Math.max(max, x[i] as number);
  let sum = 0;
  for (let i = 0; i < x.length; i++) sum += Math.exp((x[i] as number) - max);
  return max + Math.log(sum);
}

/** Rotates the pairs (2i, 2i+1) of every head in `x` by `position · base^(-2i/head_dim)`: Su et al. 2021. */
export function rotate(x: Float32Array, position: number, head_dim: number, base = 10_000): void {
  for (let i = 0; i < head_dim; i += 2) {
    const angle = position * base ** (-i / head_dim);
    const cos = Math.cos(angle);
    const sin = Math.sin(angle);
    for (let at = i; at < x.length; at += head_dim) {
      const a = x[at] as number;
      const b = x[at + 1] as number;
      x[at] = a * cos - b * sin;
      x[at + 1] = a * sin + b * cos;
    }
  }
}

/** gate = silu(gate) · up: Shazeer 2020. */
export function swiglu(gate: Float32Array, up: Float32Array): void {
  for (let i = 0; i < gate.length; i++) {
    const g = gate[i] as number;
    gate[i] = (g / (1 + Math.exp(-g))) * (up[i] as number);
  }
}

/** A number that is known to be there. */
export function at(x: Float32Array | readonly number[], index: number): number {
  return x[index] as number;
}
