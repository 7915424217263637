// What a client may ask: known members checked, unknown ones (tools, response_format, …) accepted and ignored.
import * as z from 'zod';
import { Problem } from './problem.ts';

export const MAX_CHOICES = 128;
const MAX_TOP_LOGPROBS = 20;
const MAX_STOPS = 4;
const MAX_MESSAGES = 100_000;
const MAX_INPUTS = 2048;

const penalty = z.number().min(-2).max(2).nullish();
const common = {
  model: z.string().nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  n: z.int().min(1).max(MAX_CHOICES).nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  presence_penalty: penalty,
  frequency_penalty: penalty,
  logit_bias: z.record(z.string().regex(/^\d+$/, 'must be a token id'), z.number().min(-100).max(100)).nullish(),
  seed: z.int().nullish(),
  stop: z.union([z.string(), z.array(z.string()).max(MAX_STOPS)]).nullish(),
  /** As in vLLM: the end token is never said before this many tokens, or never at all. */
  min_tokens: z.int().min(0).nullish(),
  ignore_eos: z.boolean().nullish(),
  /** As in vLLM: the tokens of prompt and choices, and how likely each token of the prompt was. */
  return_token_ids: z.boolean().nullish(),
  prompt_logprobs: z.int().min(0).max(MAX_TOP_LOGPROBS).nullish(),
};

const content = z
  .union([z.string(), z.array(z.looseObject({ type: z.string(), text: z.string().optional() }))])
  .nullish();

export const chatRequestSchema = z.looseObject({
  ...common,
  messages: z
    .array(z.looseObject({ role: z.string(), content }))
    .min(1)
    .max(MAX_MESSAGES),
  max_tokens: z.int().min(1).nullish(),
  max_completion_tokens: z.int().min(1).nullish(),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.int().min(0).max(MAX_TOP_LOGPROBS).nullish(),
});
export type ChatRequest = z.infer<typeof chatRequestSchema>;
export type Message = ChatRequest['messages'][number];

export const textsOf = ({ content }: Message): string[] =>
  typeof content === 'string' ? [content] : (content ?? []).map((part) => part.text ?? '');

export const responseRequestSchema = z.looseObject({
  ...common,
  input: z.union([
    z.string(),
    z
      .array(z.looseObject({ role: z.string(), content }))
      .min(1)
      .max(MAX_MESSAGES),
  ]),
  instructions: z.string().nullish(),
  max_output_tokens: z.int().min(1).nullish(),
});
export type ResponseRequest = z.infer<typeof responseRequestSchema>;

export const messageRequestSchema = z.looseObject({
  ...common,
  messages: chatRequestSchema.shape.messages,
  system: content,
  max_tokens: z.int().min(1),
  stop_sequences: z.array(z.string()).nullish(),
});
export type MessageRequest = z.infer<typeof messageRequestSchema>;

const tokens = z.array(z.int().min(0)).min(1);

export const embeddingRequestSchema = z.looseObject({
  model: common.model,
  input: z.union([
    z.string().min(1),
    z.array(z.string().min(1)).min(1).max(MAX_INPUTS),
    tokens,
    z.array(tokens).min(1).max(MAX_INPUTS),
  ]),
  encoding_format: z.enum(['float', 'base64']).nullish(),
  dimensions: z.int().min(1).nullish(),
});
export type EmbeddingRequest = z.infer<typeof embeddingRequestSchema>;

export const completionRequestSchema = z.looseObject({
  ...common,
  prompt: z
    .union([z.string(), z.array(z.string()).min(1).max(MAX_CHOICES), tokens, z.array(tokens).min(1).max(MAX_CHOICES)])
    .nullish(),
  max_tokens: z.int().min(0).nullish(),
  logprobs: z.int().min(0).max(MAX_TOP_LOGPROBS).nullish(),
  echo: z.boolean().nullish(),
});
export type CompletionRequest = z.infer<typeof completionRequestSchema>;

/** As in vLLM: a chat in the model's template, or a text. */
export const tokenizeRequestSchema = z.looseObject({
  model: common.model,
  messages: chatRequestSchema.shape.messages.optional(),
  prompt: z.string().nullish(),
});
export type TokenizeRequest = z.infer<typeof tokenizeRequestSchema>;

export const detokenizeRequestSchema = z.looseObject({ model: common.model, tokens: z.array(z.int().min(0)) });
export type DetokenizeRequest = z.infer<typeof detokenizeRequestSchema>;

/** How one choice is generated, every default decided. */
export interface Sampling {
  readonly max_tokens: number;
  readonly min_tokens: number;
  readonly temperature: number;
  readonly top_p: number;
  readonly presence_penalty: number;
  readonly frequency_penalty: number;
  readonly logit_bias: ReadonlyMap<number, number>;
  readonly stops: readonly string[];
  readonly seed: number;
  /** How many likely tokens are reported with each token; null: no log-probabilities. */
  readonly top_logprobs: number | null;
}

/** @throws {Problem} 400 naming the first member that is wrong */
export function parse<T>(schema: z.ZodType<T>, body: unknown): T {
  const parsed = schema.safeParse(body);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  const param = issue?.path.join('.') || null;
  throw new Problem(400, `${param ?? 'The body'}: ${issue?.message ?? 'is not valid'}.`, {
    param,
    code: 'invalid_value',
  });
}

/** @throws {Problem} 400 for what the engine's model cannot do */
export function sampling(
  request: ChatRequest | CompletionRequest,
  { llama, random_seed }: { llama: { readonly temperature: number } | null; random_seed: () => number },
  { max_tokens, top_logprobs }: { max_tokens: number; top_logprobs: number | null },
): Sampling {
  for (const param of ['logprobs', 'prompt_logprobs', 'logit_bias'] as const)
    if (llama !== null && request[param])
      throw new Problem(400, `${param}: this model has none.`, { param, code: 'unsupported_value' });
  const stops = typeof request.stop === 'string' ? [request.stop] : (request.stop ?? []);
  return {
    max_tokens,
    min_tokens: request.ignore_eos ? Number.POSITIVE_INFINITY : (request.min_tokens ?? 0),
    temperature: request.temperature ?? llama?.temperature ?? 1,
    top_p: request.top_p ?? 1,
    presence_penalty: request.presence_penalty ?? 0,
    frequency_penalty: request.frequency_penalty ?? 0,
    logit_bias: new Map(Object.entries(request.logit_bias ?? {}).map(([token, bias]) => [Number(token), bias])),
    stops: stops.filter((stop) => stop !== ''),
    seed: request.seed ?? random_seed(),
    top_logprobs,
  };
}
