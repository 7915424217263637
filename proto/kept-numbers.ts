// JSON numbers that keep their source text: `1.0`, 20-digit integers and `1e-05` survive a parse and a stringify. ECMAScript has this as
// "JSON.parse source text access" (ES2026). On runtimes that lack it, such as Node 20, the JSON text is edited instead.
import { isObject } from './json.ts';

interface Numbers {
  /** `JSON.parse` whose numbers stringify to their source text. A number that would change is an object. @throws {SyntaxError} */
  parse(text: string): unknown;
  /** `JSON.stringify` of what `parse` returned, or of values that hold parts of it. */
  stringify(value: unknown): string;
  /** True for a number that `parse` kept as text. */
  isKept(value: unknown): value is KeptNumber;
}

/** A parsed value. A number that is kept as text is an object. */
export type Json = null | boolean | number | string | object;
export type JsonObject = Record<string, Json>;

/** A number that is kept as text, by ECMAScript's `JSON.rawJSON` or by {@link byText}. */
interface KeptNumber {
  readonly rawJSON: string;
}

/** Matches texts that may contain a number which JavaScript prints differently: long, tiny, with an exponent, a trailing zero or -0. */
const RISKY = /[0-9.]{16}|[0-9][eE]|\.[0-9]*0(?![0-9])|0\.0{5}|-0(?!\.)/;

interface RawJson {
  rawJSON(text: string): KeptNumber;
  isRawJSON(value: unknown): value is KeptNumber;
}

/** Keeps numbers with ECMAScript's own `JSON.rawJSON`. */
export function native({ rawJSON, isRawJSON }: RawJson): Numbers {
  const keep = (_key: string, value: unknown, { source }: { source?: string }): unknown =>
    typeof value !== 'number' || source === undefined || source === String(value) ? value : rawJSON(source);
  return {
    parse: (text) =>
      RISKY.test(text) ? JSON.parse(text, keep as (key: string, value: unknown) => unknown) : JSON.parse(text),
    stringify: JSON.stringify,
    isKept: (value): value is KeptNumber => isRawJSON(value),
  };
}

/** Keeps numbers by editing the text: those that would change are marked strings while JSON is parsed and while it is written. */
export function byText(): Numbers {
  // Random, so that no foreign text contains it.
  const id = crypto.randomUUID();
  const mark = `number ${id} `;
  class Kept implements KeptNumber {
    readonly rawJSON: string;
    constructor(source: string) {
      this.rawJSON = source;
      Object.freeze(this);
    }
    toJSON(): string {
      return mark + this.rawJSON;
    }
  }
  const unmarked = (_key: string, value: unknown): unknown =>
    typeof value === 'string' && value.startsWith(mark) ? new Kept(value.slice(mark.length)) : value;
  return {
    parse(text) {
      const value: unknown = JSON.parse(text);
      return RISKY.test(text) ? JSON.parse(marked(text, mark), unmarked) : value;
    },
    stringify: (value) =>
      JSON.stringify(value).replace(WRITTEN, (found, markId: string, source: string) =>
        markId === id ? source : found,
      ),
    isKept: (value): value is KeptNumber => value instanceof Kept,
  };
}

const WRITTEN = /"number ([-0-9a-f]{36}) ([-+.0-9eE]+)"/g;
const NUMBER = /-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?/y;

/** Replaces each number that would change by a string that begins with `mark`. @param text JSON */
function marked(text: string, mark: string): string {
  let out = '';
  let from = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 0x22) {
      // Skips to the end of the string: the next quote that no backslash escapes.
      for (i++; text.charCodeAt(i) !== 0x22; i++) if (text.charCodeAt(i) === 0x5c) i++;
    } else if (c === 0x2d || (c >= 0x30 && c <= 0x39)) {
      NUMBER.lastIndex = i;
      const source = NUMBER.exec(text)?.[0] ?? '';
      if (source !== String(Number(source))) {
        out += `${text.slice(from, i)}"${mark}${source}"`;
        from = i + source.length;
      }
      i += source.length - 1;
    }
  }
  return out + text.slice(from);
}

const { parse, stringify, isKept } = 'rawJSON' in JSON ? native(JSON as unknown as RawJson) : byText();

export const parseKeepingNumbers = parse;
export const stringifyKeepingNumbers = stringify;

/** True for a number that {@link parseKeepingNumbers} kept as text. */
export function isKeptNumber(value: unknown): value is object {
  return isKept(value);
}

/** Whether a value that {@link parseKeepingNumbers} returned is an object, which a kept number is not. */
export const isJsonObject = (value: unknown): value is JsonObject => isObject(value) && !isKeptNumber(value);

/** The source text of a kept number. */
export const keptText = (number: object): string => (number as KeptNumber).rawJSON;

/** The value of a number, kept as text or not; null for any other value. */
export function numberOf(value: unknown): number | null {
  if (typeof value === 'number') return value;
  return isKeptNumber(value) ? Number(keptText(value)) : null;
}
