// What the rest of the gateway knows of tracing: a trace that an exchange may carry. Off, there is none, and nothing is done.
import type { IncomingHttpHeaders } from 'node:http';
import type { Headers } from '../engine/headers.ts';
import type { Ended } from './ended.ts';
import type { Watch } from './watch.ts';

/** One exchange's spans. */
export interface ExchangeTrace {
  /** 32 hex digits, for the log line. */
  readonly id: string;
  /** Sets the W3C trace context that the backend continues. */
  toBackend(headers: Headers): void;
  end(watch: Watch, ended: Ended): void;
}

export interface Tracer {
  /** Continues the trace that the client's headers name, or begins one. */
  begin(headers: IncomingHttpHeaders): ExchangeTrace;
  /** Sends what is left. */
  close(): Promise<void>;
}
