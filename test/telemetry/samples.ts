// Reads Prometheus text as strictly as the tests need: every line a comment or a sample, every sample announced.

export interface Samples {
  /** The metrics that # TYPE announces, with their types. */
  readonly types: ReadonlyMap<string, string>;
  /** The sum over all series of `name` whose labels include these; null where there is none. */
  value(name: string, labels?: Record<string, string>): number | null;
  /** All values of one label of one metric. */
  values(name: string, label: string): Set<string>;
}

const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)$/;

/** @throws {Error} on a line that is neither, or a sample without its # TYPE. */
export function parseSamples(text: string): Samples {
  const types = new Map<string, string>();
  const helps = new Set<string>();
  const samples: { name: string; labels: Map<string, string>; value: number }[] = [];
  for (const line of text.split('\n')) {
    if (line === '') continue;
    const type = /^# TYPE (\S+) (counter|gauge|histogram|summary)$/.exec(line);
    const help = /^# HELP (\S+) .+$/.exec(line);
    if (type !== null) types.set(type[1] ?? '', type[2] ?? '');
    else if (help !== null) helps.add(help[1] ?? '');
    else samples.push(parseSample(line));
  }
  for (const { name } of samples) {
    const base = types.has(name) ? name : name.replace(/_(bucket|sum|count)$/, '');
    if (!types.has(base) || !helps.has(base)) throw new Error(`not announced: ${name}`);
  }
  const find = (name: string, labels: Record<string, string>) =>
    samples.filter(
      (one) => one.name === name && Object.entries(labels).every(([key, value]) => one.labels.get(key) === value),
    );
  return {
    types,
    value(name, labels = {}) {
      const found = find(name, labels);
      return found.length === 0 ? null : found.reduce((sum, one) => sum + one.value, 0);
    },
    values: (name, label) => new Set(find(name, {}).map((one) => one.labels.get(label) ?? '')),
  };
}

function parseSample(line: string) {
  const match = SAMPLE.exec(line);
  // The event loop's lag has no mean between two looks in a row. Prometheus reads NaN in any case of its letters.
  const nan = /^nan$/i.test(match?.[3] ?? '');
  const value = Number(match?.[3]?.replace('+Inf', 'Infinity').replace('-Inf', '-Infinity'));
  if (match === null || (Number.isNaN(value) && !nan)) throw new Error(`not a sample: ${line}`);
  const pairs = [...(match[2] ?? '').matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)];
  return { name: match[1] ?? '', labels: new Map(pairs.map((pair) => [pair[1] ?? '', pair[2] ?? ''])), value };
}
