// Recognizes an event that repeats the previous one except for its text, as most events of a stream do, and reads it without parsing JSON.
import { isUtf8 } from 'node:buffer';
import type { Chunk } from '../../proto/fold.ts';
import { numberOf } from '../../proto/json.ts';
import { EVENT_END, EVENT_START } from '../../proto/sse.ts';
import { isSame } from '../http/bytes.ts';

/** The new values in a repeated event. */
export interface Repeated {
  /** Index of the choice. */
  readonly index: number;
  readonly content: string;
  /** The payload, as a view. */
  readonly data: Uint8Array;
  /** Offset after the event. */
  readonly end: number;
}

const DELTA = '"delta"';
const CONTENT = /"delta"\s*:\s*\{\s*"content"\s*:\s*"/;
/** The content must be the last member of its delta: a later member of the same name would replace it. */
const CLOSED = /^"\s*\}/;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** An event with more bytes around its text is always parsed. */
const MAX_TEMPLATE_BYTES = 2_048;
/** The fold merges choices by index up to 10,000. No request asks for this many. */
const MAX_INDEX = 1_000;

/** The bytes before and after the text, in an event as the gateway writes it. */
interface EventTemplate {
  readonly index: number;
  readonly before: Uint8Array;
  readonly after: Uint8Array;
}

/**
 * An event is a repetition when the gateway would write it in the same form, its bytes before and after the text of its only delta equal
 * those of an earlier payload, and the text is plain: no escape, no quote, no control character. Its payload is then valid JSON because the
 * earlier one was, and it parses to the same value except for the text.
 */
export class RepeatedEvents {
  #template: EventTemplate | null = null;

  /** Learns a parsed payload, because the next event may repeat it. */
  learn(payload: Uint8Array, chunk: Chunk): void {
    this.#template = null;
    const index = onlyContent(chunk);
    if (index === null || payload.length > MAX_TEMPLATE_BYTES) return;
    const text = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).toString('latin1');
    // An escaped name could hide a second delta, so nothing may be escaped. A payload with a second line is written in another form.
    if (text.includes('\\') || text.includes('\n')) return;
    const found = CONTENT.exec(text);
    // When a member occurs twice, the JSON parser decides which one counts.
    if (found === null || text.indexOf(DELTA) !== text.lastIndexOf(DELTA)) return;
    const from = found.index + found[0].length;
    const to = text.indexOf('"', from);
    if (!CLOSED.test(text.slice(to, to + 64))) return;
    const before = new Uint8Array(Buffer.concat([EVENT_START, payload.subarray(0, from)]));
    const after = new Uint8Array(Buffer.concat([payload.subarray(to), EVENT_END]));
    this.#template = { index, before, after };
  }

  /** Reads the event that begins at `at`. Returns null when it is no repetition or is not complete. */
  read(bytes: Buffer, at: number): Repeated | null {
    const template = this.#template;
    if (template === null) return null;
    const { index, before, after } = template;
    const from = at + before.length;
    if (from + after.length > bytes.length || !isSame(bytes, at, before, 0, before.length)) return null;
    let to = from;
    let ascii = true;
    for (let byte = bytes[to]; byte !== QUOTE; byte = bytes[++to]) {
      if (byte === undefined || byte < 0x20 || byte === BACKSLASH) return null;
      if (byte > 0x7f) ascii = false;
    }
    const end = to + after.length;
    if (!isSame(bytes, to, after, 0, after.length)) return null;
    if (!ascii && !isUtf8(bytes.subarray(from, to))) return null;
    const data = bytes.subarray(at + EVENT_START.length, end - EVENT_END.length);
    return { index, content: bytes.toString(ascii ? 'latin1' : 'utf8', from, to), data, end };
  }
}

/** Returns the index of the only choice, or null unless every other member of the chunk can be repeated without effect. */
function onlyContent(chunk: Chunk): number | null {
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
    ? index
    : null;
}
