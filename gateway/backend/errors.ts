// Errors of the backend: faults of the connection, and the backend's own errors in OpenAI's shape.
import { errors } from 'undici';
import { isObject } from '../../proto/json.ts';
import type { ErrorBody } from '../../proto/openai.ts';
import { errorBody, errorType } from '../base/problem.ts';

type FaultKind =
  /** No connection was established. */
  | 'unreachable'
  /** The backend sent nothing for longer than the limit. */
  | 'timeout'
  /** The bytes are not an HTTP/1.1 response. */
  | 'not_http'
  /** The bytes belong to the connection, which the backend ends, and not to the request. */
  | 'unsolicited'
  /** The connection ended before the response was complete. */
  | 'disconnected'
  /** The gateway stops. */
  | 'stopped';

/** A fault of the connection. Its message holds backend internals (addresses, parser texts) and is never sent to a client. */
export class BackendFault extends Error {
  override readonly name = 'BackendFault';

  readonly kind: FaultKind;

  constructor(kind: FaultKind, message: string) {
    super(message);
    this.kind = kind;
  }
}

const DISCONNECTED = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);
/** The assertion is undici's, for a status 101 without the header Upgrade. */
const NOT_HTTP = new Set(['UND_ERR_HEADERS_OVERFLOW', 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH', 'ERR_ASSERTION']);
/** Messages of undici's SocketError for a response that nobody asked for, or an upgrade. */
const BAD_RESPONSE = /^bad (response|upgrade)$/;

/** The kind of an error that undici reports. */
export function faultOf(error: Error): FaultKind {
  if (error instanceof BackendFault) return error.kind;
  const { code = '' } = error as NodeJS.ErrnoException;
  if (code === 'UND_ERR_HEADERS_TIMEOUT' || code === 'UND_ERR_BODY_TIMEOUT') return 'timeout';
  if (error instanceof errors.HTTPParserError || NOT_HTTP.has(code) || BAD_RESPONSE.test(error.message))
    return 'not_http';
  return DISCONNECTED.has(code) ? 'disconnected' : 'unreachable';
}

// Rewrites a backend's error into OpenAI's shape. The status is kept and all four members are present.

/** The backend's error text is cut to this length: a stack trace or an HTML page is no use to a client. */
const MAX_MESSAGE = 2_000;

const text = (value: unknown): string | null =>
  typeof value === 'string' && value !== '' ? value.slice(0, MAX_MESSAGE) : null;

/** The code for a status when the backend gives no text code (llama-server and vLLM repeat the status as an integer). */
function defaultCode(status: number): string {
  if (status === 401) return 'invalid_api_key';
  if (status === 404) return 'not_found';
  if (status === 413) return 'body_too_large';
  if (status === 429) return 'rate_limit_exceeded';
  return status >= 500 ? 'backend_error' : 'invalid_request';
}

/**
 * Rewrites the body of an error response. Known shapes: OpenAI `{error: {…}}`, `{error: "…"}`, FastAPI `{detail}`, vLLM
 * `{object: "error", message}`.
 */
export function rewriteError(status: number, body: string): ErrorBody {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    parsed = null;
  }
  return errorOf(status, parsed);
}

/** Rewrites a parsed error body or error chunk. Further members inside of an error object, and beside it, are kept. */
export function errorOf(status: number, parsed: unknown): ErrorBody {
  const fallback = `The backend answered with status ${status}.`;
  if (!isObject(parsed)) return errorBody(status, fallback, null, defaultCode(status));
  const nested = isObject(parsed.error) ? parsed.error : null;
  const source = nested ?? parsed;
  const message =
    text(source.message) ?? text(parsed.error) ?? text(parsed.message) ?? detail(parsed.detail) ?? fallback;
  const code = text(source.code) ?? defaultCode(status);
  const { error } = errorBody(
    status,
    message,
    text(source.param) ?? location(parsed.detail),
    code,
    classOf(source.type) ?? errorType(status),
  );
  return nested === null ? { error } : { ...parsed, error: { ...error, ...nested, ...error } };
}

/** OpenAI's classes of errors, and those like them. vLLM sends the names of Python's classes, by which no client goes. */
const classOf = (type: unknown): string | null =>
  typeof type === 'string' && /^[a-z][a-z0-9_.-]*$/.test(type) ? text(type) : null;

/** FastAPI's `detail` is a text or a list of `{loc, msg}`. Its `input` repeats the prompt and is left out. */
function detail(value: unknown): string | null {
  if (!Array.isArray(value)) return text(value);
  const messages = value.slice(0, 8).map((item) => (isObject(item) ? text(item.msg) : text(item)));
  return text(messages.filter((message) => message !== null).join('; '));
}

function location(value: unknown): string | null {
  const first = Array.isArray(value) ? value[0] : null;
  if (!isObject(first) || !Array.isArray(first.loc)) return null;
  return text(first.loc.filter((part) => part !== 'body').join('.'));
}
