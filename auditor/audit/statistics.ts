// The exact statistics that the rule needs: the binomial's upper tail, Clopper and Pearson's upper bound, the normal distribution.

/** Lanczos' approximation (g = 7, nine terms): exact to about 15 digits. */
const LANCZOS = [
  0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
  12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
];

function logFactorial(n: number): number {
  const sum = LANCZOS.reduce((total, term, i) => (i === 0 ? term : total + term / (n + i)));
  const t = n + 7.5;
  return 0.5 * Math.log(2 * Math.PI) + (n + 0.5) * Math.log(t) - t + Math.log(sum);
}

/** P(X ≥ k) of a binomial distribution. */
export function binomialTail(n: number, p: number, k: number): number {
  if (k <= 0) return 1;
  if (k > n || p <= 0) return 0;
  if (p >= 1) return 1;
  // The smaller side is summed, from its greatest term: nothing cancels.
  const upper = k > n * p;
  const odds = p / (1 - p);
  let x = upper ? k : k - 1;
  let term = Math.exp(
    logFactorial(n) - logFactorial(x) - logFactorial(n - x) + x * Math.log(p) + (n - x) * Math.log1p(-p),
  );
  let sum = 0;
  while (term > sum * Number.EPSILON && x >= 0 && x <= n) {
    sum += term;
    term *= upper ? ((n - x) / (x + 1)) * odds : x / (n - x + 1) / odds;
    x += upper ? 1 : -1;
  }
  return upper ? sum : 1 - sum;
}

/** The greatest share at which `k` or fewer of `n` are not rarer than `1 - confidence`. */
export const clopperPearsonUpper = (k: number, n: number, confidence: number): number =>
  k >= n ? 1 : bisect((p) => binomialTail(n, p, k + 1) < confidence, 0, 1);

/** The share at which `k` or more of `n` come with this probability. */
export const shareFound = (k: number, n: number, probability: number): number =>
  k > n ? 1 : bisect((p) => binomialTail(n, p, k) < probability, 0, 1);

/** The least count of `n` whose tail is rarer than `alpha`. */
export function leastAlarm(n: number, p: number, alpha: number): number {
  let [low, high] = [0, n + 1];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (binomialTail(n, p, middle) < alpha) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The end of `low` to `high` up to which `isBelow` holds. */
function bisect(isBelow: (x: number) => boolean, low: number, high: number): number {
  let [from, to] = [low, high];
  for (let i = 0; i < 100; i++) {
    const middle = (from + to) / 2;
    if (isBelow(middle)) from = middle;
    else to = middle;
  }
  return (from + to) / 2;
}

/** P(Z > z): the series near 0, the continued fraction in the tail. */
export function normalTail(z: number): number {
  if (z < 0) return 1 - normalTail(-z);
  const density = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);
  if (z < 3) {
    let [term, sum] = [z, z];
    for (let i = 3; Math.abs(term) > Number.EPSILON * sum; i += 2) {
      term *= (z * z) / i;
      sum += term;
    }
    return 0.5 - density * sum;
  }
  let fraction = z;
  for (let i = 100; i > 0; i--) fraction = z + i / fraction;
  return density / fraction;
}

/** The z with P(Z > z) = `tail`. */
export const normalQuantile = (tail: number): number => bisect((z) => normalTail(z) > tail, -40, 40);
