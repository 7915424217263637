// The OpenAI bodies that pass through the gateway, validated loosely: a known member of a wrong type is an error, an unknown member is
// allowed. The parsed value has the known members only; bodies are forwarded as their bytes.
import * as z from 'zod';

/** Limit for the messages of a conversation and for the prompts of a completion. */
export const MAX_MESSAGES = 10_000;

const MAX_MODEL = 512;
const MAX_ROLE = 64;

const TEE_FORMS = 'must be true, false, null or an object of batch and challenge';

/** The member `tee`, which the gateway cuts out of the body: whether and how the response is to be attested. */
export const teeSchema = z
  .union(
    [
      z.boolean(),
      z.null(),
      z.strictObject({
        batch: z
          .boolean('must be true or false')
          .optional()
          .describe('Whether the answer may share its GPU signature with other answers that wait at the same time'),
        challenge: z
          .string('must be a string')
          .regex(/^[\x20-\x7e]{16,128}$/, 'must be 16 to 128 printable ASCII characters')
          .optional()
          .describe(
            'Text of the client’s own, 16 to 128 printable ASCII characters. `raw.request` holds it, so that an older attestation cannot be of this request',
          ),
      }),
    ],
    TEE_FORMS,
  )
  .describe(
    'Whether the answer is to be attested: `true` for a GPU signature of its own, or an object with options. `false` and `null`: it is not. The gateway takes this member out before it asks the backend',
  );

const common = {
  model: z.string().max(MAX_MODEL).nullish().describe('The model, by the name that the backend’s list of models has'),
  stream: z.boolean().nullish().describe('Whether the answer comes as server-sent events while it is generated'),
  tee: teeSchema.optional(),
  n: z.int().min(1).max(128).nullish().describe('How many choices to generate; 1 by default'),
};

const messageSchema = z.object({
  role: z
    .string()
    .min(1)
    .max(MAX_ROLE)
    .describe('Who speaks: `system`, `user`, `assistant`, `tool` or another of the backend’s'),
});

/** POST /v1/chat/completions. */
export const chatRequestSchema = z.object({
  ...common,
  messages: z
    .array(messageSchema)
    .min(1)
    .max(MAX_MESSAGES)
    .describe(
      'The conversation so far, oldest first. Every other member of a message (`content`, …) goes to the backend as it is',
    ),
});

/** POST /v1/completions. `prompt` is a text, texts, a token list or token lists. */
export const completionRequestSchema = z.object({
  ...common,
  prompt: z
    .union([
      z.string(),
      z.array(z.string()).max(MAX_MESSAGES),
      z.array(z.int()),
      z.array(z.array(z.int())).max(MAX_MESSAGES),
    ])
    .nullish()
    .describe('What is to be continued: a text, several texts, a list of token ids, or several such lists'),
});

/**
 * Whether `prompt` is valid for the schema. It replaces the schema's union, which would report issues for each of up to a million items.
 */
export function isPrompt(value: unknown): boolean {
  if (value === undefined || value === null || typeof value === 'string') return true;
  if (!Array.isArray(value)) return false;
  if (isTokens(value)) return true;
  if (value.length > MAX_MESSAGES) return false;
  return (
    value.every((item) => typeof item === 'string') || value.every((item) => Array.isArray(item) && isTokens(item))
  );
}

const isTokens = (list: readonly unknown[]) => list.every(Number.isSafeInteger);

export type GenerationRequest = z.infer<typeof chatRequestSchema> | z.infer<typeof completionRequestSchema>;

/** OpenAI's error. All four members are always present; a backend's own error may have more. */
export const errorBodySchema = z.looseObject({
  error: z
    .looseObject({
      message: z.string().describe('What is wrong, for people. The wording may change'),
      type: z
        .string()
        .describe(
          'OpenAI’s class of the error: `invalid_request_error`, `authentication_error`, `permission_error`, `rate_limit_error`, `insufficient_quota` or `server_error`; `attestation_invalid` of a verification; or the backend’s own',
        ),
      param: z.string().nullable().describe('The member, header or parameter that is wrong; null: none in particular'),
      code: z
        .string()
        .nullable()
        .describe('What is wrong, for programs (docs/errors.md lists the gateway’s own); null: the backend gave none'),
    })
    .describe('The error, in OpenAI’s shape, also where the backend made it'),
});
export type ErrorBody = z.infer<typeof errorBodySchema>;
