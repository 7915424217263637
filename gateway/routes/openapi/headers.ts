// The headers in /openapi.json: those of requests with tee, and those of responses.

// Headers of requests.

const HEX_64 = '^[0-9a-f]{64}$';

export const X_TEE = {
  name: 'x-tee',
  in: 'header',
  description:
    'For clients that can set only headers. `1`: as `tee` in the body; `batch`: the answer may share its GPU signature; `header`: the answer as it is, its attestation by id alone; `0`: none. Several with commas',
  schema: { type: 'string', pattern: '^(0|false|(1|true|batch|header)( *, *(1|true|batch|header))*)$' },
  examples: {
    attested: { summary: 'An attestation in the answer', value: '1' },
    shared: { summary: 'One that may share its GPU signature, only by id', value: 'batch, header' },
  },
};

export const X_TEE_SESSION = {
  name: 'x-tee-session',
  in: 'header',
  description:
    'SHA-256 of the statement of the session that the client has verified, 64 lowercase hex digits: of this session only the name comes with the attestation',
  schema: { type: 'string', pattern: HEX_64 },
  examples: {
    held: {
      summary: 'A session that the client holds',
      value: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
    },
  },
};

// Headers of responses.

const text = { type: 'string' };
const count = { type: 'integer', minimum: 0 };
const duration = { type: 'string', pattern: '^[0-9]+ms$' };

export const HEADERS = {
  'x-request-id': {
    description: 'The gateway’s id of this request, also in its log; not the client’s',
    schema: { type: 'string', pattern: '^req-[0-9a-f]{32}$' },
  },
  'x-attestation-id': {
    description: 'With tee: the id under which the attestation can be fetched, known before the first token',
    schema: text,
  },
  'x-tee': {
    description: '`unsupported`: the request asked for tee by header, and this answer cannot be attested',
    schema: { type: 'string', const: 'unsupported' },
  },
  'x-tee-batch': {
    description: 'With `batch`, of a whole answer: how many answers share its GPU signature, this one included',
    schema: { type: 'integer', minimum: 1 },
  },
  'x-ratelimit-limit-requests': {
    description: 'Where this API key has a rate: requests a second, by the gateway',
    schema: count,
  },
  'x-ratelimit-remaining-requests': {
    description: 'Where this API key has a rate: requests that are left of this second',
    schema: count,
  },
  'x-ratelimit-reset-requests': {
    description: 'Where this API key has a rate: when all of it is there again, in milliseconds, as `120ms`',
    schema: duration,
  },
  'x-ratelimit-limit-tokens': {
    description: 'Where this API key has a budget: tokens a day (UTC), by the gateway',
    schema: count,
  },
  'x-ratelimit-remaining-tokens': {
    description: 'Where this API key has a budget: tokens that were left before this request',
    schema: count,
  },
  'x-ratelimit-reset-tokens': {
    description: 'Where this API key has a budget: the rest of the day in milliseconds, as `3600000ms`',
    schema: duration,
  },
  'retry-after': {
    description: 'Where asking again may help: in whole seconds from now',
    schema: { type: 'integer', minimum: 1 },
  },
  'x-should-retry': {
    description: '`false` with `insufficient_quota`: OpenAI’s clients do not ask again by themselves',
    schema: { type: 'string', const: 'false' },
  },
  'www-authenticate': { description: 'How to send a key: `Bearer` (RFC 9110)', schema: text },
  allow: { description: 'The methods that the path has, with commas', schema: text },
  etag: { description: 'The version of this document, for `if-none-match`', schema: text },
} as const;

export type HeaderName = keyof typeof HEADERS;

export const headerRefs = (names: readonly HeaderName[]) =>
  Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));

/** Headers of a response of /v1 with the key's rate and budget. */
export const RATES: readonly HeaderName[] = [
  'x-ratelimit-limit-requests',
  'x-ratelimit-remaining-requests',
  'x-ratelimit-reset-requests',
  'x-ratelimit-limit-tokens',
  'x-ratelimit-remaining-tokens',
  'x-ratelimit-reset-tokens',
];
