// A histogram for what happens with every request. prom-client's looks a label set up by its hash and counts in an object under
// fractional keys, which costs ten times as much; its registry takes any metric that can say what it holds.
import type { Metric, MetricType, Registry } from 'prom-client';

export interface HistogramOptions<Label extends string> {
  readonly name: string;
  readonly help: string;
  readonly labels: readonly Label[];
  /** Upper bounds, ascending. */
  readonly buckets: readonly number[];
}

/** One label set's numbers. */
export class Series {
  readonly counts: Float64Array;
  sum = 0;
  readonly #bounds: readonly number[];

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.counts = new Float64Array(bounds.length + 1);
  }

  observe(value: number): void {
    const bounds = this.#bounds;
    let at = 0;
    while (at < bounds.length && value > (bounds[at] as number)) at++;
    this.counts[at] = (this.counts[at] as number) + 1;
    this.sum += value;
  }
}

type Level<T> = Map<string, T>;

function entry<T>(level: Level<T>, value: string, make: () => T): T {
  const kept = level.get(value) ?? make();
  level.set(value, kept);
  return kept;
}

export class Histogram<Label extends string = never> {
  readonly name: string;
  readonly labelNames: readonly Label[];
  readonly #options: HistogramOptions<Label>;
  /** By the value of each label, in turn: a key made of them would have to be made for every observation. */
  readonly #series: Level<Level<Level<Level<Series>>>> = new Map();
  readonly #all: { readonly values: readonly string[]; readonly series: Series }[] = [];

  constructor(registry: Registry, options: HistogramOptions<Label>) {
    this.name = options.name;
    this.labelNames = options.labels;
    this.#options = options;
    // The registry calls name and get; the rest of the type is its library's inside.
    registry.registerMetric(this as unknown as Metric);
  }

  /** The series of these label values, in the order of the names. Values must come from a bounded set: a series is never dropped. */
  of(first = '', second = '', third = '', fourth = ''): Series {
    const kept = this.#series.get(first)?.get(second)?.get(third)?.get(fourth);
    if (kept !== undefined) return kept;
    const series = new Series(this.#options.buckets);
    const thirds = entry(
      entry(this.#series, first, () => new Map()),
      second,
      () => new Map(),
    );
    entry(thirds, third, () => new Map()).set(fourth, series);
    this.#all.push({ values: [first, second, third, fourth], series });
    return series;
  }

  /** What prom-client's registry asks for when somebody reads the metrics. */
  async get() {
    const { name, help, labels, buckets } = this.#options;
    const values = this.#all.flatMap(({ values, series }) => {
      const own = Object.fromEntries(labels.map((label, i) => [label, values[i] ?? '']));
      let count = 0;
      const bounds = [...buckets, '+Inf'].map((le, i) => {
        count += series.counts[i] as number;
        return { metricName: `${name}_bucket`, labels: { le, ...own }, value: count };
      });
      return [
        ...bounds,
        { metricName: `${name}_sum`, labels: own, value: series.sum },
        { metricName: `${name}_count`, labels: own, value: count },
      ];
    });
    return { name, help, type: 'histogram' as unknown as MetricType, values, aggregator: 'sum' };
  }
}
