// The error responses in /openapi.json: which codes a kind of route can give, an example of each code, and the headers that go with them.
import { errorBody, errorType, type ProblemCode, STATUS } from '../../base/problem.ts';
import { type HEADERS, headerRefs } from './headers.ts';
import { schemaRef } from './parts.ts';

// Which codes a route can give.

/** Codes of every route, such as those for malformed HTTP and for origins that are not allowed. */
const ANYWHERE = [
  'invalid_request',
  'origin_not_allowed',
  'method_not_allowed',
  'request_timeout',
  'expectation_failed',
  'headers_too_large',
  'internal_error',
  'http_version_not_supported',
] as const satisfies readonly ProblemCode[];

const WITH_KEY = [...ANYWHERE, 'invalid_api_key', 'rate_limit_exceeded', 'overloaded'] as const;
const WITH_BODY = ['invalid_json', 'body_too_large', 'unsupported_encoding'] as const;
const FROM_BACKEND = ['backend_unreachable', 'backend_bad_response', 'backend_timeout'] as const;
const OF_MODELS = ['permission_denied', 'model_not_found', 'not_found'] as const;

export const CODES = {
  open: ANYWHERE,
  page: [...ANYWHERE, 'page_unavailable'],
  metrics: [...ANYWHERE, 'not_found'],
  verification: [...ANYWHERE, ...WITH_BODY, 'rate_limit_exceeded', 'overloaded'],
  usage: [...WITH_KEY, 'store_unavailable'],
  session: [...WITH_KEY, 'not_found', 'attestation_unavailable'],
  retrieval: [...WITH_KEY, 'not_found', 'attestation_pending', 'store_unavailable'],
  backend: [...WITH_KEY, 'body_too_large', 'unsupported_encoding', ...OF_MODELS, ...FROM_BACKEND],
  generation: [
    ...WITH_KEY,
    ...WITH_BODY,
    ...OF_MODELS,
    ...FROM_BACKEND,
    'stream_not_foldable',
    'answer_too_large',
    'insufficient_quota',
    'attestation_unavailable',
    'sealed_required',
  ],
  sealed: [
    ...ANYWHERE,
    'sealed_malformed',
    'sealed_stale',
    'sealed_replayed',
    'sealed_key_unknown',
    'rate_limit_exceeded',
    'overloaded',
    'store_unavailable',
  ],
  keys: [...ANYWHERE, 'not_found', 'attestation_unavailable'],
} as const satisfies Readonly<Record<string, readonly ProblemCode[]>>;

/** Routes that forward the backend's responses, errors included. */
const FORWARDING: readonly (keyof typeof CODES)[] = ['backend', 'generation'];

// An example of each code.

interface ErrorExample {
  /** When the error occurs. */
  readonly summary: string;
  readonly message: string;
  readonly param?: string | null;
}

