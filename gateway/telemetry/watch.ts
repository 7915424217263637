// The times of one exchange, taken as it runs: a few numbers, read once when it is over.
import type { Phases } from '../../proto/frames.ts';
import type { ExchangeTrace } from './trace.ts';

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
