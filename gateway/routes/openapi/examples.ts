// The examples in /openapi.json: requests, and the responses of a gateway with a simulated GPU. The responses are in examples.json, which
// `npm run make examples` writes; a test repeats the requests and compares.

import { readFileSync } from 'node:fs';
import { VERIFY_PATH } from '../../base/target.ts';

/** A gateway's response. */
export interface ExampleResponse {
  readonly status: number;
  /** The media type, without parameters. */
  readonly type: string;
  /** The parsed JSON; the text of any other type. */
  readonly body: unknown;
}

/** Responses by operation, then by the name of the example. */
export type ExampleResponses = Readonly<Record<string, Readonly<Record<string, ExampleResponse>>>>;

export interface ExampleRequest {
  readonly summary: string;
  readonly method: 'GET' | 'POST';
  /** The path, or a function that makes it from earlier responses. */
  readonly path: string | ((responses: ExampleResponses) => string);
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: object | ((responses: ExampleResponses) => object);
  /** The gateway: `keys`: with API keys; `cpu`: in a confidential VM; `down`: without its backend. By default one that works. */
  readonly stage?: 'keys' | 'cpu' | 'down';
}

export const EXAMPLE_MODEL = 'qwen3-8b';
/** The key of the gateway with API keys. */
export const EXAMPLE_KEY = 'csk-example';

// The four forms of a generation.

interface Form {
  readonly summary: string;
  readonly more: object;
}

const FORMS = {
  plain: { summary: 'As OpenAI’s API has it', more: {} },
  stream: { summary: 'As a stream', more: { stream: true } },
  tee: { summary: 'With an attestation', more: { tee: true } },
  tee_stream: { summary: 'As a stream with an attestation', more: { stream: true, tee: true } },
} satisfies Record<string, Form>;

/** The attestation may share its signature, and its challenge proves that it is of this request. The response has the form of `tee`. */
const BATCH: Form = {
  summary: 'With an attestation that may share its GPU signature, and a challenge of the client’s own',
  more: { tee: { batch: true, challenge: 'b7c1d0a4-0a5e-4f3f-9c55' } },
};

const posts = (path: string, body: object, forms: Readonly<Record<string, Form>> = FORMS) =>
  Object.fromEntries(
    Object.entries(forms).map(([name, { summary, more }]): [string, ExampleRequest] => [
      name,
      { summary, method: 'POST', path, body: { ...body, ...more } },
    ]),
  );

const WHOLE = { plain: FORMS.plain, tee: FORMS.tee };
const MESSAGES = [{ role: 'user', content: 'Which ocean is the largest?' }];

interface Attested {
  readonly id: string;
  readonly attestation: { readonly nonce: string };
}

const attestedResponse = (responses: ExampleResponses, operation = 'createChatCompletion') =>
  responses[operation]?.tee?.body as Attested;

const byId = (path: string, operation: string): Record<string, ExampleRequest> => ({
  attestation: {
    summary: 'Of a simulated GPU',
    method: 'GET',
    path: (responses) => `${path}/${attestedResponse(responses, operation).id}/attestation`,
  },
});

const CHANGED = { nonce: '0'.repeat(64) };

const VERIFICATIONS: Record<string, ExampleRequest> = {
  valid: {
    summary: 'It is right',
    method: 'POST',
    path: VERIFY_PATH,
    body: (responses) => attestedResponse(responses).attestation,
  },
  report: {
    summary: 'With `report=1`: every check',
    method: 'POST',
    path: `${VERIFY_PATH}?report=1`,
    body: (responses) => attestedResponse(responses),
  },
  ear: {
    summary: 'With `report=ear`: the result as EAR',
    method: 'POST',
    path: `${VERIFY_PATH}?report=ear`,
    body: (responses) => attestedResponse(responses).attestation,
  },
  not_an_attestation: {
    summary: 'The body is no attestation, and carries none',
    method: 'POST',
    path: VERIFY_PATH,
    body: { id: 'chatcmpl-1' },
  },
  raw_hash_mismatch: {
    summary: 'Another nonce than that of `raw`',
    method: 'POST',
    path: VERIFY_PATH,
    body: (responses) => ({ ...attestedResponse(responses).attestation, ...CHANGED }),
  },
  policy_refused: {
    summary: 'With `min_level=gpu`: the GPU is simulated',
    method: 'POST',
    path: `${VERIFY_PATH}?min_level=gpu`,
    body: (responses) => attestedResponse(responses).attestation,
  },
};