/** Without the code of the page's own routes. */
export const ERROR_EXAMPLES: Readonly<Record<Exclude<ProblemCode, 'collateral_unavailable'>, ErrorExample>> = {
  invalid_json: { summary: 'The body is not JSON, or not UTF-8', message: 'The request body is not valid JSON.' },
  invalid_request: {
    summary: 'The request is no valid HTTP',
    message: 'Send one host header.',
  },
  invalid_api_key: {
    summary: 'No API key, or one that the gateway does not know',
    message: 'Send a valid API key as "Authorization: Bearer KEY".',
  },
  permission_denied: {
    summary: 'A route that this API key may not use',
    message: 'This route manages the backend. It is for admin keys, which "countersign keys add NAME --admin" makes.',
  },
  model_not_found: {
    summary: 'No such model, or none for this API key',
    message: 'The model `other` does not exist or you do not have access to it.',
  },
  origin_not_allowed: {
    summary: 'A web page of an origin that may not use the gateway',
    message: 'Web pages of this origin may not use this gateway (CORS_ORIGINS).',
  },
  not_found: {
    summary: 'Nothing is there',
    message: 'There is nothing here.',
  },
  method_not_allowed: { summary: 'Another method than the path has', message: 'PUT is not allowed here.' },
  request_timeout: {
    summary: 'The request did not arrive in time',
    message: 'The request did not arrive in time.',
  },
  body_too_large: {
    summary: 'A larger body than the gateway takes',
    message: 'The request body is larger than 33554432 bytes.',
  },
  unsupported_encoding: {
    summary: 'A compressed body',
    message: 'A content-encoding is not supported here: send the body as it is.',
  },
  expectation_failed: {
    summary: 'Another expect header than 100-continue',
    message: 'Only "expect: 100-continue" can be met.',
  },
  attestation_pending: {
    summary: 'The answer is still being generated',
    message: 'The answer is not complete yet.',
    param: 'id',
  },
  rate_limit_exceeded: {
    summary: 'More requests than this API key, this address or the backend takes',
    message: 'The rate limit is 5 requests a second for this API key.',
  },
  insufficient_quota: {
    summary: 'The API key’s tokens of the day are spent',
    message: "This API key may use 100000 tokens a day, and has. The day is UTC's.",
  },
  headers_too_large: {
    summary: 'Request line and headers over the limit',
    message: "The request's headers are larger than 32768 bytes.",
  },
  internal_error: {
    summary: 'A fault of the gateway',
    message: 'The gateway failed while it handled this request.',
  },
  http_version_not_supported: {
    summary: 'Another version of HTTP than 1.0 and 1.1',
    message: 'HTTP/1.1 and HTTP/1.0 are spoken here.',
  },
  backend_unreachable: {
    summary: 'No connection to the backend',
    message: 'The backend cannot be reached.',
  },
  backend_bad_response: {
    summary: 'The backend answered with something that cannot be handed on',
    message: 'The backend answered with neither JSON nor an event stream.',
  },
  stream_not_foldable: {
    summary: 'With tee: clients would show something else of the stream than can be signed',
    message: 'The stream of the backend cannot be signed as clients show it: a member changes that is set once.',
  },
  answer_too_large: {
    summary: 'With tee: the answer is larger than what is attested',
    message: 'The answer is larger than 16777216 bytes, the most that is attested (MAX_ANSWER_BYTES).',
  },
  backend_timeout: {
    summary: 'The backend was silent for too long',
    message: 'The backend stayed silent for too long (BACKEND_TIMEOUT_MS).',
  },
  attestation_unavailable: {
    summary: 'The answer cannot be attested now',
    message: 'No sidecar is connected.',
  },
  store_unavailable: {
    summary: 'The shared store cannot be reached',
    message: 'The store of attestations cannot be reached.',
  },
  overloaded: {
    summary: 'The gateway has as much to do as it takes',
    message: 'The gateway serves as many requests as it may (MAX_CONCURRENT_REQUESTS).',
  },
  page_unavailable: {
    summary: 'The page was not built',
    message: 'The page has not been built: "npm run make page" makes it. The API at /v1 works without it.',
  },
  sealed_malformed: {
    summary: 'Not a sealed request, or one that was changed or cut',
    message: 'A sealed request is of type message/ohttp-chunked-req.',
  },
  sealed_stale: {
    summary: 'Said inside: it was sealed long ago, or the clock of the client is wrong',
    message: 'A sealed request needs a date header.',
  },
  sealed_replayed: {
    summary: 'The same sealed request came before',
    message: 'This sealed request was received before: seal it anew.',
  },
  sealed_key_unknown: {
    summary: 'Sealed to a key of another session',
    message: 'No key here opens this request. Verify the current session and seal to the keys that it names.',
  },
  sealed_required: {
    summary: 'A request in the clear, where only sealed ones are served',
    message:
      'This gateway serves only requests that are sealed to its attested key (POST /ohttp): a prompt in the clear could be read on its way.',
  },
};

/** Examples of codes that mean something else on one kind of route. */
export const OWN_EXAMPLES: Partial<
  Readonly<Record<keyof typeof CODES, Partial<Readonly<Record<ProblemCode, ErrorExample>>>>>
> = {
  generation: {
    invalid_request: {
      summary: 'A member or a header is not as it must be',
      message: 'tee: must be true, false, null or an object of batch and challenge',
      param: 'tee',
    },
  },
  retrieval: {
    not_found: {
      summary: 'No attestation under this id for this API key',
      message: 'No attestation is kept under this id for this API key.',
      param: 'id',
    },
    method_not_allowed: { summary: 'Another method than GET', message: 'Only GET is allowed here.' },
  },
  session: {
    invalid_request: {
      summary: 'Not a challenge',
      message: 'challenge: must be 64 lowercase hex digits.',
      param: 'challenge',
    },
    not_found: {
      summary: 'The service runs in no confidential VM',
      message: 'No processor signs here: there are no sessions.',
    },
    method_not_allowed: { summary: 'Another method than GET', message: 'Only GET is allowed here.' },
  },
  verification: {
    invalid_json: { summary: 'The body is not JSON', message: 'The body is not valid JSON.' },
    invalid_request: {
      summary: 'An option that does not exist',
      message: 'report: must be one of 0, 1, ear.',
      param: 'report',
    },
    method_not_allowed: { summary: 'Another method than GET and POST', message: 'Only GET, POST is allowed here.' },
    rate_limit_exceeded: {
      summary: 'More verifications than one address may have',
      message: 'The rate limit is 1 requests a second for verifications from one address.',
    },
    overloaded: { summary: 'Too many verifications at once', message: 'Too many verifications wait.' },
  },
  usage: {
    invalid_request: {
      summary: 'The gateway has no API keys',
      message: 'Usage is kept of API keys, and this gateway has none (API_KEYS_FILE).',
    },
    method_not_allowed: { summary: 'Another method than GET', message: 'Only GET is allowed here.' },
    store_unavailable: {
      summary: 'The shared store cannot be reached',
      message: 'The store that usage is kept in cannot be reached.',
    },
  },
  metrics: {
    not_found: {
      summary: 'They are served on another port',
      message: 'With API keys, metrics are served on a port of their own: set METRICS_PORT.',
    },
    method_not_allowed: { summary: 'Another method than GET', message: 'Only GET is allowed here.' },
  },
  keys: {
    not_found: {
      summary: 'The service runs in no confidential VM',
      message: 'No processor signs here: there are no sessions.',
    },
    method_not_allowed: { summary: 'Another method than GET', message: 'Only GET is allowed here.' },
  },
  sealed: {
    method_not_allowed: { summary: 'Another method than POST', message: 'Only POST is allowed here.' },
    rate_limit_exceeded: {
      summary: 'More sealed requests than one address may have',
      message: 'The rate limit is 200 requests a second for sealed requests from one address.',
    },
    store_unavailable: {
      summary: 'Whether the request came before cannot be known',
      message: 'The store that knows which sealed requests came before cannot be reached.',
    },
  },
  open: { method_not_allowed: { summary: 'Another method than GET', message: 'Only GET is allowed here.' } },
  page: { method_not_allowed: { summary: 'Another method than GET', message: 'Only GET is allowed here.' } },
};

