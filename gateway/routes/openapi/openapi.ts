// The OpenAPI document of the whole service. Its schemas are those that validate requests.

import { VERSION } from '../../base/config.ts';
import { VERIFY_PATH } from '../../base/target.ts';
import { type SharedDocument, sharedDocument } from '../../http/document.ts';
import { errorComponents, errorExamples } from './errors.ts';
import { componentExamples, readExamples, responseExamples } from './examples.ts';
import { HEADERS } from './headers.ts';
import { modelPaths } from './models.ts';
import { operationPaths } from './operation.ts';
import type { Examples } from './parts.ts';
import { componentSchemas } from './schemas.ts';
import { sealingPaths } from './sealing.ts';
import { verificationPath } from './verification.ts';

let cached: SharedDocument | null = null;

/** JSON text, built once in a process: it takes 80 ms. */
export function openapiDocument(): SharedDocument {
  cached ??= sharedDocument('application/json', JSON.stringify(buildDocument()));
  return cached;
}

export type OpenapiDocument = ReturnType<typeof buildDocument>;

export function buildDocument() {
  const { answers, simulated_root } = readExamples();
  const examples: Examples = (operation, status, type) => responseExamples(answers, operation, status, type);
  return {
    openapi: '3.1.1',
    info: {
      title: 'Countersign',
      version: VERSION,
      summary:
        'An OpenAI-compatible gateway whose every answer can carry a GPU’s signature over what was asked and answered.',
      description:
        'Every other path under `/v1` that the backend has is passed through, with GET, POST and DELETE; with `tee` an answer of any POST is attested where request and answer are JSON objects. An error of the backend’s own keeps its status and its words, in the shape of `Error`. The attestations in the examples are real ones of a simulated GPU: they verify under its test root (`x-simulated-root`), and their level is `none`.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    externalDocs: { url: '/docs', description: 'This document as a page' },
    servers: [{ url: '/', description: 'This gateway' }],
    security: [{}, { key: [] }, { header: [] }],
    tags: TAGS,
    paths: {
      ...modelPaths(examples),
      [VERIFY_PATH]: verificationPath(examples),
      ...sealingPaths(),
      ...operationPaths(examples),
    },
    components: {
      schemas: componentSchemas(),
      responses: errorComponents(examples('verify', 400, 'application/json')),
      headers: HEADERS,
      // Attestations with the same certificates are neighbours, which gzip compresses almost to the size of one.
      examples: { ...componentExamples(answers), ...errorExamples() },
      securitySchemes: SECURITY_SCHEMES,
    },
    /** PEM: `--allow-simulated` and the option `simulatedRoot` of the verifiers take it. */
    'x-simulated-root': simulated_root,
  };
}

const TAGS = [
  { name: 'Generation', description: 'OpenAI’s own routes; `tee: true` asks for an attestation' },
  { name: 'Attestation', description: 'Fetched again, and verified' },
  { name: 'Backend', description: 'Passed through' },
  { name: 'Operation', description: 'For the operator' },
];

const SECURITY_SCHEMES = {
  key: { type: 'http', scheme: 'bearer', description: 'An API key, where the gateway has any' },
  header: {
    type: 'apiKey',
    in: 'header',
    name: 'x-api-key',
    description: 'The same, as Anthropic’s clients send it',
  },
};
