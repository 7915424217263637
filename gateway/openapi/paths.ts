// The routes in /openapi.json. A test asks each of them whether it is there.
import { EVERY_V1_CODE, errorResponses } from './errors.ts';
import { type SchemaName, schemaRef } from './schemas.ts';

const json = (schema: object) => ({ content: { 'application/json': { schema } } });
const ok = (description: string, schema: object) => ({ 200: { description, ...json(schema) } });
const OPEN = { security: [] };
const id = { name: 'id', in: 'path', required: true, schema: { type: 'string' } };

const X_TEE = {
  name: 'x-tee',
  in: 'header',
  description: 'The same as `tee` in the body, for clients that can set only headers',
  schema: { type: 'string', enum: ['0', '1', 'false', 'true'] },
};
const X_ATTESTATION_ID = {
  description: 'With tee: the id under which the attestation can be had again, known before the first token',
  schema: { type: 'string' },
};
/** Of one event. */
const STREAM = {
  schema: {
    type: 'object',
    properties: { data: { type: 'string' } },
    description:
      'With `stream: true`: events of `chat.completion.chunk` or `text_completion` and `[DONE]`. With tee, the chunk that carries the last `finish_reason` has the `attestation`; an error takes its place as `data: {"error": …}`.',
  },
};

function generate(operationId: string, summary: string, request: SchemaName, answer: SchemaName) {
  return {
    post: {
      operationId,
      summary,
      tags: ['Generation'],
      parameters: [X_TEE],
      requestBody: { required: true, ...json(schemaRef(request)) },
      responses: {
        200: {
          description: 'The backend’s answer; with tee, its attestation too',
          headers: { 'x-attestation-id': X_ATTESTATION_ID },
          content: { 'application/json': { schema: schemaRef(answer) }, 'text/event-stream': STREAM },
        },
        ...errorResponses(EVERY_V1_CODE),
      },
    },
  };
}

function again(operationId: string) {
  return {
    get: {
      operationId,
      summary: 'An attestation again, to the key that asked',
      tags: ['Attestation'],
      parameters: [{ ...id, description: '`x-attestation-id`, or the completion’s own id' }],
      responses: {
        ...ok('The attestation', schemaRef('Attestation')),
        ...errorResponses([...EVERY_V1_CODE, 'attestation_pending']),
      },
    },
  };
}

/** Where `stream: true` asks for them. */
const EVENTS = { 'text/event-stream': { schema: { type: 'string' } } };

function backend(operationId: string, summary: string, parameters: object[] = [], streamed: object = {}) {
  return {
    operationId,
    summary,
    tags: ['Backend'],
    ...(parameters.length === 0 ? {} : { parameters }),
    responses: {
      200: { description: 'As the backend has it', content: { 'application/json': { schema: {} }, ...streamed } },
      ...errorResponses(EVERY_V1_CODE),
    },
  };
}
const anyJson = { requestBody: { required: true, ...json({ type: 'object' }) } };

const verification = {
  tags: ['Attestation'],
  ...OPEN,
  summary: 'Is this attestation right?',
  description: 'GET does the same, body included.',
  parameters: [
    {
      name: 'report',
      in: 'query',
      description: '1: every check instead of `true`',
      schema: { type: 'string', enum: ['0', '1'] },
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
    ...ok('`true`; with `report=1` the list of checks, whether they passed or not', {
      anyOf: [{ const: true }, schemaRef('VerificationReport')],
    }),
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

const text = (type: string) => ({ content: { [type]: { schema: { type: 'string' } } } });

export const paths = {
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
  '/v1/chat/completions/{id}/attestation': again('getChatCompletionAttestation'),
  '/v1/completions/{id}/attestation': again('getCompletionAttestation'),
  '/v1/models': { get: backend('listModels', 'The backend’s models') },
  '/v1/models/{id}': { get: backend('getModel', 'One of the backend’s models', [id]) },
  '/v1/embeddings': { post: { ...backend('createEmbedding', 'Embeddings, where the backend has them'), ...anyJson } },
  '/v1/responses': {
    post: { ...backend('createResponse', 'Responses, where the backend has them', [], EVENTS), ...anyJson },
  },
  '/~sev_gpu@1.0/verify': {
    get: { operationId: 'verifyByGet', ...verification },
    post: { operationId: 'verify', ...verification },
  },
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
