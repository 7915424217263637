// What the gateway asks of its backend, the backend that generates: a request, and who takes the answer as it arrives.
import type { IncomingHttpHeaders } from 'node:http';
import type { Problem } from '../http/problem.ts';
import type { SharedHeaders } from '../http/shared-headers.ts';
import type { Owner } from '../keys/caller.ts';
import type { Headers } from './headers.ts';

export interface BackendRequest {
  readonly method: string;
  /** Begins with a slash and stands after BACKEND_URL: `/chat/completions`. Query included. */
  readonly path: string;
  readonly headers: Headers | SharedLines;
  readonly body: Buffer | string | null;
  /** Asking twice does no harm: it may be sent again when the backend hung up. */
  readonly repeatable: boolean;
  /** Whose it is: its connection carries requests of nobody else. null: a fresh connection, which carries no other request at all. */
  readonly owner: Owner | null;
}

/** The head of the backend's answer. */
export interface ResponseHead {
  readonly status: number;
  /** Names in lower case; several of one name are joined by a comma. Neither Content-Length nor Date is among them. */
  readonly headers: IncomingHttpHeaders;
  /** Content-Length in bytes; null where there is none. */
  readonly length: number | null;
  /** What was made of it, length and date aside: shared with the next answer that has the same. */
  readonly made: { toClient: SharedHeaders | null };
}

/** Called in this order: head once, data any number of times, then end or fail, once. What `head`, `data` or `end` throws becomes `fail`. */
export interface ResponseHandler {
  head(head: ResponseHead): void;
  /** The bytes are the handler's to keep. */
  data(chunk: Buffer): void;
  end(): void;
  fail(problem: Problem): void;
}

/** The reader's end of an answer. */
export interface BackendCall {
  /** Stops reading: the backend feels it as back-pressure. */
  pause(): void;
  resume(): void;
  /** Ends the backend's request. No handler method is called after it. */
  cancel(): void;
}

export interface Backend {
  call(request: BackendRequest, handler: ResponseHandler): BackendCall;
  close(): Promise<void>;
}

/** Header lines that go to the backend again and again, with one method and one path, of requests that have a body. */
export class SharedLines {
  readonly text: string;
  /** All that comes before the number of the length, once it was written; `close`: where the connection carries no other request. */
  readonly head: { keep_alive: Uint8Array | null; close: Uint8Array | null } = { keep_alive: null, close: null };

  constructor(text: string) {
    this.text = text;
  }
}
