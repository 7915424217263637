// The OpenAPI document of the whole service, built from the schemas that validate requests.
import * as z from 'zod';
import { MAX_LEAVES } from '../../proto/batch.ts';
import { KEYS_MEDIA_TYPE, REQUEST_MEDIA_TYPE, RESPONSE_MEDIA_TYPE } from '../../sealed/index.ts';
import { LEVELS } from '../../verify/index.ts';
import { VERSION } from '../config.ts';
import { type ProblemCode, STATUS } from '../http/problem.ts';
import { componentSchemas, type SchemaName, schemaRef } from './openapi-schemas.ts';

/** What `?report=` of the verify endpoint may be. */
export const REPORTS = ['0', '1', 'ear'] as const;

let cached: Buffer<ArrayBuffer> | null = null;

/** Returns JSON text in UTF-8, built once in a process: it takes 40 ms. */
export function openapiDocument(): Buffer<ArrayBuffer> {
  cached ??= Buffer.from(JSON.stringify(document()));
  return cached;
}

function document() {
  return {
    openapi: '3.1.1',
    info: {
      title: 'Countersign',
      version: VERSION,
      summary:
        'An OpenAI-compatible gateway whose every answer can carry a GPU’s signature over what was asked and answered.',
      description:
        'Every other path under `/v1` that the backend has is passed through, with GET, POST and DELETE; with `tee` an answer of any POST is attested where request and answer are JSON objects. Every answer has `x-request-id`.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    security: [{}, { key: [] }, { header: [] }],
    tags: [
      { name: 'Generation', description: 'OpenAI’s own routes; `tee: true` asks for an attestation' },
      { name: 'Attestation', description: 'Had again, and checked' },
      { name: 'Backend', description: 'Passed through' },
      { name: 'Operation', description: 'For whoever runs it' },
    ],
    paths,
    components: {
      schemas: componentSchemas(),
      securitySchemes: {
        key: { type: 'http', scheme: 'bearer', description: 'An API key, where the gateway has any' },
        header: {
          type: 'apiKey',
          in: 'header',
          name: 'x-api-key',
          description: 'The same, as Anthropic’s clients send it',
        },
      },
    },
  };
}

// The error responses of a route, by status, each with its codes.

/** Codes of some routes only. Every other code may come from any route under /v1. */
const PARTICULAR: ReadonlySet<ProblemCode> = new Set([
  'attestation_pending',
  'sealed_malformed',
  'sealed_stale',
  'sealed_replayed',
  'sealed_key_unknown',
]);

const EVERY_V1_CODE = (Object.keys(STATUS) as ProblemCode[]).filter((code) => !PARTICULAR.has(code));

/** One entry of `responses` for each status. */
function errorResponses(codes: readonly ProblemCode[]): Record<string, object> {
  const byStatus = Map.groupBy(codes, (code) => STATUS[code]);
  return Object.fromEntries(
    [...byStatus].map(([status, codes]) => [
      String(status),
      {
        description: codes.map((code) => `\`${code}\``).join(', '),
        ...(status === 429 || status === 425 || status === 503 ? { headers: { 'retry-after': RETRY_AFTER } } : {}),
        content: { 'application/json': { schema: schemaRef('Error') } },
      },
    ]),
  );
}

const RETRY_AFTER = { description: 'Whole seconds', schema: { type: 'integer', minimum: 1 } };

// The routes in /openapi.json. A test requests each of them.

const json = (schema: object) => ({ content: { 'application/json': { schema } } });
const ok = (description: string, schema: object) => ({ 200: { description, ...json(schema) } });
const OPEN = { security: [] };
const id = { name: 'id', in: 'path', required: true, schema: { type: 'string' } };
const endpoint = {
  name: 'endpoint',
  in: 'path',
  required: true,
  description: 'May have several segments',
  schema: { type: 'string' },
};

const X_TEE = {
  name: 'x-tee',
  in: 'header',
  description:
    '`1` or `batch`: as `tee` in the body, for clients that can set only headers. `header`: the answer as it is, its attestation by id alone. Several with commas',
  schema: { type: 'string', pattern: '^(0|false|(1|true|batch|header)( *, *(1|true|batch|header))*)$' },
};
const X_TEE_SESSION = {
  name: 'x-tee-session',
  in: 'header',
  description: 'The session that the client has verified: of this one only the name comes with the attestation',
  schema: { type: 'string', pattern: '^[0-9a-f]{64}$' },
};
const X_ATTESTATION_ID = {
  description: 'With tee: the id under which the attestation can be had again, known before the first token',
  schema: { type: 'string' },
};
/** The schema of one event. */
const STREAM = {
  schema: {
    type: 'object',
    properties: { data: { type: 'string' } },
    description:
      'With `stream: true`: events of `chat.completion.chunk` or `text_completion` and `[DONE]`. With tee, the chunk that carries the last `finish_reason` has the `attestation`; an error takes its place as `data: {"error": …}`.',
  },
};
const NAMED_STREAM = {
  schema: {
    type: 'object',
    properties: { event: { type: 'string' }, data: { type: 'string' } },
    description:
      'With `stream: true`: named events. With tee, the event that ends the answer (the `response` of `response.completed`, or `message_delta`) has the `attestation`; an event `error` takes its place.',
  },
};
const UNSUPPORTED = {
  description: '`unsupported`: the request asked for tee by header, and nothing of this answer can be proven',
  schema: { type: 'string', const: 'unsupported' },
};

function generate(operationId: string, summary: string, request: SchemaName, response: SchemaName) {
  return {
    post: {
      operationId,
      summary,
      tags: ['Generation'],
      parameters: [X_TEE, X_TEE_SESSION],
      requestBody: { required: true, ...json(schemaRef(request)) },
      responses: {
        200: {
          description: 'The backend’s answer; with tee, its attestation too',
          headers: { 'x-attestation-id': X_ATTESTATION_ID },
          content: { 'application/json': { schema: schemaRef(response) }, 'text/event-stream': STREAM },
        },
        ...errorResponses(EVERY_V1_CODE),
      },
    },
  };
}

/** A route of the backend whose answer can be attested. */
function provable(operationId: string, summary: string, stream: object = {}, parameters: object[] = []) {
  const answer = z.toJSONSchema(z.looseObject({}));
  const properties = { attestation: { ...schemaRef('Attestation'), description: 'Where `tee` was true' } };
  return {
    post: {
      operationId,
      summary,
      tags: ['Generation'],
      parameters: [...parameters, X_TEE, X_TEE_SESSION],
      requestBody: {
        required: true,
        ...json({ type: 'object', properties: { tee: schemaRef('Tee') }, additionalProperties: true }),
      },
      responses: {
        200: {
          description: 'The backend’s answer; with tee, its attestation too',
          headers: { 'x-attestation-id': X_ATTESTATION_ID, 'x-tee': UNSUPPORTED },
          content: { 'application/json': { schema: { ...answer, properties } }, ...stream },
        },
        ...errorResponses(EVERY_V1_CODE),
      },
    },
  };
}

function attestationById(operationId: string, parameters: object[] = []) {
  return {
    get: {
      operationId,
      summary: 'An attestation again, to the key that asked',
      tags: ['Attestation'],
      parameters: [...parameters, { ...id, description: '`x-attestation-id`, or the answer’s own id' }],
      responses: {
        ...ok('The attestation', schemaRef('Attestation')),
        ...errorResponses([...EVERY_V1_CODE, 'attestation_pending']),
      },
    },
  };
}

const attestationSession = {
  get: {
    operationId: 'getAttestationSession',
    summary: 'The session with the processor that attestations are signed in',
    tags: ['Attestation'],
    parameters: [
      {
        name: 'challenge',
        in: 'query',
        description: '64 hex digits that the statement will hold: a session of its own, under the same key',
        schema: { type: 'string', pattern: '^[0-9a-f]{64}$' },
      },
    ],
    responses: { ...ok('The session', schemaRef('Session')), ...errorResponses(EVERY_V1_CODE) },
  },
};

function backend(operationId: string, summary: string, parameters: object[] = []) {
  return {
    operationId,
    summary,
    tags: ['Backend'],
    ...(parameters.length === 0 ? {} : { parameters }),
    responses: {
      200: { description: 'As the backend has it', content: { 'application/json': { schema: {} } } },
      ...errorResponses(EVERY_V1_CODE),
    },
  };
}

const verification = {
  tags: ['Attestation'],
  ...OPEN,
  summary: 'Is this attestation right?',
  description: 'GET does the same, body included.',
  parameters: [
    {
      name: 'report',
      in: 'query',
      description: '1: every check instead of `true`; ear: the result as EAR, unsigned',
      schema: { type: 'string', enum: REPORTS },
    },
    {
      name: 'min_level',
      in: 'query',
      description: 'The least level that counts as right',
      schema: { type: 'string', enum: LEVELS },
    },
    {
      name: 'max_batch',
      in: 'query',
      description: 'How many answers may share the signature; 1: none but this one',
      schema: { type: 'integer', minimum: 1, maximum: MAX_LEAVES },
    },
    {
      name: 'endpoint',
      in: 'query',
      description: 'The path that the attestation must be of, such as `/v1/responses`',
      schema: { type: 'string' },
    },
  ],
  requestBody: {
    required: true,
    ...json({
      description: 'An attestation, its JSON text as a string, or an answer that carries one',
      anyOf: [schemaRef('Attestation'), { type: 'string' }, { type: 'object' }],
    }),
  },
  responses: {
    200: {
      description:
        '`true`; with `report=1` the list of checks, with `report=ear` the result, whether they passed or not',
      content: {
        ...json({ anyOf: [{ const: true }, schemaRef('VerificationReport')] }).content,
        'application/eat-ucs+json': { schema: schemaRef('AttestationResult') },
      },
    },
    ...errorResponses([
      'invalid_json',
      'invalid_request',
      'origin_not_allowed',
      'request_timeout',
      'body_too_large',
      'unsupported_encoding',
      'rate_limit_exceeded',
      'internal_error',
      'overloaded',
    ]),
    422: { description: 'It is not: `code` is that of the first check that failed', ...json(schemaRef('Error')) },
  },
};

const SEALED_MESSAGE = { schema: { type: 'string', format: 'binary' } };
const sealedRequest = {
  post: {
    operationId: 'sealedRequest',
    summary: 'A request that is sealed to a key of the current session, and its response, sealed too',
    tags: ['Generation'],
    ...OPEN,
    description:
      'Chunked Oblivious HTTP (RFC 9458, draft-ietf-ohai-chunked-ohttp). Inside is a request for a path under `/v1` or the verify endpoint, with its own API key and `date`. What goes wrong once it is opened is said inside, with `sealed_stale` among it.',
    requestBody: { required: true, content: { [REQUEST_MEDIA_TYPE]: SEALED_MESSAGE } },
    responses: {
      200: {
        description: 'The sealed response, whatever its own status',
        content: { [RESPONSE_MEDIA_TYPE]: SEALED_MESSAGE },
      },
      ...errorResponses([
        'sealed_malformed',
        'sealed_stale',
        'sealed_replayed',
        'sealed_key_unknown',
        'origin_not_allowed',
        'internal_error',
        'overloaded',
      ]),
    },
  },
};
const sealingKeys = {
  get: {
    operationId: 'getSealingKeys',
    summary: 'The keys to seal to, as the current session names them: trust them only there',
    tags: ['Attestation'],
    ...OPEN,
    responses: {
      200: { description: 'Key configurations (RFC 9458 §3.2)', content: { [KEYS_MEDIA_TYPE]: SEALED_MESSAGE } },
      ...errorResponses(['not_found', 'origin_not_allowed', 'attestation_unavailable']),
    },
  },
};

const text = (type: string) => ({ content: { [type]: { schema: { type: 'string' } } } });

const paths = {
  '/v1/chat/completions': generate(
    'createChatCompletion',
    'A chat completion, attested where `tee` is true',
    'ChatCompletionRequest',
    'ChatCompletion',
  ),
  '/v1/completions': generate(
    'createCompletion',
    'A completion, attested where `tee` is true',
    'CompletionRequest',
    'Completion',
  ),
  '/v1/chat/completions/{id}/attestation': attestationById('getChatCompletionAttestation'),
  '/v1/completions/{id}/attestation': attestationById('getCompletionAttestation'),
  '/v1/attestation/session': attestationSession,
  '/v1/models': { get: backend('listModels', 'The backend’s models') },
  '/v1/models/{id}': { get: backend('getModel', 'One of the backend’s models', [id]) },
  '/v1/responses': provable('createResponse', 'A response, where the backend has them', {
    'text/event-stream': NAMED_STREAM,
  }),
  '/v1/messages': provable('createMessage', 'A message, where the backend has them', {
    'text/event-stream': NAMED_STREAM,
  }),
  '/v1/embeddings': provable('createEmbedding', 'Embeddings, where the backend has them'),
  '/v1/{endpoint}': provable(
    'createOther',
    'Any other endpoint of the backend whose request and answer are JSON objects',
    {},
    [endpoint],
  ),
  '/v1/{endpoint}/{id}/attestation': attestationById('getAttestation', [endpoint]),
  '/~sev_gpu@1.0/verify': {
    get: { operationId: 'verifyByGet', ...verification },
    post: { operationId: 'verify', ...verification },
  },
  '/ohttp': sealedRequest,
  '/.well-known/ohttp-keys': sealingKeys,
  '/health': {
    get: {
      operationId: 'health',
      summary: 'Does chat without tee work, and does tee?',
      tags: ['Operation'],
      ...OPEN,
      responses: {
        ...ok('Chat without tee works', schemaRef('Health')),
        ...errorResponses(['origin_not_allowed']),
        503: { description: 'The backend is out', ...json(schemaRef('Health')) },
      },
    },
  },
  '/usage': {
    get: {
      operationId: 'usage',
      summary: 'What the API key has used in the last days, by day and model',
      tags: ['Operation'],
      responses: {
        ...ok('Of this key alone', schemaRef('Usage')),
        ...errorResponses([
          'invalid_request',
          'invalid_api_key',
          'origin_not_allowed',
          'rate_limit_exceeded',
          'internal_error',
          'store_unavailable',
          'overloaded',
        ]),
      },
    },
  },
  '/metrics': {
    get: {
      operationId: 'metrics',
      summary: 'Prometheus text, unless it has a port of its own',
      tags: ['Operation'],
      ...OPEN,
      responses: {
        200: { description: 'docs/metrics.md lists them', ...text('text/plain') },
        ...errorResponses(['origin_not_allowed', 'not_found']),
      },
    },
  },
  '/openapi.json': {
    get: {
      operationId: 'openapi',
      summary: 'This document',
      tags: ['Operation'],
      ...OPEN,
      responses: { ...ok('OpenAPI 3.1', { type: 'object' }), ...errorResponses(['origin_not_allowed']) },
    },
  },
};
