// A reader of what others wrote: what it is given, and what of that is counted.

/** One input: as text, and as bytes. */
export interface Given {
  readonly text: string;
  readonly bytes: Buffer<ArrayBuffer>;
}

export interface Reader {
  readonly name: string;
  /** The formats that it is given. */
  readonly formats: readonly string[];
  /** What is done before the counting begins, and what is counted. */
  readonly begin: (given: Given) => () => unknown;
  /** How much of a format's size it is given: the whole of it by default. */
  readonly share?: number;
}

/** All of an input at once. */
export const reader = (name: string, formats: readonly string[], run: (given: Given) => unknown): Reader => ({
  name,
  formats,
  begin: (given) => () => run(given),
});

/** With something that is made of the input before: an input of which it cannot be made is none. */
export const prepared = <T>(
  name: string,
  formats: readonly string[],
  prepare: (given: Given) => T,
  run: (made: T) => unknown,
): Reader => ({
  name,
  formats,
  begin: (given) => {
    let made: T;
    try {
      made = prepare(given);
    } catch {
      return () => {};
    }
    return () => run(made);
  },
});

/** The bytes in pieces of each size, and whole. Each piece has memory of its own, as what comes from a network has. */
export const inChunks = (
  name: string,
  formats: readonly string[],
  run: (pieces: readonly Buffer<ArrayBuffer>[]) => unknown,
  sizes: readonly number[] = [1, 7, 64, Number.POSITIVE_INFINITY],
): Reader[] =>
  sizes.map((size) => ({
    ...prepared(
      `${name}, ${Number.isFinite(size) ? `in pieces of ${size}` : 'whole'}`,
      formats,
      ({ bytes }) => piecesOf(bytes, size),
      run,
    ),
    share: size === 1 ? 1 / 2 : 1,
  }));

function piecesOf(bytes: Buffer<ArrayBuffer>, size: number): Buffer<ArrayBuffer>[] {
  const pieces: Buffer<ArrayBuffer>[] = [];
  for (let at = 0; at < bytes.length; at += size) pieces.push(Buffer.from(bytes.subarray(at, at + size)));
  return pieces;
}
