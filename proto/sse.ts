// Server-sent events as bytes: cuts a byte stream into whole events without copying or re-encoding what it passes on.
// HTML Living Standard §9.2.6: lines end in LF, CR LF or CR; an empty line ends an event; a line that starts with ':' is a comment.

/** One event, as it came. */
export interface SseEvent {
  /** Every byte of the event, its terminating empty line included. */
  readonly bytes: Uint8Array;
  /** Where its first line begins in `bytes`: behind a byte order mark, if the stream began with one. */
  readonly start: number;
  /** The bytes of its `data:` lines, joined by LF; null when it has none (a comment, a lone `event:` line). */
  readonly data: Uint8Array | null;
  /** False for a last event that the stream left without its empty line. */
  readonly complete: boolean;
}

/** An event grew past the limit. */
export class SseLimitError extends Error {
  override readonly name = 'SseLimitError';
}

const LF = 10;
const CR = 13;
const BRACE = 0x7d;
const EMPTY = new Uint8Array(0);

/** Push what arrives; take whole events. What has not ended yet waits inside, at most `maxEventBytes` of it. */
export class SseSplitter {
  readonly #maxEventBytes: number;
  #pending: Uint8Array = EMPTY;
  /** Room that `#pending` may grow into, so that an event in many pieces is not copied for each of them. */
  #room: Uint8Array | null = null;
  #first = true;
  /** Where in `#pending` the search for the end goes on, so that a slow event is not searched from its start each time. */
  #searched = 0;

  constructor(maxEventBytes: number) {
    this.#maxEventBytes = maxEventBytes;
  }

  /** An event has begun and not ended: the next chunk goes on with it. */
  get midEvent(): boolean {
    return this.#pending.length > 0;
  }

  /** The events that `chunk` completes. @throws {SseLimitError} */
  push(chunk: Uint8Array): SseEvent[] {
    const bytes = this.#pending.length === 0 ? chunk : this.#grown(chunk);
    const events: SseEvent[] = [];
    let start = 0;
    let from = this.#searched;
    // CR is rare: one look for all of this.
    const plain = bytes.indexOf(CR, from) < 0;
    for (;;) {
      const end = plain ? plainEventEnd(bytes, from) : eventEnd(bytes, from);
      if (end < 0) break;
      events.push(this.#event(bytes.subarray(start, end), true));
      start = end;
      from = end;
    }
    // Events are views of these bytes: what follows them must not grow into the same room.
    if (start > 0) this.#room = null;
    this.#pending = start === bytes.length ? EMPTY : bytes.subarray(start);
    // An end can be cut anywhere in CR LF CR LF, so the last three bytes are looked at again.
    this.#searched = Math.max(0, this.#pending.length - 3);
    if (this.#pending.length > this.#maxEventBytes) throw new SseLimitError('an event is larger than the limit');
    return events;
  }

  #event(bytes: Uint8Array, complete: boolean): SseEvent {
    const start = this.#bom(bytes);
    return { bytes, start, data: dataOf(bytes, start), complete };
  }

  /** A byte order mark at the start of the stream is no part of its first line: clients take it off, so it is not read here. */
  #bom(event: Uint8Array): number {
    if (!this.#first) return 0;
    this.#first = false;
    return event[0] === 0xef && event[1] === 0xbb && event[2] === 0xbf ? 3 : 0;
  }

  #grown(chunk: Uint8Array): Uint8Array {
    const before = this.#pending.length;
    const length = before + chunk.length;
    if (this.#room === null || this.#room.length < length) {
      this.#room = new Uint8Array(Math.max(2 * length, 1024));
      this.#room.set(this.#pending);
    }
    this.#room.set(chunk, before);
    return this.#room.subarray(0, length);
  }

  /** At the end of the stream: an event whose empty line is missing, as many servers leave their last one. */
  end(): SseEvent | null {
    const bytes = this.#pending;
    this.#pending = EMPTY;
    this.#room = null;
    this.#searched = 0;
    return bytes.length === 0 ? null : this.#event(bytes, false);
  }
}

/** {@link eventEnd} where every line ends in LF. */
function plainEventEnd(bytes: Uint8Array, from: number): number {
  for (let lf = bytes.indexOf(LF, from); lf >= 0; lf = bytes.indexOf(LF, lf + 1))
    if (bytes[lf + 1] === LF) return lf + 2;
  return -1;
}

/** The offset after the empty line that ends the event, searched from `from`; -1 when there is none yet. */
function eventEnd(bytes: Uint8Array, from: number): number {
  for (let i = from; ; i++) {
    const lf = bytes.indexOf(LF, i);
    const cr = carriageReturn(bytes, i, lf);
    if (lf < 0 && cr < 0) return -1;
    const eol = cr >= 0 && (lf < 0 || cr < lf) ? cr : lf;
    const next = lineEnd(bytes, eol);
    if (next < 0 || next >= bytes.length) return -1;
    if (bytes[next] === LF || bytes[next] === CR) return lineEnd(bytes, next);
    i = eol;
  }
}

/** CR is rare: look for it only up to the LF already found. */
function carriageReturn(bytes: Uint8Array, from: number, lf: number): number {
  const cr = lf < 0 ? bytes.indexOf(CR, from) : bytes.subarray(from, lf).indexOf(CR);
  return cr < 0 || lf < 0 ? cr : cr + from;
}

/** The offset after the line break at `eol`; -1 when a CR is last and an LF may still follow. */
function lineEnd(bytes: Uint8Array, eol: number): number {
  if (bytes[eol] === LF) return eol + 1;
  if (eol + 1 >= bytes.length) return -1;
  return bytes[eol + 1] === LF ? eol + 2 : eol + 1;
}

/** The offset in `event.bytes` of the last `}` that is data, not a comment or another field; -1 when there is none. */
export function lastBrace(event: SseEvent): number {
  let last = -1;
  eachDataLine(event.bytes, event.start, (start, end) => {
    const brace = event.bytes.subarray(start, end).lastIndexOf(BRACE);
    if (brace >= 0) last = start + brace;
  });
  return last;
}

/** Without a name an event is a `message`. */
const NAME = /(?:^|[\r\n])event:(?! ?(?:message)?(?:[\r\n]|$))/;

/** By some names a client passes over the event, and no hash covers names: a stream with such an event says what its reader makes of it. */
export function isNamed({ bytes, start }: SseEvent): boolean {
  return NAME.test(new TextDecoder('latin1').decode(bytes.subarray(start)));
}

function dataOf(event: Uint8Array, from: number): Uint8Array | null {
  let data: Uint8Array | null = null;
  eachDataLine(event, from, (start, end) => {
    const line = event.subarray(start, end);
    data = data === null ? line : concat(concat(data, NEWLINE), line);
  });
  return data;
}

/** "data" and a colon, or "data" alone on its line: where its value begins and ends. */
function eachDataLine(event: Uint8Array, from: number, take: (start: number, end: number) => void): void {
  for (let i = from; i < event.length; ) {
    let eol = i;
    while (eol < event.length && event[eol] !== LF && event[eol] !== CR) eol++;
    if (event[i] === 0x64 && event[i + 1] === 0x61 && event[i + 2] === 0x74 && event[i + 3] === 0x61)
      if (event[i + 4] === 0x3a || i + 4 === eol) take(Math.min(eol, event[i + 5] === 0x20 ? i + 6 : i + 5), eol);
    i = event[eol] === CR && event[eol + 1] === LF ? eol + 2 : eol + 1;
  }
}

const NEWLINE = Uint8Array.of(LF);

function concat(a: Uint8Array, b: Uint8Array): Uint8Array {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}
