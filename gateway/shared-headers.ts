// Headers that go out with one answer after the other as they are: what is written of them is kept with them.

const WRITTEN = Symbol('written');

/** For whoever takes an object it is one as any other. */
export type SharedHeaders = Readonly<Record<string, string | string[]>> & { readonly [WRITTEN]: { kept: unknown } };

/** `headers`: names in lower case. They are frozen. */
export function share(headers: Record<string, string | string[]>): SharedHeaders {
  // Not enumerable: a copy with another header in it is not shared.
  return Object.freeze(Object.defineProperty(headers, WRITTEN, { value: { kept: null } })) as SharedHeaders;
}

export function isShared(headers: object): headers is SharedHeaders {
  return WRITTEN in headers;
}

/** A place for what its one writer made of them. */
export const writtenOf = (headers: SharedHeaders): { kept: unknown } => headers[WRITTEN];
