// Budgets of LLM tokens: what a request may cost is reserved when it is admitted, and replaced at its end by what it did cost.
import { isObject, topLevelMembers, withLastMember } from '../../proto/json.ts';
import { NO_TOKENS, type Tokens } from './llm-tokens.ts';

/** What a request may cost, in LLM tokens. */
export interface Estimate {
  readonly prompt: number;
  /** null: the request sets no limit. */
  readonly output: number | null;
}

const BYTES_PER_TOKEN = 4;
/** An image or a recording in base64. */
const MEDIA_TOKENS = 1_000;
const MIN_MEDIA_LENGTH = 1_024;
/** What is reserved for the answer where the request sets no limit. */
export const USUAL_OUTPUT = 4_096;
const OUTPUT_LIMITS = ['max_completion_tokens', 'max_tokens', 'max_output_tokens', 'max_tokens_to_sample'] as const;

/** @param value the request's parsed body */
export function estimateOf(value: unknown): Estimate {
  if (!isObject(value)) return { prompt: 0, output: 0 };
  const limit = OUTPUT_LIMITS.map((name) => value[name]).find(isCount);
  const choices = Math.max(1, ...[value.n, value.best_of].filter(isCount));
  return { prompt: promptTokens(value), output: limit === undefined ? null : limit * choices };
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;

/** Members whose texts the model does not read, or reads as few tokens. */
const NO_PROMPT = new Set(['model', 'role', 'type', 'id', 'user', 'metadata']);

/** The tokens of all texts in a request. A number in a list is a token. */
function promptTokens(request: Record<string, unknown>): number {
  let bytes = 0;
  let tokens = 0;
  const rest: [name: string, value: unknown][] = Object.entries(request);
  for (let next = rest.pop(); next !== undefined; next = rest.pop()) {
    const [name, value] = next;
    if (NO_PROMPT.has(name)) continue;
    if (typeof value === 'string') {
      const media = value.length >= MIN_MEDIA_LENGTH && (name === 'data' || value.startsWith('data:'));
      if (media) tokens += MEDIA_TOKENS;
      else bytes += Buffer.byteLength(value);
    } else if (Array.isArray(value)) {
      for (const one of value)
        if (typeof one === 'number') tokens++;
        else rest.push([name, one]);
    } else if (isObject(value)) for (const member of Object.entries(value)) rest.push(member);
  }
  return tokens + Math.ceil(bytes / BYTES_PER_TOKEN);
}

/** What the gateway saw of a response that has ended, or that was left. */
interface Seen {
  /** 0: no response began. */
  readonly backend_status: number;
  readonly stream: boolean;
  /** All of it arrived. */
  readonly complete: boolean;
  readonly bytes: number;
  /** The client left, or was let go. */
  readonly left: boolean;
}

/**
 * Returns the tokens of a request with a reservation: the backend's count, or else an estimate. Of a stream its events are counted; a
 * whole answer that was left before its end counts as the reservation, because the backend may have computed all of it.
 * @param reserved_output the tokens that were reserved for the answer
 */
export function charged(
  tokens: Tokens,
  { prompt, output: limit }: Estimate,
  reserved_output: number,
  seen: Seen,
): Tokens {
  if (tokens.source === 'backend') return tokens;
  if (seen.backend_status >= 400 || (seen.backend_status === 0 && !seen.left)) return NO_TOKENS;
  const input = Math.max(tokens.input, prompt);
  if (seen.stream) return { input, output: tokens.output, source: 'events' };
  const output = seen.complete ? Math.min(Math.ceil(seen.bytes / BYTES_PER_TOKEN), limit ?? Infinity) : reserved_output;
  return { input, output, source: 'estimate' };
}

/** Reservations of this gateway, by key and by request. */
export class Reservations {
  readonly #keys = new Map<string, Map<string, number>>();

  /** The sum of a key's reservations. */
  of(key: string): number {
    let sum = 0;
    for (const tokens of this.#keys.get(key)?.values() ?? []) sum += tokens;
    return sum;
  }

  add(key: string, id: string, tokens: number): void {
    this.#keys.set(key, (this.#keys.get(key) ?? new Map()).set(id, tokens));
  }

  delete(key: string, id: string): void {
    const requests = this.#keys.get(key);
    if (requests?.delete(id) === true && requests.size === 0) this.#keys.delete(key);
  }
}

const OPTIONS = 'stream_options';

/**
 * Asks for the usage of a stream. Returns null where the request asks for it already, or names the options twice or in a form that the
 * backend will reject.
 * @param value the parsed text
 */
export function withUsageAsked(text: string, value: unknown): string | null {
  const asked = JSON.stringify({ include_usage: true });
  if (!isObject(value)) return null;
  const options = value[OPTIONS] ?? null;
  const named = topLevelMembers(text).filter(({ key }) => key === OPTIONS);
  const [member] = named;
  if (member === undefined) return withLastMember(text, OPTIONS, asked);
  if (named.length > 1 || (options !== null && !isObject(options)) || options?.include_usage === true) return null;
  const json = options === null ? asked : JSON.stringify({ ...options, include_usage: true });
  return text.slice(0, member.valueStart) + json + text.slice(member.valueEnd);
}
