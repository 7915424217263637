// The schemas in /openapi.json. The schema that validates a request also describes it; responses of the backend are loose.
import * as z from 'zod';
import { attestationSchema, evidenceSchema, sessionSchema } from '../../../proto/attestation/attestation-schema.ts';
import { chatRequestSchema, completionRequestSchema, errorBodySchema, teeSchema } from '../../../proto/openai.ts';
import { CHECKS, CPU_CHECKS, LEVELS } from '../../../verify/index.ts';
import { APPRAISAL_CLAIMS, EAR_PROFILE } from '../../../verify/service.ts';
import { SIDECAR_STATES } from '../../attestation/interfaces.ts';
import { CANARY_STATES } from '../../backend/backend.ts';

const fault = z.strictObject({
  code: z.string().describe('The reason, for programs'),
  message: z.string().describe('The reason, for people'),
});

/** The response of GET /health. */
export const healthSchema = z.strictObject({
  status: z
    .enum(['ok', 'degraded', 'down', 'draining'])
    .describe(
      'The whole service. degraded: without tee, without some of several backends, or with a canary that is wrong; down: no backend; draining: it was told to stop',
    ),
  backend: z
    .strictObject({
      status: z.enum(['ok', 'degraded', 'down']).describe('Whether it answers; degraded: some of several do not'),
      code: z.string().optional().describe('Why it is down, as in an error’s `code`'),
      backends: z
        .array(
          z.strictObject({
            name: z.string().describe('Its name in `BACKENDS_FILE`, or its place there from 0'),
            state: z.enum(['up', 'down']).describe('Whether requests are sent to it'),
          }),
        )
        .optional()
        .describe('With `BACKENDS_FILE`: each of the backends'),
      file_error: z
        .string()
        .optional()
        .describe('Why `BACKENDS_FILE` as it is now is not used, but what it held before'),
      canary: z
        .strictObject({
          state: z
            .enum(CANARY_STATES)
            .describe(
              'off: not asked; pending: not answered yet; unavailable: nothing was learnt; wrong: status is degraded',
            ),
          reason: z.string().optional().describe('Of wrong and unavailable: what was found, for programs'),
          backend: z.string().optional().describe('Of several backends the one that is wrong'),
          at: z.string().optional().describe('When that was found, RFC 3339'),
        })
        .describe('Whether the backend’s answer to what any language model knows makes sense and repeats'),
    })
    .describe('The model server or servers behind the gateway, asked at most once a second'),
  sidecar: z
    .strictObject({
      status: z.enum(SIDECAR_STATES).describe('The gateway’s connection to it'),
      attester: z
        .string()
        .nullable()
        .describe('How evidence is collected and appraised (`ATTESTER`); null: not connected'),
      devices: z
        .array(
          z.strictObject({
            arch: z.string().describe('The architecture: `HOPPER`, `BLACKWELL`, `LS10`'),
            model: z.string().describe('The product’s name, as the driver gives it'),
          }),
        )
        .describe('The devices that sign'),
      simulated: z
        .boolean()
        .nullable()
        .describe('Whether the GPU is simulated and proves nothing; null: not connected'),
      cpu: z.string().nullable().describe('The kind of processor that signs as well; null: none'),
      trouble: fault.nullable().describe('Why it cannot attest now; null: it can'),
      refused: fault.nullable().describe('Why it may not be used, where status is refused; else null'),
    })
    .describe('The process that has the GPU sign'),
  store: z
    .strictObject({ status: z.enum(['connected', 'away']).describe('Whether it can be reached') })
    .nullable()
    .describe('The Valkey or Redis that gateways share; null: there is none'),
  audit: z
    .strictObject({
      status: z.enum(['ok', 'failing']).describe('Whether lines are written'),
      code: z.string().optional().describe('The system’s code of the error, where it is failing'),
      lost: z.int().describe('Lines that were lost since the start'),
    })
    .nullable()
    .describe('The audit log; null: there is none'),
  version: z.string().describe('The version of the gateway'),
});

const count = z.int().min(0);
const amounts = {
  requests: count.describe('Requests but GET, refused ones included'),
  attested: count.describe('Of them, those whose answer was attested'),
  input_tokens: count.describe('Tokens of prompts, as the backend counts them'),
  output_tokens: count.describe('Tokens of answers, as the backend counts them; of a stream without counts its events'),
  gpu_seconds: z
    .number()
    .min(0)
    .describe('The GPU’s time for signatures, seconds; of a shared signature this answer’s part'),
};

/** The response of GET /usage. */
const usageSchema = z.strictObject({
  key: z.string().describe('The name of the API key, never the key itself'),
  tokens_per_day: count.nullable().describe('The key’s budget of tokens for a day (UTC); null: none'),
  tokens_today: count.describe('Tokens used today (UTC), prompts and answers'),
  days: count.describe('How many days are kept, today included'),
  total: z.strictObject(amounts).describe('The sum of all records'),
  records: z
    .array(
      z.strictObject({
        day: z.iso.date().describe('The day (UTC), `YYYY-MM-DD`'),
        model: z.string().describe('The model that was asked'),
        ...amounts,
      }),
    )
    .describe('One a day and model, the oldest first'),
});

const attestation = attestationSchema.describe(
  'What a device signed about one request and its answer. docs/attestation.md says what each member is, byte by byte',
);

const completion = (object: string, choice: z.ZodRawShape) =>
  z.looseObject({
    id: z.string().describe('The backend’s id of the answer: the attestation can be fetched under it'),
    object: z.literal(object).describe('The kind of answer'),
    choices: z
      .array(
        z.looseObject({
          index: z.int().describe('The choice’s place, from 0'),
          finish_reason: z
            .string()
            .nullish()
            .describe(
              'Why the text ends: `stop`, `length`, `tool_calls`, `content_filter` or another of the backend’s',
            ),
          ...choice,
        }),
      )
      .describe('The answers, as many as `n` asked for'),
    attestation: attestation.optional().describe('Where `tee` was asked for: the last member of the answer'),
  });

