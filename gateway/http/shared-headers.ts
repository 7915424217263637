// Headers that many responses share unchanged. Their encoded form is cached with them.

const CACHE = Symbol('written');

interface HeaderCache {
  readonly names: ReadonlySet<string>;
  /** The encoded form, made by the one module that writes these headers. */
  encoded: unknown;
}

/** Headers with a cache attached. Other code reads them as a plain object. */
export type SharedHeaders = Readonly<Record<string, string | string[]>> & { readonly [CACHE]: HeaderCache };

/** Attaches a cache to `headers`, whose names are in lower case, and freezes them. */
export function share(headers: Record<string, string | string[]>): SharedHeaders {
  // The cache is not enumerable, so that a copy with another header does not carry it along.
  const cache: HeaderCache = { names: new Set(Object.keys(headers)), encoded: null };
  return Object.freeze(Object.defineProperty(headers, CACHE, { value: cache })) as SharedHeaders;
}

export function isShared(headers: object): headers is SharedHeaders {
  return CACHE in headers;
}

export const cacheOf = (headers: SharedHeaders): HeaderCache => headers[CACHE];
