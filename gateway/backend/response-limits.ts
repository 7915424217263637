// Limits of one response: bytes and events of a stream, and the time of any response.
import { indexOfByte } from '../base/bytes.ts';
import { Problem } from '../base/problem.ts';
import type { ResponseHead } from './backend.ts';

const CR = 13;
const LF = 10;

export interface ResponseLimits {
  readonly max_stream_bytes: number;
  readonly max_stream_events: number;
  /** The time from the request to the last byte. */
  readonly max_answer_ms: number;
}

/** Counts one response against its limits. The time is checked when a chunk arrives; between chunks the limit on silence applies. */
export class ResponseMeter {
  readonly #limits: ResponseLimits;
  readonly #began_ms = performance.now();
  #stream = false;
  #bytes = 0;
  #events = 0;
  /** The position after the last line feed, relative to the first byte of the next chunk. NaN after an empty line. */
  #lineEnd = Number.NaN;
  /** The last byte before the next chunk. */
  #last = 0;

  constructor(limits: ResponseLimits) {
    this.#limits = limits;
  }

  head({ headers }: ResponseHead): void {
    this.#stream = /^text\/event-stream\b/i.test(headers['content-type'] ?? '');
  }

  /** Returns the limit that the response exceeds with this chunk, or null. */
  exceeds(chunk: Buffer): Problem | null {
    const { max_answer_ms, max_stream_bytes, max_stream_events } = this.#limits;
    if (performance.now() - this.#began_ms > max_answer_ms)
      return new Problem('backend_timeout', `The answer was not complete within ${max_answer_ms} ms (MAX_ANSWER_MS).`);
    if (!this.#stream) return null;
    this.#bytes += chunk.length;
    this.#events += this.#eventsIn(chunk);
    if (this.#bytes > max_stream_bytes)
      return new Problem(
        'backend_bad_response',
        `The stream is longer than ${max_stream_bytes} bytes (MAX_STREAM_BYTES).`,
      );
    if (this.#events > max_stream_events)
      return new Problem(
        'backend_bad_response',
        `The stream has more than ${max_stream_events} events (MAX_STREAM_EVENTS).`,
      );
    return null;
  }

  /** Counts the empty lines `\n\n` and `\n\r\n`. Bare carriage returns are limited by the count of bytes. */
  #eventsIn(chunk: Buffer): number {
    let events = 0;
    let lineEnd = this.#lineEnd;
    for (let at = indexOfByte(chunk, LF, 0); at >= 0; at = indexOfByte(chunk, LF, at + 1)) {
      const length = at - lineEnd - 1;
      const empty = length === 0 || (length === 1 && (at === 0 ? this.#last : chunk[at - 1]) === CR);
      if (empty) events++;
      lineEnd = empty ? Number.NaN : at;
    }
    this.#lineEnd = lineEnd - chunk.length;
    this.#last = chunk[chunk.length - 1] ?? this.#last;
    return events;
  }
}