/** The response of the verify endpoint with `report=1`. */
const verificationReport = z
  .looseObject({
    valid: z.boolean().describe('Whether no check failed'),
    incomplete: z.boolean().describe('Not valid, and nothing was found wrong: what a check needs was not to be had'),
    level: z.enum(LEVELS).describe('What vouches for it: `none` for a simulated GPU, however right the rest is'),
    checks: z
      .array(
        z.looseObject({
          name: z.enum([...CHECKS, ...CPU_CHECKS]).describe('The check (docs/errors.md)'),
          status: z
            .enum(['pass', 'fail', 'skip'])
            .describe('How it went; skip: it does not apply, or rests on one that failed'),
          code: z.string().optional().describe('Of a check that failed: what is wrong, for programs'),
          detail: z.string().describe('What was seen, or why it was skipped: one sentence'),
          device: z.int().optional().describe('Which device, from 0, of a check that is made for each'),
        }),
      )
      .describe('Every check, in the order in which they count'),
    claims: z
      .looseObject({
        simulated: z.boolean().describe('Whether a device or processor is simulated'),
        time: z.string().nullable().describe('When the answer was complete, by the gateway’s clock, ISO 8601'),
        nonce: z.string().nullable().describe('What the devices signed, 64 hex digits'),
        batch: z
          .looseObject({
            tree_size: z.int().describe('How many answers share the nonce'),
            leaf_index: z.int().describe('This answer’s place among them, from 0'),
          })
          .nullable()
          .describe('The batch that the answer is of; null: the nonce is its own'),
        token: z.looseObject({}).nullable().describe('What the token says; null: it could not be read'),
        devices: z.array(z.looseObject({})).describe('What each device’s evidence says: its id, versions and modes'),
        cpu: z.looseObject({}).nullable().describe('What the processor’s evidence says; null: there is none'),
      })
      .describe('What the evidence says; of an attestation that is not valid only what could be read'),
    proven: z.array(z.string()).describe('What a valid attestation proves, in sentences'),
    not_proven: z.array(z.string()).describe('What it does not prove, in sentences'),
  })
  .describe('Every check of a verification, and what follows from it');

const tier = z.enum(['none', 'affirming', 'warning', 'contraindicated']);

const ear = z
  .looseObject({
    eat_profile: z.literal(EAR_PROFILE).describe('The profile of the claims'),
    iat: z.int().describe('When the result was made, Unix seconds'),
    ear_verifier_id: z
      .strictObject({
        developer: z.string().describe('Who made the verifier'),
        build: z.string().describe('Its name and version'),
      })
      .describe('The verifier'),
    ear_status: tier.describe('The worst of the submodules, or worse'),
    ear_all_submods_bound: z
      .enum(['true', 'false', 'unknown'])
      .describe('Whether the processor’s evidence is bound to the devices’'),
    submods: z
      .record(
        z.string(),
        z.looseObject({
          ear_status: tier.describe('What was found of this attester'),
          ear_trustworthiness_vector: z
            .record(z.string(), z.int().min(-128).max(127))
            .describe('AR4SI’s value for each category that something is claimed of'),
        }),
      )
      .describe('One appraisal for each device (`gpu/ID`, `nvswitch/ID`) and for the processor (`cpu`)'),
    [APPRAISAL_CLAIMS]: z
      .looseObject({})
      .optional()
      .describe('The verification itself: `valid`, `level`, `checks` and what they prove, as with `report=1`'),
  })
  .describe('An attestation result, unsigned (draft-ietf-rats-ear-04); the values are those of draft-ietf-rats-ar4si');

const ANY_BODY = 'Any OpenAI body: members that are not listed go to the backend as they are';
const ANY_ANSWER = 'The backend’s answer, byte for byte, and the attestation; members that are not listed are OpenAI’s';

/** The schemas by their names in `#/components/schemas/`. */
const NAMED = {
  ChatCompletionRequest: chatRequestSchema.describe(ANY_BODY),
  CompletionRequest: completionRequestSchema.describe(ANY_BODY),
  ChatCompletion: completion('chat.completion', {
    message: z
      .looseObject({})
      .optional()
      .describe('The message: its `role` and `content`, tool calls, and what else the backend has'),
  }).describe(ANY_ANSWER),
  Completion: completion('text_completion', {
    text: z.string().optional().describe('The text that continues the prompt'),
  }).describe(ANY_ANSWER),
  Tee: teeSchema,
  Attestation: attestation,
  Evidence: evidenceSchema,
  Session: sessionSchema.describe(
    'The session with the processor that answers are signed in. docs/attestation.md §6 says what each member is',
  ),
  VerificationReport: verificationReport,
  AttestationResult: ear,
  Health: healthSchema.describe('The state of the service and of what it depends on'),
  Usage: usageSchema.describe('What one API key has used'),
  Error: errorBodySchema.describe('Every error, the backend’s too: OpenAI’s shape with all four members'),
};

/** JSON Schema 2020-12, which OpenAPI 3.1 uses unchanged. */
export function componentSchemas(): Record<string, unknown> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(NAMED)) registry.add(schema, { id });
  const { schemas } = z.toJSONSchema(registry, { io: 'input', uri: (id) => `#/components/schemas/${id}` });
  return Object.fromEntries(
    Object.entries(schemas).map(([name, { $schema: _, $id: __, ...schema }]) => [name, schema]),
  );
}
