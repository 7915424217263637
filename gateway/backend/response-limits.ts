// Limits of one response: bytes and events of a stream, and the time of any response.
import { EventScanner } from '../../proto/stream/sse.ts';
import { Problem } from '../base/problem.ts';
import type { ResponseHead } from './backend.ts';

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
  readonly #scanner = new EventScanner();

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
    this.#scanner.scan(chunk);
    if (this.#bytes > max_stream_bytes)
      return new Problem(
        'backend_bad_response',
        `The stream is longer than ${max_stream_bytes} bytes (MAX_STREAM_BYTES).`,
      );
    if (this.#scanner.events > max_stream_events)
      return new Problem(
        'backend_bad_response',
        `The stream has more than ${max_stream_events} events (MAX_STREAM_EVENTS).`,
      );
    return null;
  }
}
