// What can be audited of a proven exchange: its prompt, its settings, and the token ids of its choices. What constrains sampling in another
// way than temperature, or shows the model more than text, is left out and counted.
import type { Exchange } from '../../verify/index.ts';

type Json = Readonly<Record<string, unknown>>;

export interface Choice {
  readonly index: number;
  /** null: the response has no ids, and its text is all there is. */
  readonly ids: readonly number[] | null;
  /** Reasoning, where the engine shows it, then content. */
  readonly texts: readonly string[];
}

export interface Auditable {
  readonly request: Json;
  /** The ids of the prompt that the response names; null: it names none. */
  readonly signedPrompt: readonly number[] | null;
  readonly temperature: number;
  readonly stops: readonly string[];
  readonly choices: readonly Choice[];
}

/** The reason names members of the request, and none of its texts. */
export interface LeftOut {
  readonly reason: string;
  readonly tokens: number;
}

/** Members of a request that do not change what may follow, or that the rule takes into account. Any other member leaves the answer out. */
const NEUTRAL = new Set(
  `model messages prompt temperature top_p top_k min_p n stream stream_options max_tokens max_completion_tokens stop stop_token_ids
  include_stop_str_in_output skip_special_tokens spaces_between_special_tokens seed user logprobs top_logprobs prompt_logprobs
  return_token_ids return_prompt_token_ids return_tokens_as_token_ids tee store metadata service_tier priority request_id cache_salt
  safety_identifier prompt_cache_key chat_template_kwargs add_special_tokens detokenize`.split(/\s+/),
);
/** Members that change nothing with these values. */
const IDLE: Readonly<Record<string, readonly string[]>> = {
  presence_penalty: ['0'],
  frequency_penalty: ['0'],
  repetition_penalty: ['1'],
  logit_bias: ['{}'],
  tools: ['[]'],
  tool_choice: ['"none"', '"auto"'],
  parallel_tool_calls: ['true', 'false'],
  response_format: ['{"type":"text"}'],
  min_tokens: ['0'],
  ignore_eos: ['false'],
  echo: ['false'],
  best_of: ['1'],
  use_beam_search: ['false'],
  suffix: ['""'],
  add_generation_prompt: ['true'],
  continue_final_message: ['false'],
};
/** The number of likely tokens that the rule looks at: a smaller `top_k` cuts into them. */
export const BEST = 20;

/** @returns a reason to leave it out, or what can be audited. */
export function auditableOf({ endpoint, request: text, response: signed }: Exchange): Auditable | LeftOut {
  const request = JSON.parse(text) as Json;
  const response = JSON.parse(signed) as Json;
  const items = listOf(response.choices);
  const tokens = tokensIn(response, items);
  if (endpoint !== '/v1/chat/completions' && endpoint !== '/v1/completions')
    return { reason: `${endpoint}: only /v1/chat/completions and /v1/completions give ids`, tokens };
  const reason = constraintIn(request) ?? settingsReason(request);
  if (reason !== null) return { reason, tokens };
  const choices = items.map(choiceOf);
  if (items.some(({ message }) => isCall(message))) return { reason: 'tool calls', tokens };
  const sampled = request.temperature !== 0;
  if (sampled && choices.some(({ ids }) => ids === null)) return { reason: 'sampled, and without token ids', tokens };
  const { stop } = request;
  return {
    request,
    signedPrompt: idsIn(response.prompt_token_ids) ?? idsIn(items[0]?.prompt_token_ids),
    temperature: request.temperature as number,
    stops: typeof stop === 'string' ? [stop] : listOf(stop).map(String),
    choices,
  };
}

function constraintIn(request: Json): string | null {
  for (const [name, value] of Object.entries(request)) {
    if (NEUTRAL.has(name) || (value ?? null) === null) continue;
    if (!Object.hasOwn(IDLE, name) || !IDLE[name]?.includes(JSON.stringify(value))) return name;
  }
  const parts = listOf(request.messages).flatMap(({ content }) => listOf(content));
  if (parts.some(({ type }) => type !== 'text')) return 'images, audio or files';
  const { prompt } = request;
  if (Array.isArray(prompt) && typeof prompt[0] !== 'number' && prompt.length !== 1) return 'several prompts';
  return null;
}

function settingsReason({ temperature, top_p, top_k, min_p }: Json): string | null {
  if (typeof temperature !== 'number') return 'the request leaves its temperature to the engine';
  if (temperature === 0) return null;
  if (top_p !== 1) return 'sampled, and top_p is not 1 in the request';
  if (typeof top_k === 'number' && top_k > 0 && top_k < BEST) return `top_k is less than ${BEST}`;
  return typeof min_p === 'number' && min_p > 0 ? 'min_p' : null;
}

function choiceOf(item: Json, index: number): Choice {
  const message = (item.message ?? {}) as Json;
  const shown = [message.reasoning_content ?? message.reasoning, message.content ?? item.text ?? ''];
  return {
    index,
    ids: idsIn(item.token_ids),
    texts: shown.filter((text): text is string => typeof text === 'string' && text !== ''),
  };
}

const isCall = (message: unknown): boolean => {
  const { tool_calls, function_call } = (message ?? {}) as Json;
  return listOf(tool_calls).length > 0 || (function_call ?? null) !== null;
};

function tokensIn(response: Json, items: readonly Json[]): number {
  const ids = items.reduce((sum, { token_ids }) => sum + (idsIn(token_ids)?.length ?? 0), 0);
  const { completion_tokens } = (response.usage ?? {}) as Json;
  return ids > 0 ? ids : typeof completion_tokens === 'number' ? completion_tokens : 0;
}

const listOf = (value: unknown): readonly Json[] => (Array.isArray(value) ? value : []);

const idsIn = (value: unknown): readonly number[] | null =>
  Array.isArray(value) && value.every((id) => Number.isSafeInteger(id) && id >= 0) ? value : null;

/** Markers that an engine takes out of what it shows, such as those around reasoning. */
const MAX_HIDDEN = 64;

/**
 * Whether ids are those of the signed texts: otherwise they could be forged. Beyond the texts only the last token may say more: it ends the
 * answer, or completes a stop text that the engine cut away.
 * @param all the text of all ids. @param head the text of all but the last.
 */
export function isTextOf(all: string, head: string, { texts }: Choice, stops: readonly string[]): boolean {
  const [text = '', ...more] = texts;
  if (more.length > 0) return hiddenIn(all, texts) <= MAX_HIDDEN;
  const [whole, begun, shown] = [all, head, text].map(bare) as [string, string, string];
  return (
    whole === shown || (whole.startsWith(shown) && ['', ...stops].some((stop) => (shown + stop).startsWith(begun)))
  );
}

/** SentencePiece writes a space before the first word; a character that was cut off ends as U+FFFD. */
const bare = (text: string): string => text.trimStart().replace(/\ufffd+$/, '');

/** How many characters of `all` are in none of the texts, which follow each other. */
function hiddenIn(all: string, texts: readonly string[]): number {
  let at = 0;
  let hidden = all.replace(/\s/g, '').length;
  for (const text of texts) {
    const found = all.indexOf(text.trim(), at);
    if (found < 0) return Number.POSITIVE_INFINITY;
    at = found + text.trim().length;
    hidden -= text.replace(/\s/g, '').length;
  }
  return hidden;
}
