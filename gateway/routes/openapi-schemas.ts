// The schemas in /openapi.json. The schema that validates a request also describes it; responses of the backend are loose.
import * as z from 'zod';
import { attestationSchema, evidenceSchema } from '../../proto/attestation-schema.ts';
import { chatRequestSchema, completionRequestSchema, errorBodySchema, teeSchema } from '../../proto/openai.ts';
import { EAR_PROFILE } from '../../verify/forms/ear.ts';
import { CHECKS, CPU_CHECKS, LEVELS } from '../../verify/index.ts';
import { CANARY_STATES } from '../backend/canary.ts';
import { SIDECAR_STATES } from '../telemetry/metrics.ts';

/** Of GET /health. */
export const healthSchema = z.strictObject({
  status: z
    .enum(['ok', 'degraded', 'down', 'draining'])
    .describe('degraded: without tee, without some of several backends, or with a canary that is wrong'),
  backend: z.strictObject({
    status: z.enum(['ok', 'degraded', 'down']),
    code: z.string().optional(),
    backends: z
      .array(z.strictObject({ name: z.string(), state: z.enum(['up', 'down']) }))
      .optional()
      .describe('with `BACKENDS_FILE`: each by its name, or its place in the file from 0'),
    file_error: z.string().optional().describe('why `BACKENDS_FILE` as it is now is not used, but what it held before'),
    canary: z
      .strictObject({
        state: z.enum(CANARY_STATES),
        reason: z.string().optional(),
        backend: z.string().optional(),
        at: z.string().optional(),
      })
      .describe('whether an answer that any model knows makes sense and repeats; wrong: status is degraded'),
  }),
  sidecar: z.strictObject({
    status: z.enum(SIDECAR_STATES),
    attester: z.string().nullable(),
    devices: z.array(z.strictObject({ arch: z.string(), model: z.string() })),
    simulated: z.boolean().nullable(),
    cpu: z.string().nullable().describe('the processor that signs as well'),
    trouble: z.strictObject({ code: z.string(), message: z.string() }).nullable(),
    refused: z
      .strictObject({ code: z.string(), message: z.string() })
      .nullable()
      .describe('why it may not be used, where status is refused'),
  }),
  store: z
    .strictObject({ status: z.enum(['connected', 'away']) })
    .nullable()
    .describe('the Valkey or Redis that gateways share; null: there is none'),
  audit: z
    .strictObject({ status: z.enum(['ok', 'failing', 'unknown']), code: z.string().optional(), lost: z.int() })
    .nullable()
    .describe('the audit log; null: there is none'),
  version: z.string(),
});

const count = z.int().min(0);
const amounts = {
  requests: count,
  attested: count,
  input_tokens: count,
  output_tokens: count,
  gpu_seconds: z.number().min(0).describe('the GPU’s time for signatures'),
};

/** Of GET /usage. */
const usageSchema = z.strictObject({
  key: z.string(),
  tokens_per_day: count.nullable().describe('the key’s budget; null: none'),
  tokens_today: count,
  days: count.describe('that are kept, today (UTC) included'),
  total: z.strictObject(amounts),
  records: z.array(z.strictObject({ day: z.iso.date(), model: z.string(), ...amounts })),
});

const attestation = attestationSchema.describe('docs/attestation.md says what each member is, byte by byte');

const completion = (object: string) =>
  z.looseObject({
    id: z.string(),
    object: z.literal(object),
    choices: z.array(z.looseObject({ index: z.int(), finish_reason: z.string().nullish() })),
    attestation: attestation.optional().describe('Where `tee` was true'),
  });

const sessionSchema = z
  .looseObject({ type: z.string(), statement: z.string(), report: z.string(), gpu: z.array(evidenceSchema) })
  .describe('docs/attestation.md §6 says what each member is');

const verificationReport = z.looseObject({
  valid: z.boolean(),
  incomplete: z.boolean().describe('Not valid, and nothing was found wrong: what a check needs was not to be had'),
  level: z.enum(LEVELS).describe('What vouches for it: `none` for a simulated GPU, however right the rest is'),
  checks: z.array(
    z.looseObject({
      name: z.enum([...CHECKS, ...CPU_CHECKS]),
      status: z.enum(['pass', 'fail', 'skip']),
      code: z.string().optional().describe('Of a check that failed'),
      detail: z.string(),
      device: z.int().optional(),
    }),
  ),
  proven: z.array(z.string()),
  not_proven: z.array(z.string()),
});

const tier = z.enum(['none', 'affirming', 'warning', 'contraindicated']);

const ear = z
  .looseObject({
    eat_profile: z.literal(EAR_PROFILE),
    iat: z.int(),
    ear_verifier_id: z.strictObject({ developer: z.string(), build: z.string() }),
    ear_status: tier,
    ear_all_submods_bound: z.enum(['true', 'false', 'unknown']),
    submods: z.record(
      z.string(),
      z.looseObject({ ear_status: tier, ear_trustworthiness_vector: z.record(z.string(), z.int().min(-128).max(127)) }),
    ),
  })
  .describe('An attestation result, unsigned (draft-ietf-rats-ear-04); the values are those of draft-ietf-rats-ar4si');

/** The schemas by their names in `#/components/schemas/`. */
const NAMED = {
  ChatCompletionRequest: chatRequestSchema.describe('Any OpenAI body: members that are not listed go to the backend'),
  CompletionRequest: completionRequestSchema.describe('Any OpenAI body: members that are not listed go to the backend'),
  ChatCompletion: completion('chat.completion').describe('The backend’s answer, byte for byte, and the attestation'),
  Completion: completion('text_completion').describe('The backend’s answer, byte for byte, and the attestation'),
  Tee: teeSchema,
  Attestation: attestation,
  Evidence: evidenceSchema,
  Session: sessionSchema,
  VerificationReport: verificationReport,
  AttestationResult: ear,
  Health: healthSchema,
  Usage: usageSchema,
  Error: errorBodySchema,
};

export type SchemaName = keyof typeof NAMED;

export const schemaRef = (name: SchemaName) => ({ $ref: `#/components/schemas/${name}` });

/** JSON Schema 2020-12, which OpenAPI 3.1 uses unchanged. */
export function componentSchemas(): Record<string, unknown> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(NAMED)) registry.add(schema, { id });
  const { schemas } = z.toJSONSchema(registry, { io: 'input', uri: (id) => `#/components/schemas/${id}` });
  return Object.fromEntries(
    Object.entries(schemas).map(([name, { $schema: _, $id: __, ...schema }]) => [name, schema]),
  );
}
