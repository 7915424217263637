// Headers that go out with one answer after the other as they are: their lines are written once, and kept with them.

const WRITTEN = Symbol('written');

/** For whoever takes an object it is one as any other. */
export type SharedHeaders = Readonly<Record<string, string | string[]>> & { readonly [WRITTEN]: Written };

interface Written {
  /** Those that stand before them. */
  after: SharedHeaders | null;
  /** The lines of both; null where a name is in both. */
  lines: string | null;
}

/** `headers`: names in lower case. They are frozen. */
export function share(headers: Record<string, string | string[]>): SharedHeaders {
  const written: Written = { after: null, lines: null };
  // Not enumerable: a copy with another header in it is not shared.
  return Object.freeze(Object.defineProperty(headers, WRITTEN, { value: written })) as SharedHeaders;
}

export function isShared(headers: object): headers is SharedHeaders {
  return WRITTEN in headers;
}

/** The lines of `first` and then `then`, as `write` makes them, when it is not the same pair as the last time; null where a name is in both. */
export function linesOfBoth(
  first: SharedHeaders,
  then: SharedHeaders,
  write: (headers: SharedHeaders) => string,
): string | null {
  const written = then[WRITTEN];
  if (written.after === first) return written.lines;
  written.lines = Object.keys(then).some((name) => name in first) ? null : write(first) + write(then);
  written.after = first;
  return written.lines;
}
