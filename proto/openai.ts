// The OpenAI bodies that cross the gateway, as loosely as their users may write them: a known member of a wrong type is
// named, an unknown member is never refused. What is parsed has the known ones alone: bodies travel as their bytes.
import * as z from 'zod';

/** Most messages a conversation may have, most prompts a completion may. */
export const MAX_MESSAGES = 10_000;

const common = {
  model: z.string().max(512).optional(),
  stream: z.boolean().nullish(),
  tee: z.boolean('must be true or false').optional(),
  n: z.int().min(1).max(128).nullish(),
};

const messageSchema = z.object({ role: z.string().min(1).max(64) });

/** POST /v1/chat/completions. */
export const chatRequestSchema = z.object({
  ...common,
  messages: z.array(messageSchema).min(1).max(MAX_MESSAGES),
});

/** POST /v1/completions. `prompt` as a text, texts, a token list or token lists. */
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

export type GenerationRequest = z.infer<typeof chatRequestSchema> | z.infer<typeof completionRequestSchema>;

/** OpenAI's error, all four members always there. */
export const errorBodySchema = z.strictObject({
  error: z.strictObject({
    message: z.string(),
    type: z.string(),
    param: z.string().nullable(),
    code: z.string().nullable(),
  }),
});
export type ErrorBody = z.infer<typeof errorBodySchema>;
