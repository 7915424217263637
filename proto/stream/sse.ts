// Reads and writes the one form of an event stream that can be attested, for code that forwards, checks or stores it.
//
// The form has data lines, comments, empty lines and, where the endpoint names its events, one `event:` line for each. Lines end in LF or
// CR LF, and at most one byte order mark stands at the very start. A comment is printable ASCII, because some readers end a line at other
// characters. Server-sent events (HTML Living Standard §9.2.6) allow more forms, which clients read differently. Only names and data are
// hashed.
import { type Bytes, concat } from '../bytes.ts';

/** The reason why a stream cannot be read. The message never quotes the stream. */
export class SseError extends Error {
  override readonly name = 'SseError';
  readonly reason: 'malformed' | 'too_large';
  constructor(reason: SseError['reason'], message: string) {
    super(message);
    this.reason = reason;
  }
}

const TAB = 0x09;
const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
const SPACE = 0x20;
const TILDE = 0x7e;
export const BYTE_ORDER_MARK = Uint8Array.of(0xef, 0xbb, 0xbf);
const encoder = new TextEncoder();
const decoder = new TextDecoder();
const DATA = encoder.encode('data:');
const EVENT = encoder.encode('event:');
/** The bytes around a payload in an event, as {@link writeEvents} writes it. */
export const EVENT_START = encoder.encode('data: ');
export const EVENT_END = encoder.encode('\n\n');
const NEW_LINE = Uint8Array.of(LF);
const NEXT_LINE = encoder.encode('\ndata: ');
const DONE = encoder.encode('[DONE]');
const EMPTY = new Uint8Array(0);
/** One character more than `event: ` and the longest name, of 128 characters. */
const MAX_NAME_LINE = 136;

const malformed = (message: string) => new SseError('malformed', message);

/** An event: its payload is its `data:` lines, joined by LF. */
export interface NamedEvent {
  /** From its `event:` line, if it has one. */
  readonly name: string | null;
  readonly payload: Uint8Array;
}

/** Reads the bytes of a stream as they arrive and returns its events in the form that `make` gives them. */
export class EventReader<E> {
  readonly #max_event_bytes: number;
  /** Whether events may have names. */
  readonly #named: boolean;
  readonly #make: (payload: Uint8Array, name: string | null) => E;
  #name: string | null = null;
  /** A line that has not ended: the first `#line_bytes` of this buffer, which doubles when it is full. */
  #lineBuffer: Uint8Array = EMPTY;
  #line_bytes = 0;
  /** The data lines of the current event. */
  #lines: Uint8Array[] = [];
  #lines_bytes = 0;
  /** Number of these lines that are copies. */
  #copied = 0;
  #begun = false;
  #comments = 0;

  constructor(max_event_bytes: number, named: boolean, make: (payload: Uint8Array, name: string | null) => E) {
    this.#max_event_bytes = max_event_bytes;
    this.#named = named;
    this.#make = make;
  }

  /** Number of comments so far. */
  get comments(): number {
    return this.#comments;
  }

  /**
   * Appends the events that `bytes` complete to `events`; payloads may be views of `bytes`. When it throws, the events before the error
   * have been appended.
   * @throws {SseError}
   */
  push(bytes: Uint8Array, events: E[] = []): E[] {
    let from = 0;
    for (let lf = bytes.indexOf(LF); lf >= 0; lf = bytes.indexOf(LF, from)) {
      const event = this.#readLine(this.#completeLine(bytes.subarray(from, lf)));
      if (event !== null) events.push(event);
      from = lf + 1;
    }
    this.#bufferBytes(bytes.subarray(from));
    // Lines that stay until the next call are copied, because the caller may reuse `bytes`.
    for (; this.#copied < this.#lines.length; this.#copied++)
      this.#lines[this.#copied] = Uint8Array.from(this.#lines[this.#copied] as Uint8Array);
    return events;
  }

  /** At the end of the stream, returns a last event without its empty line. @throws {SseError} */
  end(): E | null {
    const event = this.#line_bytes > 0 ? this.#readLine(this.#completeLine(EMPTY)) : null;
    return event ?? this.#dispatch();
  }

  /** Completes the buffered line with `rest`. */
  #completeLine(rest: Uint8Array): Uint8Array {
    if (this.#line_bytes === 0) return rest;
    this.#bufferBytes(rest);
    const line = this.#lineBuffer.subarray(0, this.#line_bytes);
    // Payloads are views of the buffer, so the next line gets a new one.
    this.#lineBuffer = EMPTY;
    this.#line_bytes = 0;
    return line;
  }

  #bufferBytes(bytes: Uint8Array): void {
    const length = this.#line_bytes + bytes.length;
    this.#limit(length);
    if (bytes.length === 0) return;
    if (this.#lineBuffer.length < length) {
      const larger = new Uint8Array(Math.max(2 * length, 1024));
      larger.set(this.#lineBuffer.subarray(0, this.#line_bytes));
      this.#lineBuffer = larger;
    }
    this.#lineBuffer.set(bytes, this.#line_bytes);
    this.#line_bytes = length;
  }

  #limit(line_bytes: number): void {
    if (this.#lines_bytes + line_bytes > this.#max_event_bytes)
      throw new SseError('too_large', 'an event is larger than the limit');
  }

  /** Reads one line, without its LF. @returns the event that the line ends. */
  #readLine(line: Uint8Array): E | null {
    const from = !this.#begun && startsWith(line, BYTE_ORDER_MARK) ? BYTE_ORDER_MARK.length : 0;
    this.#begun = true;
    const text = line.subarray(from, line.at(-1) === CR ? line.length - 1 : line.length);
    if (text.length === 0) return this.#dispatch();
    if (text[0] === COLON) {
      if (!text.every(isPrintable)) throw malformed('a comment has other characters than printable ASCII');
      this.#comments++;
      return null;
    }
    if (this.#named && startsWith(text, EVENT)) return this.#readName(text);
    if (!startsWith(text, DATA)) throw malformed('a line is neither data nor a comment');
    if (text.includes(CR)) throw malformed('a line ends in CR only');
    const value = text.subarray(text[DATA.length] === SPACE ? DATA.length + 1 : DATA.length);
    this.#limit(value.length + 1);
    this.#lines.push(value);
    this.#lines_bytes += value.length + 1;
    return null;
  }

  #readName(line: Uint8Array): null {
    const name = /^event: ?([\w.-]{1,128})$/.exec(decoder.decode(line.subarray(0, MAX_NAME_LINE)))?.[1];
    if (name === undefined) throw malformed('the name of an event has other characters, or too many');
    if (this.#name !== null) throw malformed('an event has two names');
    this.#name = name;
    return null;
  }

  #dispatch(): E | null {
    const lines = this.#lines;
    const name = this.#name;
    this.#name = null;
    if (lines.length === 0 && name !== null) throw malformed('an event has a name and no data');
    if (lines.length === 0) return null;
    const [first = EMPTY, ...more] = lines;
    const payload = more.length === 0 ? first : concat([first, ...more.flatMap((line) => [NEW_LINE, line])]);
    this.#lines = [];
    this.#lines_bytes = 0;
    this.#copied = 0;
    return this.#make(payload, name);
  }
}

