// The one error of the engine: what the caller did wrong, in the endpoint's shape.
import type { ContentfulStatusCode } from 'hono/utils/http-status';

export class Problem extends Error {
  override readonly name = 'Problem';
  readonly status: ContentfulStatusCode;
  readonly param: string | null;
  readonly code: string | null;

  constructor(
    status: ContentfulStatusCode,
    message: string,
    { param = null, code = null }: { param?: string | null; code?: string | null } = {},
  ) {
    super(message);
    this.status = status;
    this.param = param;
    this.code = code;
  }

  get body() {
    const type = this.status >= 500 ? 'server_error' : 'invalid_request_error';
    return { error: { message: this.message, type, param: this.param, code: this.code } };
  }

  /** In Anthropic's shape; its clients ignore `code`. */
  get messageBody() {
    const usual = this.status >= 500 ? 'api_error' : 'invalid_request_error';
    const type = this.status === 404 ? 'not_found_error' : usual;
    return { type: 'error', error: { type, message: this.message, code: this.code } };
  }
}
