// The OpenAI bodies that pass through the gateway, validated loosely: a known member of a wrong type is an error, an unknown member is
// allowed. The parsed value has the known members only; bodies are forwarded as their bytes.
// gateway/routes/openapi.yaml says what each member means.
import * as z from 'zod';

/** Limit for the messages of a conversation and for the prompts of a completion. */
export const MAX_MESSAGES = 10_000;

const MAX_MODEL = 512;
const MAX_ROLE = 64;

const TEE_FORMS = 'must be true, false, null or an object of batch, compact and challenge';

/** The member `tee`, which the gateway cuts out of the body: whether and how the response is to be attested. */
export const teeSchema = z.union(
  [
    z.boolean(),
    z.null(),
    z.strictObject({
      batch: z.boolean('must be true or false').optional(),
      compact: z.boolean('must be true or false').optional(),
      challenge: z
        .string('must be a string')
        .regex(/^[\x20-\x7e]{16,128}$/, 'must be 16 to 128 printable ASCII characters')
        .optional(),
    }),
  ],
  TEE_FORMS,
);

const common = {
  model: z.string().max(MAX_MODEL).nullish(),
  stream: z.boolean().nullish(),
  tee: teeSchema.optional(),
  n: z.int().min(1).max(128).nullish(),
};

const messageSchema = z.object({ role: z.string().min(1).max(MAX_ROLE) });

/** POST /v1/chat/completions. */
export const chatRequestSchema = z.object({
  ...common,
  messages: z.array(messageSchema).min(1).max(MAX_MESSAGES),
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
    .nullish(),
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
export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string | null;
  };
}
