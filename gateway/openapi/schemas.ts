// The shapes in /openapi.json: what validates a request is what describes it. Answers of the backend are loose: they are its own.
import * as z from 'zod';
import { attestationSchema, evidenceSchema } from '../../proto/attestation.ts';
import { chatRequestSchema, completionRequestSchema, errorBodySchema } from '../../proto/openai.ts';
import { CHECKS } from '../../verify/index.ts';
import { healthSchema } from '../routes/health.ts';

const attestation = attestationSchema.describe('docs/attestation.md says what each member is, byte by byte');

const answer = (object: string) =>
  z.looseObject({
    id: z.string(),
    object: z.literal(object),
    choices: z.array(z.looseObject({ index: z.int(), finish_reason: z.string().nullish() })),
    attestation: attestation.optional().describe('Where `tee` was true'),
  });

const verificationReport = z.looseObject({
  valid: z.boolean(),
  level: z.string().describe('What vouches for it: `none` for a simulated GPU, however right the rest is'),
  checks: z.array(
    z.looseObject({
      name: z.enum(CHECKS),
      status: z.enum(['pass', 'fail', 'skip']),
      code: z.string().optional().describe('Of a check that failed'),
      detail: z.string(),
      device: z.int().optional(),
    }),
  ),
  proven: z.array(z.string()),
  not_proven: z.array(z.string()),
});

/** Their names in `#/components/schemas/`. */
const NAMED = {
  ChatCompletionRequest: chatRequestSchema.describe('Any OpenAI body: members that are not listed go to the backend'),
  CompletionRequest: completionRequestSchema.describe('Any OpenAI body: members that are not listed go to the backend'),
  ChatCompletion: answer('chat.completion').describe('The backend’s answer, byte for byte, and the attestation'),
  Completion: answer('text_completion').describe('The backend’s answer, byte for byte, and the attestation'),
  Attestation: attestation,
  Evidence: evidenceSchema,
  VerificationReport: verificationReport,
  Health: healthSchema,
  Error: errorBodySchema,
};

export type SchemaName = keyof typeof NAMED;

export const schemaRef = (name: SchemaName) => ({ $ref: `#/components/schemas/${name}` });

/** JSON Schema 2020-12, which OpenAPI 3.1 takes as it is. */
export function componentSchemas(): Record<string, unknown> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(NAMED)) registry.add(schema, { id });
  const { schemas } = z.toJSONSchema(registry, { io: 'input', uri: (id) => `#/components/schemas/${id}` });
  return Object.fromEntries(
    Object.entries(schemas).map(([name, { $schema: _, $id: __, ...schema }]) => [name, schema]),
  );
}
