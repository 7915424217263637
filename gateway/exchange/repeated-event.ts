// Knows an event that repeats the one before but for its text, as nearly all of a stream do, and reads it without taking it apart.
import { isUtf8 } from 'node:buffer';
import type { Chunk } from '../../proto/fold.ts';
import { numberOf } from '../../proto/json.ts';
import { EVENT_END, EVENT_START } from '../../proto/sse.ts';
import { isSame } from '../http/bytes.ts';

/** What a repeated event says that is new. */
export interface Repeated {
  /** Of the choice. */
  readonly index: number;
  readonly content: string;
  /** Its payload, a view. */
  readonly data: Uint8Array;
  /** Where it ends. */
  readonly end: number;
}

const DELTA = '"delta"';
const CONTENT = /"delta"\s*:\s*\{\s*"content"\s*:\s*"/;
/** The content is the last member of its delta: one of the same name after it would count instead. */
const CLOSED = /^"\s*\}/;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
/** An event with more around its text is parsed each time. */
const MAX_FRAME_BYTES = 2_048;
/** The fold merges choices by their index up to 10,000; so many are never asked for. */
const MAX_INDEX = 1_000;

/** What stands around the text in the event as the gateway writes it. */
interface Frame {
  readonly index: number;
  readonly before: Uint8Array;
  readonly after: Uint8Array;
}

/**
 * An event is a repetition when it is written as the gateway writes events, with the bytes of an earlier payload before and after
 * the text of its only delta, and that text is plain: no escape, no quote, no control character. Then its payload is JSON because
 * the earlier one was, and parses to the same but for that text.
 */
export class Repeat {
  #frame: Frame | null = null;

  /** Looks at a payload that was parsed: the next one may repeat it. */
  learn(payload: Uint8Array, chunk: Chunk): void {
    this.#frame = null;
    const index = onlyContent(chunk);
    if (index === null || payload.length > MAX_FRAME_BYTES) return;
    const text = Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength).toString('latin1');
    // Names that are escaped could hide a second delta, so nothing may be escaped. A second line would be another event's form.
    if (text.includes('\\') || text.includes('\n')) return;
    const found = CONTENT.exec(text);
    // A member of that name twice: which of them counts is the parser's to say.
    if (found === null || text.indexOf(DELTA) !== text.lastIndexOf(DELTA)) return;
    const from = found.index + found[0].length;
    const to = text.indexOf('"', from);
    if (!CLOSED.test(text.slice(to, to + 64))) return;
    const before = new Uint8Array(Buffer.concat([EVENT_START, payload.subarray(0, from)]));
    const after = new Uint8Array(Buffer.concat([payload.subarray(to), EVENT_END]));
    this.#frame = { index, before, after };
  }

  /** The event that begins at `at`; null where it does not repeat, or is not all here. */
  read(bytes: Buffer, at: number): Repeated | null {
    const frame = this.#frame;
    if (frame === null) return null;
    const { index, before, after } = frame;
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

/** The index of the only choice, if all that the chunk has beside the content of its delta may be said twice. */
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
