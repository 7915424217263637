// The OpenAPI document of the whole service, made once from the schemas that validate.
import { VERSION } from '../version.ts';
import { paths } from './paths.ts';
import { componentSchemas } from './schemas.ts';

let kept: string | null = null;

/** As JSON text, made once in a process: it takes 40 ms. */
export function openapiDocument(): string {
  kept ??= JSON.stringify(document());
  return kept;
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
        'Every other path under `/v1` that the backend has is passed through as it is, with GET, POST and DELETE; `tee` is refused there. Every answer has `x-request-id`.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    security: [{}, { key: [] }],
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
      },
    },
  };
}
