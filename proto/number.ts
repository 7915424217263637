// JSON numbers that keep their source text: `1.0`, 20-digit integers and `1e-05` survive a parse and a stringify.
// ECMAScript "JSON.parse source text access" (ES2026): JSON.rawJSON, and the third argument of a reviver.

interface RawJson {
  rawJSON(text: string): object;
  isRawJSON(value: unknown): boolean;
}
const { rawJSON, isRawJSON } = JSON as unknown as RawJson;

/** Texts that can hold a number which JavaScript would print otherwise: long, with an exponent, a trailing zero or -0. */
const RISKY = /[0-9.]{16}|[0-9][eE]|\.[0-9]*0(?![0-9])|0\.0{5}|-0(?!\.)/;

function keepSource(_key: string, value: unknown, context: { source?: string }): unknown {
  if (typeof value !== 'number' || context.source === undefined || context.source === String(value)) return value;
  return rawJSON(context.source);
}

/**
 * `JSON.parse` whose numbers stringify to the text they were parsed from. A number that would not is a raw-JSON object.
 * @throws {SyntaxError}
 */
export function parseKeepingNumbers(text: string): unknown {
  if (!RISKY.test(text)) return JSON.parse(text);
  return JSON.parse(text, keepSource as (key: string, value: unknown) => unknown);
}

/** True for a number that {@link parseKeepingNumbers} kept as text. */
export function isKeptNumber(value: unknown): value is object {
  return isRawJSON(value);
}

/** The text of such a number. */
export const keptText = (number: object): string => (number as { readonly rawJSON: string }).rawJSON;

/** The value of a number, kept as text or not; null for anything else. */
export function numberOf(value: unknown): number | null {
  if (typeof value === 'number') return value;
  return isKeptNumber(value) ? Number(keptText(value)) : null;
}
