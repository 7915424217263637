// An backend whose answers end: a stream has a greatest length, and every answer a greatest time.
import { indexOfByte } from '../http/bytes.ts';
import { Problem } from '../http/problem.ts';
import type { Backend, BackendCall, ResponseHandler, ResponseHead } from './backend.ts';

const LF = 0x0a;
const CR = 0x0d;

export interface AnswerLimits {
  readonly max_stream_bytes: number;
  readonly max_stream_events: number;
  /** From the request to the last byte. */
  readonly max_answer_ms: number;
}

/** The backend's own limit on silence should be no longer than `max_answer_ms`: here time is looked at when something comes. */
export function boundAnswers(backend: Backend, limits: AnswerLimits): Backend {
  return {
    call(request, handler) {
      const bounded = new BoundedAnswer(handler, limits);
      bounded.inner = backend.call(request, bounded);
      return bounded;
    },
    close: () => backend.close(),
  };
}

/** Stands between backend and delivery: what goes past a limit is cancelled there and has failed here. */
class BoundedAnswer implements ResponseHandler, BackendCall {
  inner: BackendCall | null = null;
  readonly #handler: ResponseHandler;
  readonly #limits: AnswerLimits;
  readonly #began_ms = performance.now();
  #stream = false;
  #bytes = 0;
  #events = 0;
  /** Where the last line ended, counted from the first byte of the next chunk; NaN after an empty line. */
  #lineEnd = Number.NaN;
  /** The last byte before the next chunk. */
  #last = 0;

  constructor(handler: ResponseHandler, limits: AnswerLimits) {
    this.#handler = handler;
    this.#limits = limits;
  }

  head(head: ResponseHead): void {
    this.#stream = /^text\/event-stream\b/i.test(head.headers['content-type'] ?? '');
    this.#handler.head(head);
  }

  data(chunk: Buffer): void {
    this.#handler.data(chunk);
    const { max_answer_ms, max_stream_bytes, max_stream_events } = this.#limits;
    if (performance.now() - this.#began_ms > max_answer_ms)
      return this.#stop('backend_timeout', `The answer was not complete within ${max_answer_ms} ms.`);
    if (!this.#stream) return;
    this.#bytes += chunk.length;
    this.#events += this.#eventsIn(chunk);
    if (this.#bytes > max_stream_bytes)
      this.#stop('backend_bad_response', `The stream is longer than ${max_stream_bytes} bytes.`);
    else if (this.#events > max_stream_events)
      this.#stop('backend_bad_response', `The stream has more than ${max_stream_events} events.`);
  }

  end(): void {
    this.#handler.end();
  }

  fail(problem: Problem): void {
    this.#handler.fail(problem);
  }

  pause(): void {
    this.inner?.pause();
  }

  resume(): void {
    this.inner?.resume();
  }

  cancel(): void {
    this.inner?.cancel();
  }

  /** Empty lines, as near as counting needs: `\n\n` and `\n\r\n`. Bare carriage returns are bounded by their bytes. */
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

  #stop(code: 'backend_timeout' | 'backend_bad_response', message: string): void {
    this.cancel();
    this.#handler.fail(new Problem(code, message));
  }
}
