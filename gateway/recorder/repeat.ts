// Knows a chunk that repeats the one before but for its text, as nearly all of a stream do, and reads it without parsing.
import { isUtf8 } from 'node:buffer';
import type { Chunk } from '../../proto/fold.ts';
import { numberOf } from '../../proto/number.ts';

/** What a repeated chunk says that is new. */
export interface Repeated {
  /** Of the choice. */
  readonly index: number;
  readonly content: string;
}

const CONTENT = /"delta"\s*:\s*\{\s*"content"\s*:\s*"/g;
/** The content is the last member of its delta: one of the same name after it would count instead. */
const CLOSED = /^"\s*\}/;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** A chunk with more around its text is parsed each time. */
const MAX_FRAME_BYTES = 2_048;
/** The fold merges choices by their index up to 10,000; so many are never asked for. */
const MAX_INDEX = 1_000;

/**
 * A payload is a repetition when it has the bytes of an earlier one before and after the text of its only delta, and that
 * text is plain: no escape, no quote, no control character. Then it is JSON because the earlier one was, and parses to the
 * same but for that text.
 */
export class Repeat {
  #before: Buffer | null = null;
  #after: Buffer | null = null;
  #index = 0;

  /** Looks at a payload that was parsed: the next one may repeat it. */
  learn(payload: Uint8Array, chunk: Chunk): void {
    this.#before = null;
    const content = onlyContent(chunk);
    if (content === null || payload.length > MAX_FRAME_BYTES) return;
    const text = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).toString('latin1');
    // Names that are escaped could hide a second delta, so nothing may be escaped.
    if (text.includes('\\')) return;
    const [found, another] = text.matchAll(CONTENT);
    if (found === undefined || another !== undefined) return;
    const start = found.index + found[0].length;
    const end = text.indexOf('"', start);
    if (!CLOSED.test(text.slice(end, end + 64))) return;
    this.#before = Buffer.from(text.slice(0, start), 'latin1');
    this.#after = Buffer.from(text.slice(end), 'latin1');
    this.#index = content.index;
  }

  /** null for a payload that has to be parsed. */
  read(payload: Uint8Array): Repeated | null {
    const before = this.#before;
    const after = this.#after;
    if (before === null || after === null) return null;
    const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength);
    const end = bytes.length - after.length;
    if (end < before.length) return null;
    if (bytes.compare(before, 0, before.length, 0, before.length) !== 0) return null;
    if (bytes.compare(after, 0, after.length, end) !== 0) return null;
    let ascii = true;
    for (let i = before.length; i < end; i++) {
      const byte = bytes[i] as number;
      if (byte < 0x20 || byte === QUOTE || byte === BACKSLASH) return null;
      if (byte > 0x7f) ascii = false;
    }
    if (!ascii && !isUtf8(bytes.subarray(before.length, end))) return null;
    return { index: this.#index, content: bytes.toString(ascii ? 'latin1' : 'utf8', before.length, end) };
  }
}

/** The index of the only choice, if all that the chunk has beside the content of its delta may be said twice. */
function onlyContent(chunk: Chunk): { index: number } | null {
  let choice: Record<string, unknown> | null = null;
  for (const name in chunk) {
    const value = chunk[name];
    if (name !== 'choices') {
      if (typeof value === 'object' && value !== null) return null;
    } else if (Array.isArray(value) && value.length === 1) choice = value[0];
  }
  if (typeof choice !== 'object' || choice === null) return null;
  for (const name in choice) {
    const value = choice[name];
    if (name === 'delta') {
      if (typeof value !== 'object' || value === null || Object.keys(value).length !== 1) return null;
      if (typeof (value as { content?: unknown }).content !== 'string') return null;
    } else if (name === 'finish_reason' ? value !== null : name !== 'index' && value !== null) return null;
  }
  const index = numberOf(choice.index);
  return index !== null && Number.isInteger(index) && index >= 0 && index <= MAX_INDEX && 'delta' in choice
    ? { index }
    : null;
}