/** An error of the backend. The response has the same status. */
const BACKEND_ERROR = {
  summary: 'An error of the backend’s own, with its status and its words',
  value: errorBody(500, 'CUDA out of memory.', null, 'backend_error'),
};

const nameOf = (code: string, kind?: string) => `error.${code}${kind === undefined ? '' : `.${kind}`}`;

function example(code: ProblemCode, { summary, message, param = null }: ErrorExample) {
  const status = STATUS[code];
  const type = code === 'insufficient_quota' ? code : errorType(status);
  return { summary, value: errorBody(status, message, param, code, type) };
}

const entriesOf = (examples: Partial<Readonly<Record<ProblemCode, ErrorExample>>>) =>
  Object.entries(examples) as [ProblemCode, ErrorExample][];

/** For `components.examples`. */
export function errorExamples(): Record<string, object> {
  const general = entriesOf(ERROR_EXAMPLES).map(([code, one]) => [nameOf(code), example(code, one)]);
  const own = Object.entries(OWN_EXAMPLES).flatMap(([kind, examples]) =>
    entriesOf(examples).map(([code, one]) => [nameOf(code, kind), example(code, one)]),
  );
  return { ...Object.fromEntries([...general, ...own]), [nameOf('backend_error')]: BACKEND_ERROR };
}

function exampleRef(kind: keyof typeof CODES, code: string) {
  const isOwn = Object.hasOwn(OWN_EXAMPLES[kind] ?? {}, code);
  return { $ref: `#/components/examples/${nameOf(code, isOwn ? kind : undefined)}` };
}

/** Headers of responses with these statuses, in addition to those of every response. */
const STATUS_HEADERS: Readonly<Record<number, readonly (keyof typeof HEADERS)[]>> = {
  401: ['www-authenticate'],
  405: ['allow'],
  425: ['retry-after'],
  429: ['retry-after', 'x-should-retry'],
  502: ['retry-after'],
  503: ['retry-after'],
};

type Kind = keyof typeof CODES;

/** The codes of a kind of route by their status. */
function codesOf(kind: Kind): [status: number, codes: string[]][] {
  const byStatus = Map.groupBy<number, string>(CODES[kind], (code) => STATUS[code as ProblemCode]);
  if (FORWARDING.includes(kind)) byStatus.get(500)?.push('backend_error');
  return [...byStatus].sort(([a], [b]) => a - b);
}

/** `more`: examples of the verifier's own codes. */
function errorResponse(kind: Kind, status: number, codes: readonly string[], more: Record<string, object> = {}) {
  const all = [...codes, ...Object.keys(more)];
  return {
    description: all.map((code) => `\`${code}\``).join(', '),
    headers: headerRefs(['x-request-id', ...(STATUS_HEADERS[status] ?? [])]),
    content: {
      'application/json': {
        schema: schemaRef('Error'),
        examples: { ...Object.fromEntries(codes.map((code) => [code, exampleRef(kind, code)])), ...more },
      },
    },
  };
}

const responseName = (kind: Kind, status: number) => `${kind}.${status}`;

/** For `components.responses`. `rejected`: examples of the verify endpoint's responses with status 400. */
export function errorComponents(rejected: Record<string, object>): Record<string, object> {
  const kinds = Object.keys(CODES) as Kind[];
  return Object.fromEntries(
    kinds.flatMap((kind) =>
      codesOf(kind).map(([status, codes]) => [
        responseName(kind, status),
        errorResponse(kind, status, codes, kind === 'verification' && status === 400 ? rejected : {}),
      ]),
    ),
  );
}

/** One entry of `responses` for each status of the route's codes. */
export const errorResponses = (kind: Kind): Record<string, object> =>
  Object.fromEntries(
    codesOf(kind).map(([status]) => [String(status), { $ref: `#/components/responses/${responseName(kind, status)}` }]),
  );
