// Compares JSON texts and values: whether they are the same, or one is a part of the other.

import { skipSpace } from '../../proto/json.ts';
import { isKeptNumber, keptText, numberOf } from '../../proto/kept-numbers.ts';
import { APPENDED } from '../../proto/stream/fold.ts';

/** Whether two texts are equal apart from white space between JSON tokens. `signed` is JSON: raw was parsed. */
export function sameTokens(held: string, signed: string): boolean {
  // In JSON, two tokens never become one when the white space between them is removed. A text that is parsed has no more values than raw.
  return held === signed || (sameWithoutSpace(held, signed) && isJson(held));
}

function sameWithoutSpace(held: string, signed: string): boolean {
  let inString = false;
  for (let i = 0, j = 0; ; i++, j++) {
    if (!inString) {
      i = skipSpace(held, i);
      j = skipSpace(signed, j);
    }
    if (held[i] !== signed[j]) return false;
    if (i >= held.length) return true;
    if (held[i] === '"') inString = !inString;
    else if (inString && held[i] === '\\' && held[++i] !== signed[++j]) return false;
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * Whether two JSON values are the same, whatever the order of members. A number that kept its text equals the same text, or its
 * value in JavaScript, because clients save parsed numbers. There is no recursion, because values may be of any depth.
 */
export function sameValue(held: unknown, signed: unknown): boolean {
  const pairs: [unknown, unknown][] = [[held, signed]];
  for (let pair = pairs.pop(); pair !== undefined; pair = pairs.pop()) {
    const [x, y] = pair;
    if (sameScalar(x, y)) continue;
    if (!isContainer(x) || !isContainer(y) || Array.isArray(x) !== Array.isArray(y)) return false;
    const names = Object.keys(x);
    if (names.length !== Object.keys(y).length || !names.every((name) => Object.hasOwn(y, name))) return false;
    for (const name of names) pairs.push([x[name], y[name]]);
  }
  return true;
}

/** An object or an array. */
const isContainer = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !isKeptNumber(value);

function sameScalar(held: unknown, signed: unknown): boolean {
  if (held === signed) return true;
  if (!isKeptNumber(signed)) return false;
  return isKeptNumber(held) ? keptText(held) === keptText(signed) : held === numberOf(signed);
}

/** Deeper than any chunk of a completion. */
const MAX_DEPTH = 32;

/**
 * Whether `part`, one chunk folded by itself, fits `whole`, which all chunks fold into: the texts of `whole` that grow end with those
 * of `part`, and everything else in `part` is the same in `whole`.
 */
export function isPartOf(part: unknown, whole: unknown, grows = false, depth = 0): boolean {
  if (depth > MAX_DEPTH) return false;
  if (part === null || sameScalar(part, whole)) return true;
  if (typeof part === 'string') return grows && textOf(whole).endsWith(part);
  if (!isContainer(part) || !isContainer(whole) || Array.isArray(part) !== Array.isArray(whole)) return false;
  if (Array.isArray(part) && Array.isArray(whole)) {
    // The fold keeps items in order, so each item of the whole is compared once.
    let at = 0;
    const next = (item: unknown) => {
      const fits = (other: unknown) => sameIndex(item, other) && isPartOf(item, other, false, depth + 1);
      while (at < whole.length && !fits(whole[at])) at++;
      return at++ < whole.length;
    };
    return part.every(next);
  }
  return namesOf(part).every(
    (name) => Object.hasOwn(whole, name) && isPartOf(part[name], whole[name], APPENDED.has(name), depth + 1),
  );
}

/** The text itself, or that of the last part of a content. */
function textOf(whole: unknown): string {
  const last: unknown = Array.isArray(whole) ? whole.at(-1) : { text: whole };
  const { text } = isContainer(last) ? last : {};
  return typeof text === 'string' ? text : '';
}

/** Cached, because an object of the part is compared with many objects of the whole. */
const names = new WeakMap<object, readonly string[]>();

function namesOf(part: object): readonly string[] {
  const known = names.get(part) ?? Object.keys(part);
  names.set(part, known);
  return known;
}

const sameIndex = (a: unknown, b: unknown) =>
  sameScalar(isContainer(a) ? a.index : undefined, isContainer(b) ? b.index : undefined);
