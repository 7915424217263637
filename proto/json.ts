// Finds the members of a JSON object in its text, so that a text can be cut and spliced without re-encoding.

/** One member of an object, by offsets into the text: `text.slice(valueStart, valueEnd)` is the value as written. */
export interface Member {
  /** The decoded key. */
  readonly key: string;
  readonly keyStart: number;
  readonly valueStart: number;
  readonly valueEnd: number;
}

/** The text is not one JSON object. The message names the error and never quotes the text. */
export class JsonTextError extends Error {
  override readonly name = 'JsonTextError';
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * Whether a JSON text has at most `max` names and values; empty objects and arrays count twice. Untrusted text is checked before it is
 * parsed, because the cost of parsing grows with this count, which can be half the text's length.
 */
export function hasAtMost(text: string, max: number): boolean {
  if (text.length <= max) return true;
  let count = 0;
  let strings = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '"') {
      // A text with more strings than names and values is no JSON, so the rest is not read.
      if (++strings > max + 1) return false;
      const end = endOfString(text, i);
      if (end < 0) return true;
      i = end - 1;
    }
    // One of these precedes every name and every value except the first.
    else if ((c === ',' || c === ':' || c === '[' || c === '{') && ++count > max) return false;
  }
  return true;
}

/** A JSON text without the white space around it, which belongs to no value. */
export function withoutSpaceAround(text: string): string {
  const from = skipSpace(text, 0);
  let to = text.length;
  while (to > from && isSpace(text.charCodeAt(to - 1))) to--;
  return text.slice(from, to);
}

/** The offset of the first character from `at` on that is no white space of JSON. */
export function skipSpace(text: string, at: number): number {
  let i = at;
  while (isSpace(text.charCodeAt(i))) i++;
  return i;
}

function isSpace(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}

function skipString(text: string, at: number): number {
  const end = endOfString(text, at);
  if (end < 0) throw new JsonTextError('a string does not end');
  return end;
}

/** Returns the offset after the string whose opening quote is at `at`, or -1. It searches with indexOf, because a text may be megabytes. */
function endOfString(text: string, at: number): number {
  for (let quote = at; ; ) {
    quote = text.indexOf('"', quote + 1);
    if (quote < 0) return -1;
    let escapes = 0;
    while (text.charCodeAt(quote - 1 - escapes) === BACKSLASH) escapes++;
    if (escapes % 2 === 0) return quote + 1;
  }
}

/** The offset after the value that begins at `at`. It does not validate. @throws {JsonTextError} when the value does not end. */
export function endOfValue(text: string, at: number): number {
  const c = text.charCodeAt(at);
  if (c === QUOTE) return skipString(text, at);
  if (c !== 0x7b && c !== 0x5b) {
    let i = at;
    while (i < text.length && !',]} \n\r\t'.includes(text[i] as string)) i++;
    if (i === at) throw new JsonTextError('a value is missing');
    return i;
  }
  let depth = 0;
  for (let i = at; i < text.length; ) {
    const d = text.charCodeAt(i);
    if (d === QUOTE) {
      i = skipString(text, i);
      continue;
    }
    if (d === 0x7b || d === 0x5b) depth++;
    else if (d === 0x7d || d === 0x5d) depth--;
    i++;
    if (depth === 0) return i;
  }
  throw new JsonTextError('an object or array does not end');
}

/**
 * Returns the top-level members of a JSON object, in order, duplicates included. It finds offsets and does not validate: the text must be
 * valid for `JSON.parse`, or the parts must be parsed afterwards.
 * @throws {JsonTextError} when the text is not an object.
 */
export function topLevelMembers(text: string): Member[] {
  const members: Member[] = [];
  let i = skipSpace(text, 0);
  if (text[i] !== '{') throw new JsonTextError('not a JSON object');
  i = skipSpace(text, i + 1);
  if (text[i] === '}') return finish(text, i, members);
  for (;;) {
    if (text.charCodeAt(i) !== QUOTE) throw new JsonTextError('a member has no name');
    const keyStart = i;
    const keyEnd = skipString(text, i);
    i = skipSpace(text, keyEnd);
    if (text[i] !== ':') throw new JsonTextError('a member has no value');
    const valueStart = skipSpace(text, i + 1);
    const valueEnd = endOfValue(text, valueStart);
    members.push({ key: JSON.parse(text.slice(keyStart, keyEnd)) as string, keyStart, valueStart, valueEnd });
    i = skipSpace(text, valueEnd);
    if (text[i] === '}') return finish(text, i, members);
    if (text[i] !== ',') throw new JsonTextError('members are not separated by a comma');
    i = skipSpace(text, i + 1);
  }
}

