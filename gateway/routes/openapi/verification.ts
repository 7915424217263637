// The verify endpoint in /openapi.json.
import { MAX_LEAVES } from '../../../proto/attestation/batch.ts';
import { LEVELS } from '../../../verify/index.ts';
import { errorResponses } from './errors.ts';
import { exampleRef } from './examples.ts';
import { type Examples, JSON_TYPE, OPEN, parameter, response, schemaRef } from './parts.ts';

/** The values of the verify endpoint's `?report=`. */
export const REPORTS = ['0', '1', 'ear'] as const;

const EAR_TYPE = 'application/eat-ucs+json';

export function verificationPath(examples: Examples) {
  const level = { type: 'string', enum: LEVELS };
  const operation = {
    tags: ['Attestation'],
    ...OPEN,
    summary: 'Is this attestation right?',
    description: 'GET does the same, body included.',
    parameters: [
      parameter(
        'report',
        'query',
        '1: every check instead of `true`; ear: the result as EAR, unsigned; 0: as without it',
        { type: 'string', enum: REPORTS },
        '1',
      ),
      parameter('min_level', 'query', 'The least level that counts as right; `none` by default', level, 'gpu'),
      parameter(
        'max_batch',
        'query',
        'How many answers may share the signature; 1: none but this one. As many as there are by default',
        { type: 'integer', minimum: 1, maximum: MAX_LEAVES },
        1,
      ),
      parameter(
        'endpoint',
        'query',
        'The path that the attestation must be of; any by default',
        { type: 'string' },
        '/v1/responses',
      ),
      parameter(
        'event',
        'query',
        'The body is one event of a stream by itself: the last chunk of a completion, or the event that ends a response or a message. Without this, the body is compared as a whole answer',
        { type: 'string', enum: ['1'] },
        '1',
      ),
    ],
    requestBody: {
      required: true,
      description: 'What is to be verified',
      content: {
        [JSON_TYPE]: {
          schema: {
            description: 'An attestation, its JSON text as a string, or an answer that carries one',
            anyOf: [schemaRef('Attestation'), { type: 'string' }, { type: 'object' }],
          },
          examples: {
            attestation: exampleRef('getChatCompletionAttestation', 'attestation'),
            answer: exampleRef('createChatCompletion', 'tee'),
          },
        },
      },
    },
    responses: {
      200: response(
        examples,
        'verify',
        '`true`; with `report=1` the list of checks, with `report=ear` the result, whether they passed or not',
        {
          [JSON_TYPE]: { anyOf: [{ const: true }, schemaRef('VerificationReport')] },
          [EAR_TYPE]: schemaRef('AttestationResult'),
        },
        ['x-ratelimit-limit-requests', 'x-ratelimit-remaining-requests', 'x-ratelimit-reset-requests'],
      ),
      ...errorResponses('verification'),
      422: response(
        examples,
        'verify',
        'It is not: `code` is that of the first check that failed (docs/errors.md)',
        { [JSON_TYPE]: schemaRef('Error') },
        [],
        422,
      ),
    },
  };
  // GET is for clients that can send nothing else.
  return { get: { operationId: 'verifyByGet', ...operation }, post: { operationId: 'verify', ...operation } };
}