/** Reads a stream whose events have no names, and returns their payloads. */
export class PayloadReader extends EventReader<Uint8Array> {
  constructor(max_event_bytes: number) {
    super(max_event_bytes, false, (payload) => payload);
  }
}

/** Reads a stream whose events may have names. */
export class NamedEventReader extends EventReader<NamedEvent> {
  constructor(max_event_bytes: number) {
    super(max_event_bytes, true, (payload, name) => ({ name, payload }));
  }
}

/**
 * Finds the ends of lines and events in a stream of any form, which nobody attests (HTML Living Standard §9.2.6): a line ends in LF, CR LF
 * or CR, and an empty line ends an event.
 */
export class EventScanner {
  #last = 0;
  #line_bytes = 0;
  #inEvent = false;
  #events = 0;

  /** Number of events so far that have ended. */
  get events(): number {
    return this.#events;
  }

  /** Whether the stream is at its start or directly after an event. */
  get betweenEvents(): boolean {
    return !this.#inEvent && this.#line_bytes === 0;
  }

  /** Calls `line` with the offsets of the part in `bytes` of each line that ends there. Returns the offset after the last of them. */
  scan(bytes: Uint8Array, line: (from: number, to: number) => void = () => {}): number {
    let from = 0;
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at];
      if (byte !== LF && byte !== CR) continue;
      const isCrLf = byte === LF && (at === 0 ? this.#last : bytes[at - 1]) === CR;
      if (!isCrLf) {
        this.#endLine(at - from);
        line(from, at);
      }
      from = at + 1;
    }
    this.#line_bytes += bytes.length - from;
    this.#last = bytes.at(-1) ?? this.#last;
    return from;
  }

  /** `bytes`: those of the line in this chunk. */
  #endLine(bytes: number): void {
    const isEmpty = this.#line_bytes + bytes === 0;
    if (isEmpty && this.#inEvent) this.#events++;
    this.#inEvent = !isEmpty;
    this.#line_bytes = 0;
  }
}

/** Returns all events of a whole stream. @throws {SseError} */
export function readEvents(stream: Uint8Array, max_event_bytes: number): NamedEvent[] {
  const reader = new NamedEventReader(max_event_bytes);
  const events = reader.push(stream);
  const last = reader.end();
  if (last !== null) events.push(last);
  return events;
}

/** Whether the payload is `[DONE]`, which ends streams of chat and text completions; some backends end other streams with it too. */
export function isDone(payload: Uint8Array): boolean {
  return payload.length === DONE.length && startsWith(payload, DONE);
}

/** Writes an event with its name, where it has one. */
export const writeNamedEvent = ({ name, payload }: NamedEvent): Bytes =>
  write([payload], name === null ? EMPTY : encoder.encode(`event: ${name}\n`));

/** Writes payloads as events: for each `data: `, its bytes, and two LF. No other byte of the backend's framing is sent to a client. */
export const writeEvents = (payloads: readonly Uint8Array[]): Bytes => write(payloads, EMPTY);

/** @param start is written before each payload. */
function write(payloads: readonly Uint8Array[], start: Uint8Array): Bytes {
  const chunks: Uint8Array[] = [];
  for (const payload of payloads) {
    chunks.push(start, EVENT_START);
    let from = 0;
    for (let lf = payload.indexOf(LF); lf >= 0; lf = payload.indexOf(LF, from)) {
      chunks.push(payload.subarray(from, lf), NEXT_LINE);
      from = lf + 1;
    }
    chunks.push(payload.subarray(from), EVENT_END);
  }
  return concat(chunks);
}

function startsWith(bytes: Uint8Array, start: Uint8Array): boolean {
  for (let i = 0; i < start.length; i++) if (bytes[i] !== start[i]) return false;
  return true;
}

const isPrintable = (byte: number): boolean => (byte >= SPACE && byte <= TILDE) || byte === TAB;
