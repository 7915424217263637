// What the gateway asks of its backend, the backend that generates: a request, and who takes the answer as it arrives.
import type { IncomingHttpHeaders } from 'node:http';
import type { ErrorBody } from '../../proto/openai.ts';
import { errorBody, errorType, type Problem } from '../http/problem.ts';
import type { SharedHeaders } from '../http/shared-headers.ts';
import type { Owner } from '../keys/keys.ts';

/** Names in lower case; an array is a header that stands there more than once. */
export type Headers = Record<string, string | string[]>;

export interface BackendRequest {
  readonly method: string;
  /** Begins with a slash and stands after BACKEND_URL: `/chat/completions`. Query included. */
  readonly path: string;
  readonly headers: Headers | SerializedHeaders;
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
  readonly cache: { clientHeaders: SharedHeaders | null };
}

/** Takes a response as it arrives. Called in this order: head once, data any number of times, then end or fail, once. What `head`, `data` or `end` throws becomes `fail`. */
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
export class SerializedHeaders {
  readonly text: string;
  /** All that comes before the number of the length, once it was written; `close`: where the connection carries no other request. */
  readonly prefix: { keep_alive: Uint8Array | null; close: Uint8Array | null } = { keep_alive: null, close: null };

  constructor(text: string) {
    this.text = text;
  }
}

// What goes wrong with the backend: what ends an exchange before a client reads it, and its own errors in OpenAI's shape.

// What can go wrong between the gateway and the backend, before it becomes a problem that a client reads.

type FaultKind =
  /** No connection came about. */
  | 'unreachable'
  /** Silence for longer than allowed. */
  | 'silent'
  /** Bytes that are no HTTP/1.1 answer. */
  | 'not_http'
  /** An answer that was on its way before the request was: it is to nothing. */
  | 'not_asked'
  /** The connection ended before the answer did. */
  | 'hung_up'
  /** The gateway ended it: its own time was over. */
  | 'stopped';

/** Backend internals (addresses, parser texts) stay in here: they are for nobody outside. */
export class BackendFault extends Error {
  override readonly name = 'BackendFault';

  readonly kind: FaultKind;

  constructor(kind: FaultKind, message: string) {
    super(message);
    this.kind = kind;
  }
}

// Rewrites a backend's error into OpenAI's shape: status kept, all four members present, whatever the backend's own looked like.

/** A backend's error text is cut here: a stack trace or an HTML page helps no client. */
const MAX_MESSAGE = 2_000;

type JsonObject = Record<string, unknown>;
const isJsonObject = (value: unknown): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const text = (value: unknown): string | null =>
  typeof value === 'string' && value !== '' ? value.slice(0, MAX_MESSAGE) : null;

/** Code by status where the backend gave none in words (llama-server and vLLM repeat the status as an integer). */
function defaultCode(status: number): string {
  if (status === 401) return 'invalid_api_key';
  if (status === 404) return 'not_found';
  if (status === 413) return 'body_too_large';
  if (status === 429) return 'rate_limit_exceeded';
  return status >= 500 ? 'backend_error' : 'invalid_request';
}

/** From the body of a response with an error status. Shapes: OpenAI `{error: {…}}`, `{error: "…"}`, FastAPI `{detail}`, vLLM `{object: "error", message}`, anything else. */
export function rewriteError(status: number, body: string): ErrorBody {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    parsed = null;
  }
  return errorOf(status, parsed);
}

/** The same from a parsed body or an error chunk. */
export function errorOf(status: number, parsed: unknown): ErrorBody {
  const fallback = `The backend answered with status ${status}.`;
  if (!isJsonObject(parsed)) return errorBody(status, fallback, null, defaultCode(status));
  const source = isJsonObject(parsed.error) ? parsed.error : parsed;
  const message =
    text(source.message) ?? text(parsed.error) ?? text(parsed.message) ?? detail(parsed.detail) ?? fallback;
  const code = text(source.code) ?? defaultCode(status);
  return errorBody(
    status,
    message,
    text(source.param) ?? location(parsed.detail),
    code,
    text(source.type) ?? errorType(status),
  );
}

/** FastAPI: a text, or a list of `{loc, msg}`. `input`, which repeats the prompt, is left out. */
function detail(value: unknown): string | null {
  if (!Array.isArray(value)) return text(value);
  const messages = value.slice(0, 8).map((item) => (isJsonObject(item) ? text(item.msg) : text(item)));
  return text(messages.filter((message) => message !== null).join('; '));
}

function location(value: unknown): string | null {
  const first = Array.isArray(value) ? value[0] : null;
  if (!isJsonObject(first) || !Array.isArray(first.loc)) return null;
  return text(first.loc.filter((part) => part !== 'body').join('.'));
}
