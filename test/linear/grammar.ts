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

/** Valid JSON values that are large. */
export const VALUES: Productions = {
  'a long string': within('"', repeat('x'), '"'),
  'a string of escapes': within('"', repeat('\\\\'), '"'),
  'a string of escaped quotes': within('"', repeat('\\"'), '"'),
  'a string of escaped letters': within('"', repeat('\\u0061'), '"'),
  'a string beyond ASCII': within('"', repeat('é\u2028😀'), '"'),
  'a string of braces': within('"', repeat('}'), '"'),
  'a long number': within('1', repeat('0'), ''),
  'a long fraction': within('0.', repeat('0'), '1'),
  numbers: within('[', repeat('1,'), '1]'),
  'numbers that keep their text': within('[', repeat('1.0,'), '1e5]'),
  strings: within('[', repeat('"x",'), '"x"]'),
  'empty lists': within('[', repeat('[],'), '[]]'),
  'empty objects': within('[', repeat('{},'), '{}]'),
  'lists in lists': (n) => nested('[', '1', ']')(Math.min(n, 1_000)),
  'objects in objects': (n) => nested('{"a":', '1', '}')(Math.min(n, 3_000)),
  'many members': within(
    '{',
    each((i) => `"m${i}":1,`),
    '"z":1}',
  ),
  'many names that are escaped': within(
    '{',
    each((i) => `"\\u006d${i}":1,`),
    '"z":1}',
  ),
  'many names with a backslash': within(
    '{',
    each((i) => `"\\\\m${i}":1,`),
    '"z":1}',
  ),
  'many numbers as names': within(
    '{',
    each((i) => `"${100_000 - i}":1,`),
    '"z":1}',
  ),
  'one name, again and again': within('{', repeat('"a":1,'), '"a":1}'),
  'a long name': within('{"', repeat('x'), '":1}'),
  'names of different case': within(
    '{',
    each((i) => `"${i.toString(2).padStart(14, '0').replace(/0/g, 'a').replace(/1/g, 'A')}":1,`),
    '"z":1}',
  ),
  'space between': within('[1', repeat(' \n\t\r'), ',1]'),
  'space before each colon': within(
    '{',
    each((i) => `"m${i}"${' '.repeat(20)}:1,`),
    '"z":1}',
  ),
  'objects of one shape': within('[', repeat('{"index":0,"a":"b"},'), '{}]'),
  'objects by index': within(
    '[',
    each((i) => `{"index":${i},"a":"b"},`),
    '{}]',
  ),
};

const some = (...names: readonly string[]): Productions =>
  Object.fromEntries(Object.entries(VALUES).filter(([name]) => names.includes(name)));
export const FEW = some(
  'a string of escapes',
  'a string beyond ASCII',
  'numbers',
  'many members',
  'empty objects',
  'lists in lists',
);
