// The routes of sealed requests in /openapi.json.
import { KEYS_MEDIA_TYPE, REQUEST_MEDIA_TYPE, RESPONSE_MEDIA_TYPE } from '../../../sealed/index.ts';
import { errorResponses } from './errors.ts';
import { fixed, OPEN } from './parts.ts';

const bytes = (description: string) => ({ type: 'string', format: 'binary', description });
const EXAMPLE = { summary: 'Bytes', value: '…' };

export function sealingPaths() {
  return {
    '/ohttp': {
      post: {
        operationId: 'sealedRequest',
        summary: 'A request that is sealed to a key of the current session, and its response, sealed too',
        tags: ['Generation'],
        ...OPEN,
        description:
          'Chunked Oblivious HTTP (RFC 9458, draft-ietf-ohai-chunked-ohttp). Inside is a request for a path under `/v1` or the verify endpoint, with its own API key and `date`. What goes wrong once it is opened is said inside.',
        requestBody: {
          required: true,
          description: 'The sealed request',
          content: {
            [REQUEST_MEDIA_TYPE]: { schema: bytes('Chunks of binary HTTP, sealed'), examples: { sealed: EXAMPLE } },
          },
        },
        responses: {
          200: fixed(
            'The sealed response, whatever its own status',
            RESPONSE_MEDIA_TYPE,
            bytes('Chunks of binary HTTP, sealed'),
            EXAMPLE.summary,
            EXAMPLE.value,
          ),
          ...errorResponses('sealed'),
        },
      },
    },
    '/.well-known/ohttp-keys': {
      get: {
        operationId: 'getSealingKeys',
        summary: 'The keys to seal to, as the current session names them: trust them only there',
        tags: ['Attestation'],
        ...OPEN,
        responses: {
          200: fixed(
            'Key configurations (RFC 9458 §3.2)',
            KEYS_MEDIA_TYPE,
            bytes('Key configurations, each behind its length'),
            EXAMPLE.summary,
            EXAMPLE.value,
          ),
          ...errorResponses('keys'),
        },
      },
    },
  };
}
