// When two JSON texts or values are the same, and when one is a part of the other.
import { isKeptNumber, keptText, numberOf } from '../proto/number.ts';

/** Equal but for white space between JSON tokens. `signed` is JSON: raw was parsed. */
export function sameTokens(held: string, signed: string): boolean {
  if (held === signed) return true;
  // In JSON no white space stands between two tokens that would be one without it.
  if (!isJson(held)) return false;
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

function skipSpace(text: string, from: number): number {
  let at = from;
  while (text[at] === ' ' || text[at] === '\n' || text[at] === '\r' || text[at] === '\t') at++;
  return at;
}

/**
 * The same JSON values, whatever the order of members. A number that kept its text is the same by that, or as JavaScript writes
 * it again: clients save what they parsed. Without recursion: how deep the values are is for others to say.
 */
export function sameValue(held: unknown, signed: unknown): boolean {
  const pairs: [unknown, unknown][] = [[held, signed]];
  for (let pair = pairs.pop(); pair !== undefined; pair = pairs.pop()) {
    const [x, y] = pair;
    if (sameScalar(x, y)) continue;
    if (!isObject(x) || !isObject(y) || Array.isArray(x) !== Array.isArray(y)) return false;
    const names = Object.keys(x);
    if (names.length !== Object.keys(y).length || !names.every((name) => Object.hasOwn(y, name))) return false;
    for (const name of names) pairs.push([x[name], y[name]]);
  }
  return true;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !isKeptNumber(value);

function sameScalar(held: unknown, signed: unknown): boolean {
  if (held === signed) return true;
  if (!isKeptNumber(signed)) return false;
  return isKeptNumber(held) ? keptText(held) === keptText(signed) : held === numberOf(signed);
}

/** Deeper than any chunk of a completion. */
const MAX_DEPTH = 32;
/** Strings that the fold (docs/attestation.md §3) sets and does not append. */
const SET = new Set(['role', 'id', 'type', 'name']);

/**
 * Is `part` one chunk folded by itself, and `whole` what all chunks fold into? Then what it adds to texts stands at their
 * end, and everything else in it is in the whole as it is here.
 */
export function isPartOf(part: unknown, whole: unknown, appended = false, depth = 0): boolean {
  if (depth > MAX_DEPTH) return false;
  if (part === null || sameScalar(part, whole)) return true;
  if (typeof part === 'string') return appended && typeof whole === 'string' && whole.endsWith(part);
  if (!isObject(part) || !isObject(whole) || Array.isArray(part) !== Array.isArray(whole)) return false;
  if (Array.isArray(part) && Array.isArray(whole)) {
    // The fold appends in order, and orders by index: no item of the whole is looked at twice.
    let at = 0;
    const next = (item: unknown) => {
      const fits = (other: unknown) => sameIndex(item, other) && isPartOf(item, other, appended, depth + 1);
      while (at < whole.length && !fits(whole[at])) at++;
      return at++ < whole.length;
    };
    return part.every(next);
  }
  return namesOf(part).every((name) => {
    const text = name === 'text' || ((appended || name === 'message') && !SET.has(name));
    return Object.hasOwn(whole, name) && isPartOf(part[name], whole[name], text, depth + 1);
  });
}

/** An object of a part is held against many of the whole: its names are listed once. */
const names = new WeakMap<object, readonly string[]>();

function namesOf(part: object): readonly string[] {
  const known = names.get(part) ?? Object.keys(part);
  names.set(part, known);
  return known;
}

const sameIndex = (a: unknown, b: unknown) =>
  sameScalar(isObject(a) ? a.index : undefined, isObject(b) ? b.index : undefined);
