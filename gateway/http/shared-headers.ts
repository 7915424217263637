// Headers that go out with one answer after the other as they are: what is written of them is kept with them.

const CACHE = Symbol('written');

interface HeaderCache {
  readonly names: ReadonlySet<string>;
  /** What their one writer made of them. */
  encoded: unknown;
}

/** Headers like any others, to whoever does not know that something is kept with them. */
export type SharedHeaders = Readonly<Record<string, string | string[]>> & { readonly [CACHE]: HeaderCache };

/** `headers`: names in lower case. They are frozen. */
export function share(headers: Record<string, string | string[]>): SharedHeaders {
  // Not enumerable: a copy with another header in it is not shared.
  const cache: HeaderCache = { names: new Set(Object.keys(headers)), encoded: null };
  return Object.freeze(Object.defineProperty(headers, CACHE, { value: cache })) as SharedHeaders;
}

export function isShared(headers: object): headers is SharedHeaders {
  return CACHE in headers;
}

export const cacheOf = (headers: SharedHeaders): HeaderCache => headers[CACHE];
