// Reads untrusted input under limits: a response body in bytes, and JSON whose characters, names and values are counted before it is parsed.

import { hasAtMost } from '../../proto/json.ts';
import { concat } from './bytes.ts';
import { CheckFailure, type Limits } from './checks.ts';

/** A response's body is larger than its reader accepts. */
export class BodyTooLarge extends RangeError {
  override readonly name = 'BodyTooLarge';
}

/** The whole body. @throws {BodyTooLarge} more than `max_bytes`. */
export async function readLimited(response: Response, max_bytes: number): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  const reader = response.body?.getReader();
  for (;;) {
    const part = await reader?.read();
    if (part === undefined || part.done) break;
    length += part.value.length;
    if (length > max_bytes) {
      await reader?.cancel();
      throw new BodyTooLarge(`an answer of more than ${max_bytes} bytes`);
    }
    chunks.push(part.value);
  }
  return concat(chunks);
}

/** In lower case and without parameters; empty where the message names none. */
export function mediaType({ headers }: Request | Response): string {
  const [type = ''] = (headers.get('content-type') ?? '').split(';', 1);
  return type.trim().toLowerCase();
}

// The one way from untrusted text to JSON: characters, names and values are counted before the text is parsed.

const MAX_CHARACTERS = 64 * 1024 * 1024;
/** More than a response of 64 MiB has, even one full of token probabilities. */
const MAX_VALUES = 16 * 1024 * 1024;

/** @throws {CheckFailure} too_large, not_json */
export function parseBounded(text: string, limits: Limits = {}): unknown {
  bounded(text, limits);
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new CheckFailure('not_json', 'not JSON', { cause });
  }
}

/** Counts only: parsing is the step that takes memory. @throws {CheckFailure} too_large */
export function bounded(text: string, { maxCharacters = MAX_CHARACTERS, maxValues = MAX_VALUES }: Limits = {}): void {
  if (text.length > maxCharacters)
    throw new CheckFailure('too_large', `more than ${maxCharacters} characters of JSON text`);
  if (!hasAtMost(text, maxValues)) throw new CheckFailure('too_large', `more than ${maxValues} JSON names and values`);
}

/** The text without a byte order mark, or the text in it where it is a JSON string. A text over the limits stays as it is. */
export function unquoted(given: string, limits: Limits = {}): string {
  const text = given.startsWith('\ufeff') ? given.slice(1) : given;
  if (!text.trimStart().startsWith('"')) return text;
  try {
    return parseBounded(text, limits) as string;
  } catch (error) {
    if (error instanceof CheckFailure) return text;
    throw error;
  }
}
