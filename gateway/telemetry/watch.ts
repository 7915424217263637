// The times of one exchange, taken as it runs: a few numbers, read once when it is over.

import type { IncomingHttpHeaders } from 'node:http';
import type { Phases } from '../../proto/frames.ts';
import type { Headers } from '../backend/headers.ts';

/** OpenTelemetry's names for what the two generation routes do. */
export type Operation = 'chat' | 'text_completion';

/** All times are `performance.now()`; 0 where the moment has not come. */
export class Watch {
  readonly began_ms: number;
  /** null unless tracing is on. */
  readonly trace: ExchangeTrace | null;
  operation: Operation | null = null;
  /** As the client wrote it. It becomes a label only through `ModelLabels`. */
  model: string | null = null;
  tee = false;
  /** When the backend was asked, and what it answered. */
  asked_ms = 0;
  backend_status = 0;
  stream = false;
  pieces = 0;
  first_ms = 0;
  last_ms = 0;
  /** The longest time from one piece to the next. */
  gap_ms = 0;
  attesting_ms = 0;
  attested_ms = 0;
  /** What the sidecar told of its own times. */
  phases: Phases | null = null;

  constructor(trace: ExchangeTrace | null) {
    this.began_ms = performance.now();
    this.trace = trace;
  }

  generates(operation: Operation, model: string | undefined, tee: boolean): void {
    this.operation = operation;
    this.model = model ?? null;
    this.tee = tee;
  }

  asks(): void {
    this.asked_ms = performance.now();
  }

  head(status: number, contentType: string | undefined): void {
    this.backend_status = status;
    this.stream = contentType?.startsWith('text/event-stream') === true;
  }

  /** A piece of the backend's answer came. */
  piece(): void {
    const now = performance.now();
    if (this.pieces++ === 0) this.first_ms = now;
    else if (now - this.last_ms > this.gap_ms) this.gap_ms = now - this.last_ms;
    this.last_ms = now;
  }

  attests(): void {
    this.attesting_ms = performance.now();
  }

  attested(phases: Phases | undefined): void {
    this.attested_ms = performance.now();
    this.phases = phases ?? null;
  }
}

// How an exchange ended, in the words that log, metrics and traces share. No content, no key, nothing a client can grow.
/** `left`: the client did not wait for it. */
type TeeOutcome = 'none' | 'attested' | 'failed' | 'left';

export interface ExchangeEnd {
  readonly id: string;
  readonly method: string;
  /** The route's pattern, never the path. */
  readonly route: string;
  /** 499: the client left. */
  readonly status: number;
  readonly tee: TeeOutcome;
  /** Of the error that was answered, in a running stream too; null where there was none, or it was the backend's own. */
  readonly code: string | null;
  /** The code, or `http_429` for an error that the backend answered with; '' where nothing went wrong. */
  readonly error: string;
  /** Of a generation, from a bounded set (ModelLabels); '' of anything else. */
  readonly model: string;
  readonly total_ms: number;
}

// What the rest of the gateway knows of tracing: a trace that an exchange may carry. Off, there is none, and nothing is done.

/** One exchange's spans. */
export interface ExchangeTrace {
  /** 32 hex digits, for the log line. */
  readonly id: string;
  /** Sets the W3C trace context that the backend continues. */
  toBackend(headers: Headers): void;
  end(watch: Watch, ended: ExchangeEnd): void;
}

export interface Tracer {
  /** Continues the trace that the client's headers name, or begins one. */
  begin(headers: IncomingHttpHeaders): ExchangeTrace;
  /** Sends what is left. */
  close(): Promise<void>;
}
