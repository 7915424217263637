// Writes a large JSON value in parts, each of which is made quickly. Serializing it at once takes milliseconds.
import { isJsonObject, type Json, stringifyKeepingNumbers } from '../kept-numbers.ts';

/** A longer string is serialized by the caller, a longer array in batches. */
const LONG_LENGTH = 64 * 1024;
const BATCH_ITEMS = 128;

/** A part of a JSON text, or a string that the part contains quoted. */
export type JsonPart = string | { readonly quote: string };

/** Joins the parts to a JSON text. */
export function joined(parts: readonly JsonPart[]): string {
  return parts.map((part) => (typeof part === 'string' ? part : JSON.stringify(part.quote))).join('');
}

/** The parts of a value that parseKeepingNumbers returned. */
export function* partsOf(value: Json): Generator<JsonPart> {
  if (typeof value === 'string' && value.length > LONG_LENGTH) yield { quote: value };
  else if (Array.isArray(value)) yield* arrayParts(value);
  else if (isJsonObject(value)) {
    let before = '{';
    for (const key of Object.keys(value)) {
      yield `${before}${JSON.stringify(key)}:`;
      yield* partsOf(value[key] as Json);
      before = ',';
    }
    yield before === '{' ? '{}' : '}';
  } else yield stringifyKeepingNumbers(value);
}

function* arrayParts(items: readonly Json[]): Generator<JsonPart> {
  yield '[';
  if (items.length > BATCH_ITEMS) {
    for (let at = 0; at < items.length; at += BATCH_ITEMS) {
      const batch = stringifyKeepingNumbers(items.slice(at, at + BATCH_ITEMS)).slice(1, -1);
      yield at === 0 ? batch : `,${batch}`;
    }
  } else {
    for (const [i, item] of items.entries()) {
      if (i > 0) yield ',';
      yield* partsOf(item);
    }
  }
  yield ']';
}
