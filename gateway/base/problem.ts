// A problem is an error response: OpenAI's shape with all four members, a status and headers.
import type { ErrorBody } from '../../proto/openai.ts';

/** The codes of errors that the gateway makes itself. docs/errors.md explains each. */
export type ProblemCode =
  | 'invalid_json'
  | 'invalid_request'
  | 'invalid_api_key'
  | 'permission_denied'
  | 'model_not_found'
  | 'origin_not_allowed'
  | 'not_found'
  | 'method_not_allowed'
  | 'request_timeout'
  | 'body_too_large'
  | 'unsupported_encoding'
  | 'expectation_failed'
  | 'attestation_pending'
  | 'rate_limit_exceeded'
  | 'insufficient_quota'
  | 'headers_too_large'
  | 'internal_error'
  | 'http_version_not_supported'
  | 'backend_unreachable'
  | 'backend_bad_response'
  | 'stream_not_foldable'
  | 'answer_too_large'
  | 'backend_timeout'
  | 'attestation_unavailable'
  | 'store_unavailable'
  | 'overloaded'
  | 'keys_unavailable'
  | 'collateral_unavailable'
  | 'page_unavailable'
  | 'sealed_malformed'
  | 'sealed_stale'
  | 'sealed_replayed'
  | 'sealed_key_unknown'
  | 'sealed_required'
  | 'waiting_for_secrets'
  | 'secrets_refused'
  | 'secrets_not_expected';

interface ProblemOptions extends ErrorOptions {
  readonly param?: string | null | undefined;
  /** Sent as an integer `retry-after`. */
  readonly retryAfterSeconds?: number;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The status of each code. */
export const STATUS: Record<ProblemCode, number> = {
  invalid_json: 400,
  invalid_request: 400,
  invalid_api_key: 401,
  permission_denied: 403,
  model_not_found: 404,
  origin_not_allowed: 403,
  not_found: 404,
  method_not_allowed: 405,
  request_timeout: 408,
  body_too_large: 413,
  unsupported_encoding: 415,
  expectation_failed: 417,
  attestation_pending: 425,
  rate_limit_exceeded: 429,
  insufficient_quota: 429,
  headers_too_large: 431,
  internal_error: 500,
  http_version_not_supported: 505,
  backend_unreachable: 502,
  backend_bad_response: 502,
  stream_not_foldable: 502,
  answer_too_large: 502,
  backend_timeout: 504,
  attestation_unavailable: 503,
  store_unavailable: 503,
  overloaded: 503,
  keys_unavailable: 503,
  collateral_unavailable: 502,
  page_unavailable: 503,
  sealed_malformed: 400,
  sealed_stale: 400,
  sealed_replayed: 409,
  sealed_key_unknown: 422,
  sealed_required: 421,
  waiting_for_secrets: 503,
  secrets_refused: 403,
  secrets_not_expected: 409,
};

/** An error for the client, thrown anywhere in the gateway. The middleware, or the running stream, turns it into bytes. */
export class Problem extends Error {
  override readonly name = 'Problem';
  readonly code: ProblemCode;
  readonly param: string | null;
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: ProblemCode, message: string, options: ProblemOptions = {}) {
    super(message, options);
    this.code = code;
    this.param = options.param ?? null;
    const retry = options.retryAfterSeconds;
    this.headers = {
      ...options.headers,
      ...(retry === undefined ? {} : { 'retry-after': String(Math.max(1, Math.ceil(retry))) }),
    };
  }

  get status(): number {
    return STATUS[this.code];
  }

  get body(): ErrorBody {
    // OpenAI uses this code as the type too, and its clients know it.
    const type = this.code === 'insufficient_quota' ? this.code : errorType(this.status);
    return errorBody(this.status, this.message, this.param, this.code, type);
  }
}

/** OpenAI's `type` for a status. */
export function errorType(status: number): string {
  if (status === 401) return 'authentication_error';
  if (status === 403) return 'permission_error';
  if (status === 429) return 'rate_limit_error';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}

export function errorBody(
  status: number,
  message: string,
  param: string | null,
  code: string | null,
  type = errorType(status),
): ErrorBody {
  return { error: { message, type, param, code } };
}

/** Turns a thrown error into a Problem. One that is not a Problem is the gateway's own fault, and its message is not sent. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem('internal_error', 'The gateway failed while it handled this request.', { cause: error });
}
