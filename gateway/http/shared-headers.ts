// Headers that go out with one answer after the other as they are: what is written of them is kept with them.

const WRITTEN = Symbol('written');

interface Written {
  readonly names: ReadonlySet<string>;
  /** What their one writer made of them. */
  kept: unknown;
}

/** Headers like any others, to whoever does not know that something is kept with them. */
export type SharedHeaders = Readonly<Record<string, string | string[]>> & { readonly [WRITTEN]: Written };

/** `headers`: names in lower case. They are frozen. */
export function share(headers: Record<string, string | string[]>): SharedHeaders {
  // Not enumerable: a copy with another header in it is not shared.
  const written: Written = { names: new Set(Object.keys(headers)), kept: null };
  return Object.freeze(Object.defineProperty(headers, WRITTEN, { value: written })) as SharedHeaders;
}

export function isShared(headers: object): headers is SharedHeaders {
  return WRITTEN in headers;
}

export const writtenOf = (headers: SharedHeaders): Written => headers[WRITTEN];
