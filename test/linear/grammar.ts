// What inputs are made of: productions that write a text of about `n` characters, and how they are put together.

/** Writes about `n` characters. */
export type Production = (n: number) => string;
export type Productions = Readonly<Record<string, Production>>;

/** Everything that readers of one kind of input are given. */
export interface Format {
  readonly name: string;
  /** Most characters that are written; small enough that no limit of a reader ends its work early. */
  readonly most: number;
  /** Texts are read as UTF-8; `bytes`: each character is a byte. */
  readonly encoding: 'utf8' | 'latin1';
  readonly productions: Readonly<Record<string, (n: number) => string | Promise<string>>>;
}

export const repeat =
  (token: string): Production =>
  (n) =>
    token.repeat(Math.max(1, Math.floor(n / token.length)));

/** Tokens that differ by their place, up to `n` characters. */
export const each =
  (token: (i: number) => string): Production =>
  (n) => {
    const out: string[] = [];
    for (let i = 0, length = 0; length < n; i++) {
      const next = token(i);
      length += next.length;
      out.push(next);
    }
    return out.join('');
  };

export const within =
  (before: string, inner: Production, after: string): Production =>
  (n) =>
    before + inner(n) + after;

/** One after the other, half of the text each. */
export const halves =
  (one: Production, other: Production): Production =>
  (n) =>
    one(n / 2) + other(n / 2);

export const nested =
  (open: string, inner: string, close: string): Production =>
  (n) => {
    const depth = Math.max(1, Math.floor(n / (open.length + close.length)));
    return open.repeat(depth) + inner + close.repeat(depth);
  };

/** Lines of one token, and as many of them as they have tokens. */
export const square =
  (token: string, end: string): Production =>
  (n) => {
    const side = Math.max(1, Math.floor(Math.sqrt(n / token.length)));
    return (token.repeat(side) + end).repeat(side);
  };

/** In the order in which they were written, the last first. */
export const backwards =
  (count: (n: number) => number, token: (i: number) => string, between = ''): Production =>
  (n) =>
    Array.from({ length: count(n) }, (_, i) => token(count(n) - 1 - i)).join(between);

const shown = (token: string): string => JSON.stringify(token.length > 24 ? `${token.slice(0, 24)}…` : token);

/** Each word again and again, in each frame. */
export function words(
  tokens: readonly string[],
  frames: readonly (readonly [string, string])[] = [['', '']],
): Productions {
  const all: Record<string, Production> = {};
  for (const [before, after] of frames)
    for (const token of tokens)
      all[`${shown(before)} ${shown(token)}… ${shown(after)}`] = within(before, repeat(token), after);
  return all;
}

/** Each pair of words: lines of the one that end in the other, and many of the one before many of the other. */
export function pairs(tokens: readonly string[], [before, after]: readonly [string, string] = ['', '']): Productions {
  const all: Record<string, Production> = {};
  for (const one of tokens)
    for (const other of tokens) {
      if (one === other) continue;
      const name = `${shown(one)} ${shown(other)}`;
      all[`${name} square`] = within(before, square(one, other), after);
      if (one < other) all[`${name} halves`] = within(before, halves(repeat(one), repeat(other)), after);
    }
  return all;
}

/** Each of the `inner` texts, in each of the shapes that a text may stand in. */
export function shaped(shapes: Readonly<Record<string, (text: string) => string>>, inner: Productions): Productions {
  const all: Record<string, Production> = {};
  for (const [shape, put] of Object.entries(shapes))
    for (const [name, production] of Object.entries(inner)) all[`${shape}: ${name}`] = (n) => put(production(n));
  return all;
}