/** Requests by operation. Some use the responses to earlier ones. */
export const EXAMPLE_REQUESTS: Readonly<Record<string, Readonly<Record<string, ExampleRequest>>>> = {
  createChatCompletion: posts(
    '/v1/chat/completions',
    { model: EXAMPLE_MODEL, messages: MESSAGES },
    { ...FORMS, tee_batch: BATCH },
  ),
  createCompletion: posts('/v1/completions', {
    model: EXAMPLE_MODEL,
    prompt: 'The largest ocean is',
    max_tokens: 8,
  }),
  getChatCompletionAttestation: byId('/v1/chat/completions', 'createChatCompletion'),
  getCompletionAttestation: byId('/v1/completions', 'createCompletion'),
  getAttestationSession: {
    session: {
      summary: 'Of a simulated processor (SEV-SNP) and a simulated GPU',
      method: 'GET',
      path: '/v1/attestation/session',
      stage: 'cpu',
    },
  },
  listModels: { models: { summary: 'One model', method: 'GET', path: '/v1/models' } },
  getModel: { model: { summary: 'A model', method: 'GET', path: `/v1/models/${EXAMPLE_MODEL}` } },
  createResponse: posts('/v1/responses', { model: EXAMPLE_MODEL, input: 'Which ocean is the largest?' }),
  createMessage: posts('/v1/messages', { model: EXAMPLE_MODEL, max_tokens: 64, messages: MESSAGES }),
  createEmbedding: posts('/v1/embeddings', { model: EXAMPLE_MODEL, input: 'The Pacific.' }, WHOLE),
  createOther: posts(
    '/v1/rerank',
    { model: EXAMPLE_MODEL, query: 'Which ocean is the largest?', documents: ['The Pacific.', 'The Arctic.'] },
    WHOLE,
  ),
  getAttestation: byId('/v1/rerank', 'createOther'),
  verify: VERIFICATIONS,
  health: {
    ok: { summary: 'Everything works', method: 'GET', path: '/health' },
    down: { summary: 'The backend cannot be reached', method: 'GET', path: '/health', stage: 'down' },
  },
  usage: {
    usage: {
      summary: 'One attested answer',
      method: 'GET',
      path: '/usage',
      headers: { authorization: `Bearer ${EXAMPLE_KEY}` },
      stage: 'keys',
    },
  },
};

/** The contents of examples.json. */
export interface ExampleFile {
  /** PEM: the test roots of the simulated GPU and processor, under which the examples verify. */
  readonly simulated_root: string;
  readonly answers: ExampleResponses;
}

export const EXAMPLE_FILE = new URL('examples.json', import.meta.url);

export const readExamples = (): ExampleFile => JSON.parse(readFileSync(EXAMPLE_FILE, 'utf8')) as ExampleFile;

// The examples as members of the OpenAPI document.

type Ref = { readonly $ref: string };

const nameOf = (operation: string, name: string) => `${operation}.${name}`;
export const exampleRef = (operation: string, name: string): Ref => ({
  $ref: `#/components/examples/${nameOf(operation, name)}`,
});

/** For `components.examples`: each response once, because gzip compresses similar neighbours well. */
export function componentExamples(responses: ExampleResponses): Record<string, object> {
  return Object.fromEntries(
    Object.entries(responses).flatMap(([operation, named]) =>
      Object.entries(named).map(([name, { body }]) => [
        nameOf(operation, name),
        { summary: EXAMPLE_REQUESTS[operation]?.[name]?.summary ?? '', value: body },
      ]),
    ),
  );
}

/** For `content` of a response: the operation's examples with this status and media type. */
export function responseExamples(responses: ExampleResponses, operation: string, status: number, type: string) {
  const named = Object.entries(responses[operation] ?? {}).filter(
    ([, one]) => one.status === status && one.type === type,
  );
  return Object.fromEntries(named.map(([name]) => [name, exampleRef(operation, name)]));
}

/** For `content` of a request: the bodies of `EXAMPLE_REQUESTS` that are no functions. */
export function requestExamples(operation: string): Record<string, object> {
  const named = Object.entries(EXAMPLE_REQUESTS[operation] ?? {});
  return Object.fromEntries(
    named.flatMap(([name, { summary, body }]) =>
      body === undefined || typeof body === 'function' ? [] : [[name, { summary, value: body }]],
    ),
  );
}
