// The gateway's surface as an OpenAPI document, for schemathesis: what is asked, what may be answered, and that every error has one shape.
const error = {
  type: 'object',
  additionalProperties: false,
  required: ['error'],
  properties: {
    error: {
      type: 'object',
      additionalProperties: false,
      required: ['message', 'type', 'param', 'code'],
      properties: {
        message: { type: 'string' },
        type: { type: 'string' },
        param: { type: ['string', 'null'] },
        code: { type: ['string', 'null'] },
      },
    },
  },
};
const json = (schema: object, description: string) => ({ description, content: { 'application/json': { schema } } });
const refusal = json({ $ref: '#/components/schemas/Error' }, "A refusal, in OpenAI's shape");
/** 5xx are not among them: with a backend and a sidecar that work there are none. */
const refusals = Object.fromEntries(
  [400, 401, 403, 404, 405, 408, 413, 415, 417, 425, 429, 431].map((status) => [String(status), refusal]),
);
const attestation = {
  type: 'object',
  required: ['raw', 'nonce', 'token', 'evidence'],
  properties: {
    raw: { type: 'string' },
    nonce: { type: 'string', pattern: '^[0-9a-f]{64}$' },
    token: { type: 'string' },
    evidence: { type: 'array', items: { type: 'object', required: ['arch', 'report', 'certificate_chain'] } },
  },
};
const common = {
  model: { type: 'string', maxLength: 512 },
  stream: { type: ['boolean', 'null'] },
  tee: { type: 'boolean' },
  n: { type: ['integer', 'null'], minimum: 1, maximum: 128 },
};
const chat = {
  type: 'object',
  required: ['messages'],
  properties: {
    ...common,
    messages: {
      type: 'array',
      minItems: 1,
      items: {
        type: 'object',
        required: ['role'],
        properties: { role: { type: 'string', minLength: 1, maxLength: 64 } },
      },
    },
  },
};
const completion = {
  type: 'object',
  properties: {
    ...common,
    prompt: { oneOf: [{ type: 'string' }, { type: 'array', items: { type: 'string' } }, { type: 'null' }] },
  },
};
const tee = { name: 'x-tee', in: 'header', schema: { type: 'string', enum: ['0', '1', 'true', 'false'] } };
const answer = {
  description: 'The answer, whole or as a stream, with its attestation where it was asked for',
  content: {
    'application/json': { schema: { type: 'object', properties: { attestation } } },
    'text/event-stream': { schema: { type: 'object', properties: { data: { type: 'string' } } } },
  },
};
const generation = (operationId: string, schema: object) => ({
  post: {
    operationId,
    parameters: [tee],
    requestBody: { required: true, content: { 'application/json': { schema } } },
    responses: { '200': answer, ...refusals },
  },
});
const byId = (operationId: string) => ({
  get: {
    operationId,
    parameters: [{ name: 'id', in: 'path', required: true, schema: { type: 'string', minLength: 1 } }],
    responses: { '200': json(attestation, 'The attestation'), ...refusals },
  },
});

const verification = (operationId: string) => ({
  operationId,
  parameters: [{ name: 'report', in: 'query', schema: { type: 'string', enum: ['0', '1'] } }],
  requestBody: { required: true, content: { 'application/json': { schema: attestation } } },
  responses: {
    '200': json(
      { oneOf: [{ const: true }, { type: 'object', required: ['valid', 'level', 'checks'] }] },
      'The verdict',
    ),
    ...refusals,
    '422': refusal,
  },
});

export const openapi = {
  openapi: '3.1.0',
  info: { title: 'Countersign', version: '1' },
  paths: {
    '/v1/chat/completions': generation('chat', chat),
    '/v1/completions': generation('completion', completion),
    '/v1/chat/completions/{id}/attestation': byId('chatAttestation'),
    '/v1/completions/{id}/attestation': byId('completionAttestation'),
    '/v1/models': {
      get: { operationId: 'models', responses: { '200': json({ type: 'object' }, 'The models'), ...refusals } },
    },
    '/v1/embeddings': {
      post: {
        operationId: 'embeddings',
        requestBody: { required: true, content: { 'application/json': { schema: { type: 'object' } } } },
        responses: { '200': json({ type: 'object' }, "The backend's answer"), ...refusals },
      },
    },
    '/~sev_gpu@1.0/verify': { get: verification('verifyByGet'), post: verification('verify') },
    '/health': {
      get: {
        operationId: 'health',
        responses: {
          '200': json({ type: 'object', required: ['status', 'backend', 'sidecar', 'version'] }, 'The state'),
          ...refusals,
        },
      },
    },
  },
  components: { schemas: { Error: error } },
};
