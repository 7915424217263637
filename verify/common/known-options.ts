// Names of options. A misspelt one would be ignored, and with it what the caller demands, so it is an error.

/** Every name of an options object, so that the compiler finds one that is missing here. */
export type Names<T> = Readonly<Record<keyof T, true>>;
/** The names of one member's options. */
export type Part<T, K extends keyof T> = Names<NonNullable<T[K]>>;

/** The names without some of them. */
export function namesBut<N extends object, K extends keyof N & string>(names: N, ...left: readonly K[]): Omit<N, K> {
  const kept = Object.entries(names).filter(([name]) => !(left as readonly string[]).includes(name));
  return Object.fromEntries(kept) as Omit<N, K>;
}

/** @param known has the names as its own. @throws {TypeError} */
export function refuseUnknown(options: object | undefined, known: object, where = ''): void {
  const name = Object.keys(options ?? {}).find((one) => !Object.hasOwn(known, one));
  if (name !== undefined)
    throw new TypeError(
      `there is no option ${where}${name}: the nearest is ${where}${nearest(name, Object.keys(known))}`,
    );
}

/** The one of `known` that is most like a misspelt name. */
export function nearest(name: string, known: readonly string[]): string {
  const [first = ''] = known.toSorted((a, b) => distance(name, a) - distance(name, b));
  return first;
}

/** How many characters must be added, removed or changed (Levenshtein), whatever their case. */
export function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (const [i, character] of [...a.toLowerCase().slice(0, 64)].entries()) {
    const next = [i + 1];
    for (const [j, other] of [...b.toLowerCase()].entries())
      next.push(Math.min((row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1, (row[j] ?? 0) + (character === other ? 0 : 1)));
    row = next;
  }
  return row.at(-1) ?? 0;
}