function finish(text: string, brace: number, members: Member[]): Member[] {
  if (skipSpace(text, brace + 1) !== text.length) throw new JsonTextError('text follows the object');
  return members;
}

/**
 * Returns the offsets of each element of a JSON array in its text. Like {@link topLevelMembers}, it does not validate.
 * @throws {JsonTextError} when the text is not an array.
 */
export function arrayElements(text: string): Pick<Member, 'valueStart' | 'valueEnd'>[] {
  const elements: Pick<Member, 'valueStart' | 'valueEnd'>[] = [];
  let i = skipSpace(text, 0);
  if (text[i] !== '[') throw new JsonTextError('not a JSON array');
  i = skipSpace(text, i + 1);
  while (text[i] !== ']') {
    const valueEnd = endOfValue(text, i);
    elements.push({ valueStart: i, valueEnd });
    i = skipSpace(text, valueEnd);
    if (text[i] === ',') i = skipSpace(text, i + 1);
    else if (text[i] !== ']') throw new JsonTextError('elements are not separated by a comma');
  }
  return elements;
}

/** The text without the member at `index` of `members`. Every other byte is kept. */
export function withoutMember(text: string, members: readonly Member[], index: number): string {
  const member = members[index];
  if (member === undefined) return text;
  const next = members[index + 1];
  if (next !== undefined) return text.slice(0, member.keyStart) + text.slice(next.keyStart);
  // A last member is removed with the comma before it. Space before that comma stays, which reverses withLastMember.
  const from = index === 0 ? member.keyStart : text.lastIndexOf(',', member.keyStart);
  return text.slice(0, from) + text.slice(member.valueEnd);
}

/**
 * Inserts `,"key":value` before the last `}` of an object's text; the inverse of {@link withoutMember} for a last member.
 * @throws {JsonTextError}
 */
export function withLastMember(text: string, key: string, valueJson: string): string {
  const brace = text.lastIndexOf('}');
  if (brace < 0) throw new JsonTextError('not a JSON object');
  const comma = text.slice(0, brace).trimEnd().endsWith('{') ? '' : ',';
  return `${text.slice(0, brace)}${comma}${JSON.stringify(key)}:${valueJson}${text.slice(brace)}`;
}

/** Whether a parsed value is an object, and no array. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * `JSON.parse`, with a correction for the names of top-level members: V8 12.8 to 14.6 can read an escaped name as an earlier name that
 * contains a backslash (nodejs/node#63785). Names in nested objects are not corrected.
 * @throws {SyntaxError}
 */
export function parseJson(text: string): unknown {
  const value: unknown = JSON.parse(text);
  if (!isObject(value)) return value;
  for (const name in value) if (name.includes('\\')) return readByMembers(text);
  return value;
}

function readByMembers(text: string): Record<string, unknown> {
  const members = topLevelMembers(text);
  return Object.fromEntries(
    members.map(({ key, valueStart, valueEnd }) => [key, JSON.parse(text.slice(valueStart, valueEnd)) as unknown]),
  );
}

/**
 * Parses a JSON text in which each object names a member once: parsers differ in which of two they take.
 * @throws {SyntaxError} it is not JSON. @throws {JsonTextError} an object, at any depth, names a member twice.
 */
export function parseStrict(text: string): unknown {
  const value = parseJson(text);
  if (duplicateMember(text) !== null) throw new JsonTextError('a member appears twice');
  return value;
}

/** Returns a name that occurs twice in one object, at any depth, or is `forbidden`; null: there is none. @param text JSON. */
export function duplicateMember(text: string, forbidden?: string): string | null {
  // For each open object the set of its names; for each open array null.
  const open: (Set<string> | null)[] = [];
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '{') open.push(new Set());
    else if (c === '[') open.push(null);
    else if (c === '}' || c === ']') open.pop();
    else if (c === '"') {
      const end = skipString(text, i);
      const names = open.at(-1) ?? null;
      if (names !== null && text[skipSpace(text, end)] === ':') {
        const name = JSON.parse(text.slice(i, end)) as string;
        if (name === forbidden || names.has(name)) return name;
        names.add(name);
      }
      i = end - 1;
    }
  }
  return null;
}
