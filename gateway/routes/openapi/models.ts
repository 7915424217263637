// The routes under /v1 in /openapi.json: generation, attestations, and routes that are passed through.

import { errorResponses } from './errors.ts';
import { EXAMPLE_MODEL, requestExamples } from './examples.ts';
import { RATES, X_TEE, X_TEE_SESSION } from './headers.ts';
import { EVENTS_TYPE, type Examples, JSON_TYPE, parameter, response, schemaRef } from './parts.ts';

const ENDPOINT = parameter(
  'endpoint',
  'path',
  'The rest of the endpoint’s path. It may have several segments',
  { type: 'string' },
  'rerank',
);

/** Some tools read a stream as one text, others event by event. */
const streamOf = (description: string) => ({
  description,
  anyOf: [
    { type: 'string', description: 'The whole stream' },
    {
      type: 'object',
      description: 'One event of it',
      properties: {
        event: { type: 'string', description: 'The event’s name, where its endpoint’s events have names' },
        data: { type: 'string', description: 'The payload: JSON, or `[DONE]`' },
      },
    },
  ],
});
const STREAM = streamOf(
  'With `stream: true`: events of `chat.completion.chunk` or `text_completion` and `[DONE]`. With tee, the chunk that carries the last `finish_reason` has the `attestation`; an error takes its place as `data: {"error": …}`.',
);
const NAMED_STREAM = streamOf(
  'With `stream: true`: named events. With tee, the event that ends the answer (the `response` of `response.completed`, or `message_delta`) has the `attestation`; an event `error` takes its place.',
);

const ANSWERED = 'The backend’s answer; with tee, its attestation too';

function generate(examples: Examples, operationId: string, summary: string, request: string, answer: string) {
  const schemas = { [JSON_TYPE]: schemaRef(answer), [EVENTS_TYPE]: STREAM };
  return {
    post: {
      operationId,
      summary,
      tags: ['Generation'],
      parameters: [X_TEE, X_TEE_SESSION],
      requestBody: {
        required: true,
        description: 'OpenAI’s request, and `tee`',
        content: { [JSON_TYPE]: { schema: schemaRef(request), examples: requestExamples(operationId) } },
      },
      responses: {
        200: response(examples, operationId, ANSWERED, schemas, ['x-attestation-id', 'x-tee-batch', ...RATES]),
        ...errorResponses('generation'),
      },
    },
  };
}

/** A route of the backend whose response can be attested. */
function provable(
  examples: Examples,
  operationId: string,
  summary: string,
  stream: Readonly<Record<string, object>> = {},
  parameters: object[] = [],
) {
  const attestation = { ...schemaRef('Attestation'), description: 'Where `tee` was asked for: the last member' };
  const answer = { type: 'object', properties: { attestation }, description: 'As the backend has it' };
  const request = {
    type: 'object',
    properties: { tee: schemaRef('Tee') },
    description: 'As the backend has it, and `tee`',
  };
  return {
    post: {
      operationId,
      summary,
      tags: ['Generation'],
      parameters: [...parameters, X_TEE, X_TEE_SESSION],
      requestBody: {
        required: true,
        description: 'The backend’s own request, and `tee`',
        content: { [JSON_TYPE]: { schema: request, examples: requestExamples(operationId) } },
      },
      responses: {
        200: response(examples, operationId, ANSWERED, { [JSON_TYPE]: answer, ...stream }, [
          'x-attestation-id',
          'x-tee-batch',
          'x-tee',
          ...RATES,
        ]),
        ...errorResponses('generation'),
      },
    },
  };
}

function attestationById(examples: Examples, operationId: string, id: string, parameters: object[] = []) {
  const description = 'The answer’s own `id`, or `x-attestation-id` of its response';
  return {
    get: {
      operationId,
      summary: 'An attestation again, to the key that asked',
      tags: ['Attestation'],
      parameters: [...parameters, parameter('id', 'path', description, { type: 'string' }, id)],
      responses: {
        200: response(examples, operationId, 'The attestation', { [JSON_TYPE]: schemaRef('Attestation') }),
        ...errorResponses('retrieval'),
      },
    },
  };
}

function attestationSession(examples: Examples) {
  const operationId = 'getAttestationSession';
  const description =
    'The client’s own, 64 hex digits, which the statement will hold: a new session under the same key. This needs an API key, where the gateway has any';
  const schema = { type: 'string', pattern: '^[0-9a-f]{64}$' };
  return {
    get: {
      operationId,
      summary: 'The session with the processor that attestations are signed in',
      description:
        'The current one is for everybody: a client verifies it before it seals a request, with its API key inside.',
      tags: ['Attestation'],
      security: [{}],
      parameters: [parameter('challenge', 'query', description, schema, 'c0'.repeat(32))],
      responses: {
        200: response(examples, operationId, 'The session', { [JSON_TYPE]: schemaRef('Session') }),
        ...errorResponses('session'),
      },
    },
  };
}

function backend(examples: Examples, operationId: string, summary: string, parameters: object[] = []) {
  return {
    get: {
      operationId,
      summary,
      tags: ['Backend'],
      ...(parameters.length === 0 ? {} : { parameters }),
      responses: {
        200: response(examples, operationId, 'As the backend has it', { [JSON_TYPE]: {} }, RATES),
        ...errorResponses('backend'),
      },
    },
  };
}

export function modelPaths(examples: Examples) {
  const named = { [EVENTS_TYPE]: NAMED_STREAM };
  const model = parameter('id', 'path', 'The model’s name', { type: 'string' }, EXAMPLE_MODEL);
  return {
    '/v1/chat/completions': generate(
      examples,
      'createChatCompletion',
      'A chat completion, attested where `tee` is true',
      'ChatCompletionRequest',
      'ChatCompletion',
    ),
    '/v1/completions': generate(
      examples,
      'createCompletion',
      'A completion, attested where `tee` is true',
      'CompletionRequest',
      'Completion',
    ),
    '/v1/chat/completions/{id}/attestation': attestationById(
      examples,
      'getChatCompletionAttestation',
      'chatcmpl-5f1c2a',
    ),
    '/v1/completions/{id}/attestation': attestationById(examples, 'getCompletionAttestation', 'cmpl-9d04e7'),
    '/v1/attestation/session': attestationSession(examples),
    '/v1/models': backend(examples, 'listModels', 'The backend’s models'),
    '/v1/models/{id}': backend(examples, 'getModel', 'One of the backend’s models', [model]),
    '/v1/responses': provable(examples, 'createResponse', 'A response, where the backend has them', named),
    '/v1/messages': provable(examples, 'createMessage', 'A message, where the backend has them', named),
    '/v1/embeddings': provable(examples, 'createEmbedding', 'Embeddings, where the backend has them'),
    '/v1/{endpoint}': provable(
      examples,
      'createOther',
      'Any other endpoint of the backend whose request and answer are JSON objects',
      {},
      [ENDPOINT],
    ),
    '/v1/{endpoint}/{id}/attestation': attestationById(examples, 'getAttestation', 'rerank-31ab', [ENDPOINT]),
  };
}
