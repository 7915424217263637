// An exchange as telemetry sees it: its times while it runs, its outcome, and the interfaces of its end and of its trace.
import type { IncomingHttpHeaders } from 'node:http';
import type { Phases } from '../../proto/attestation/frames.ts';
import type { BackendName, Headers } from '../backend/backend.ts';
import type { Problem } from '../base/problem.ts';
import type { Signed } from '../usage/accounting.ts';
import { charged, type Estimate } from '../usage/budget.ts';
import { type Hold, NO_TOKENS, TokenReader, type Tokens } from '../usage/llm-tokens.ts';

/** OpenTelemetry's names for operations. */
export type Operation = 'chat' | 'text_completion' | 'embeddings' | 'generate_content';

/** All times are `performance.now()`; 0 until the event occurs. */
export class Watch {
  readonly began_ms: number;
  /** null when tracing is off. */
  readonly trace: ExchangeTrace | null;
  operation: Operation | null = null;
  /** The model as the client wrote it. Only `ModelLabels` turns it into a label. */
  model: string | null = null;
  tee = false;
  /** When the request was sent to the backend, and the status of the response. */
  sent_ms = 0;
  backend_status = 0;
  /** The backend that the request was last sent to, where there are several. */
  backend: BackendName | null = null;
  stream = false;
  /** All of the response arrived. */
  complete = false;
  chunks = 0;
  bytes = 0;
  first_ms = 0;
  last_ms = 0;
  /** The longest time between two chunks. */
  gap_ms = 0;
  attesting_ms = 0;
  attested_ms = 0;
  /** The durations that the sidecar reported. */
  phases: Phases | null = null;
  /** Responses that share the GPU signature, this one included; null: it is not shared. */
  tree_size: number | null = null;
  signed: Signed | null = null;
  /** Counts bytes that are kept of the response. */
  hold: Hold = () => true;
  /** null: LLM tokens are not counted. */
  readonly #max_answer_bytes: number | null;
  /** null: tokens are not counted, or the response has not begun or has ended. */
  #reader: TokenReader | null = null;
  #tokens: Tokens = NO_TOKENS;
  #reservation: Reservation | null = null;

  /** @param max_answer_bytes the largest answer whose tokens are read; null: they are not counted. */
  constructor(trace: ExchangeTrace | null, max_answer_bytes: number | null) {
    this.began_ms = performance.now();
    this.trace = trace;
    this.#max_answer_bytes = max_answer_bytes;
  }

  generates(operation: Operation, model: string | undefined, tee: boolean): void {
    this.operation = operation;
    this.model = model ?? null;
    this.tee = tee;
  }

  requestSent(): void {
    this.sent_ms = performance.now();
  }

  /** @param output the tokens that were reserved for the answer */
  reserved(estimate: Estimate, output: number, release: () => void): void {
    this.#reservation = { estimate, output, release };
  }

  /** Ends the reservation. */
  release(): void {
    this.#reservation?.release();
    this.#reservation = null;
  }

  head(status: number, contentType: string | undefined): void {
    this.backend_status = status;
    this.stream = contentType?.startsWith('text/event-stream') === true;
    if (this.#max_answer_bytes === null || !this.served) return;
    // With tee the response's bytes are counted already.
    this.#reader = new TokenReader(this.stream, this.#max_answer_bytes, this.tee ? undefined : this.hold);
  }

  /** The backend's response has a status of success. */
  get served(): boolean {
    return this.backend_status >= 200 && this.backend_status < 300;
  }

  /** Counts a chunk of the backend's response. */
  chunk(chunk: Buffer): void {
    this.#reader?.add(chunk);
    this.bytes += chunk.length;
    const now = performance.now();
    if (this.chunks++ === 0) this.first_ms = now;
    else if (now - this.last_ms > this.gap_ms) this.gap_ms = now - this.last_ms;
    this.last_ms = now;
  }

  /** The backend's response has ended. */
  ended(): void {
    this.complete = true;
    this.#readTokens();
  }

  #readTokens(): void {
    this.#tokens = this.#reader?.tokens() ?? this.#tokens;
    this.#reader = null;
  }

  attestationStarted(): void {
    this.attesting_ms = performance.now();
  }

  attested(phases: Phases | undefined, tree_size: number | null, signed: Signed): void {
    this.attested_ms = performance.now();
    this.phases = phases ?? null;
    this.tree_size = tree_size;
    this.signed = signed;
  }

  /** The LLM tokens of the exchange; null if they are not counted. `left`: the client has left. */
  tokens(left: boolean): Tokens | null {
    this.#readTokens();
    if (this.#max_answer_bytes === null) return null;
    if (this.#reservation === null) return this.#tokens;
    const { estimate, output } = this.#reservation;
    return charged(this.#tokens, estimate, output, { ...this, left });
  }
}

/** LLM tokens that the exchange's API key has reserved. */
interface Reservation {
  readonly estimate: Estimate;
  readonly output: number;
  readonly release: () => void;
}

/** The outcome of an exchange, as its route reports it. */
export interface Outcome {
  readonly status: number;
  readonly tee?: 'attested' | 'failed';
  readonly problem?: Problem;
}

/** nginx logs 499 for a client that closed its request. The status is never sent. */
export const CLIENT_LEFT = 499;
/** The outcome of an exchange whose client has left. */
export const CLIENT_GONE: Outcome = { status: CLIENT_LEFT };

// The end of an exchange, as log, metrics and traces report it. It contains no content, no key, and no value that clients can vary at will.
/** `left`: the client disconnected before the end. */
type TeeOutcome = 'none' | 'attested' | 'failed' | 'left';

export interface ExchangeEnd {
  readonly id: string;
  readonly method: string;
  /** The route's pattern, never the path. */
  readonly route: string;
  /** 499: the client disconnected. */
  readonly status: number;
  readonly tee: TeeOutcome;
  /**
   * Code of the error that was sent, also inside a stream; null when there was none or the error was the backend's own. `client_gone`: the
   * client disconnected.
   */
  readonly code: string | null;
  /** The code, or `http_429` for an error status of the backend; '' when no error occurred. */
  readonly error: string;
  /** The model of a generation, from a bounded set (ModelLabels); '' for other requests. */
  readonly model: string;
  readonly total_ms: number;
}

// The interface to tracing. An exchange carries a trace only when tracing is on.

/** The spans of one exchange. */
export interface ExchangeTrace {
  /** 32 hex digits, for the log line. */
  readonly id: string;
  /** Sets the W3C trace context that the backend continues. */
  toBackend(headers: Headers): void;
  /** `tokens` null: none were counted. */
  end(watch: Watch, ended: ExchangeEnd, tokens: Tokens | null): void;
}

export interface Tracer {
  /** Continues the trace that the client's headers name, or begins a new one. */
  begin(headers: IncomingHttpHeaders): ExchangeTrace;
  /** Sends the remaining spans. */
  close(): Promise<void>;
}

/** The semantic conventions require a provider name. The gateway uses its own. */
export const PROVIDER = 'countersign';
