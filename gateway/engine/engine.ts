// What the gateway asks of its engine, the backend that generates: a request, and who takes the answer as it arrives.
import type { IncomingHttpHeaders } from 'node:http';
import type { Problem } from '../problem.ts';
import type { Headers } from './headers.ts';

export interface EngineRequest {
  readonly method: string;
  /** Begins with a slash and stands after BACKEND_URL: `/chat/completions`. Query included. */
  readonly path: string;
  /** Or their lines, as `headerLines` writes them. */
  readonly headers: Headers | string;
  readonly body: Buffer | string | null;
  /** Asking twice does no harm: it may be sent again when the backend hung up. */
  readonly repeatable: boolean;
}

/** Called in this order: head once, data any number of times, then end or fail, once. What `head` or `data` throws becomes `fail`. */
export interface EngineHandler {
  head(status: number, headers: IncomingHttpHeaders): void;
  /** The bytes are the handler's to keep. */
  data(chunk: Buffer): void;
  end(): void;
  fail(problem: Problem): void;
}

/** The reader's end of an answer. */
export interface EngineCall {
  /** Stops reading: the backend feels it as back-pressure. */
  pause(): void;
  resume(): void;
  /** Ends the backend's request. No handler method is called after it. */
  cancel(): void;
}

export interface Engine {
  call(request: EngineRequest, handler: EngineHandler): EngineCall;
  close(): Promise<void>;
}
