// Reads the token counts of a response from the backend's body.
import { MANY_BYTES } from '../http/bytes.ts';

/** Up to this length a response that is no stream is parsed. In all others `usage` is searched at the end, where backends write it. */
const WHOLE_BYTES = MANY_BYTES;
const STREAM_TAIL_BYTES = 64 * 1024;
/** The head of a stream is kept too: Anthropic's first event has the prompt's tokens. */
const STREAM_HEAD_BYTES = 4 * 1024;
const FIRST_BYTES = 256;
/** Limit for occurrences of `usage` that are tried in one response. */
const MAX_TRIES = 8;
const USAGE = Buffer.from('"usage":');
const LF = 0x0a;
const CR = 0x0d;

/** The tokens of the prompt and of the response. */
export interface Tokens {
  readonly input: number;
  readonly output: number;
  /** `backend`: its own count. `events`: the number of events of a stream without a count. `unknown`: there is no count. */
  readonly source: 'backend' | 'events' | 'unknown';
}

export const NO_TOKENS: Tokens = { input: 0, output: 0, source: 'unknown' };

/** Keeps the end of a response while it is relayed. */
export class TokenReader {
  readonly #stream: boolean;
  readonly #kept_bytes: number;
  /** At most twice `#kept_bytes`, so that bytes are rarely moved to the front. */
  #buffer = Buffer.alloc(0);
  #length = 0;
  #total = 0;
  #head = '';
  #events = 0;
  /** The length of the unfinished line. */
  #line = 0;

  constructor(stream: boolean) {
    this.#stream = stream;
    this.#kept_bytes = stream ? STREAM_TAIL_BYTES : WHOLE_BYTES;
  }

  add(chunk: Buffer): void {
    this.#total += chunk.length;
    if (this.#stream) this.#countEvents(chunk);
    if (this.#stream && this.#head.length < STREAM_HEAD_BYTES)
      this.#head += chunk.toString('utf8', 0, STREAM_HEAD_BYTES - this.#head.length);
    const bytes = chunk.subarray(-this.#kept_bytes);
    if (this.#length + bytes.length > this.#buffer.length) this.#makeRoom(bytes.length);
    bytes.copy(this.#buffer, this.#length);
    this.#length += bytes.length;
  }

  /** An empty line ends an event. */
  #countEvents(chunk: Buffer): void {
    for (const byte of chunk)
      if (byte !== LF) this.#line += byte === CR ? 0 : 1;
      else {
        if (this.#line === 0) this.#events++;
        this.#line = 0;
      }
  }

  #makeRoom(bytes: number): void {
    const kept = this.#buffer.subarray(Math.max(0, this.#length + bytes - this.#kept_bytes), this.#length);
    const size = Math.min(2 * this.#kept_bytes, Math.max(FIRST_BYTES, 2 * (kept.length + bytes)));
    if (size > this.#buffer.length) {
      const larger = Buffer.alloc(size);
      kept.copy(larger);
      this.#buffer = larger;
    } else kept.copy(this.#buffer);
    this.#length = kept.length;
  }

  /** Reads the kept bytes and releases them. */
  tokens(): Tokens {
    const tail = this.#buffer.subarray(Math.max(0, this.#length - this.#kept_bytes), this.#length);
    const whole = !this.#stream && this.#total <= this.#kept_bytes;
    const usage = whole ? memberOf(tail.toString('utf8')) : usageIn(tail, this.#stream);
    const prompt = this.#stream ? promptIn(this.#head) : null;
    this.#buffer = Buffer.alloc(0);
    this.#length = 0;
    this.#head = '';
    const tokens = usage === null ? null : tokensOf(usage, prompt);
    if (tokens !== null) return tokens;
    return this.#stream ? { input: prompt ?? 0, output: this.#events, source: 'events' } : NO_TOKENS;
  }
}

/** The prompt's tokens in Anthropic's `message_start`, whose later events may not repeat them. */
function promptIn(head: string): number | null {
  const line = head.split(/[\r\n]/).find((one) => one.startsWith('data:') && one.includes('"message_start"'));
  const payload = line?.slice('data:'.length) ?? '';
  try {
    const { message } = JSON.parse(payload) as { message?: { usage?: { input_tokens?: unknown } } };
    return countOf(message?.usage?.input_tokens);
  } catch {
    return null;
  }
}

/**
 * Finds the last `usage` that is a member of the body or of an event. An opening brace and the text from it to the end are valid JSON only
 * for a member at the top level: a deeper one leaves a brace too many, and in a string its quotes would be escaped. An event of
 * /v1/responses has it one level deeper, in `response`.
 */
function usageIn(tail: Buffer, stream: boolean): unknown {
  let at = tail.length;
  for (let tries = 0; tries < MAX_TRIES && at > 0; tries++) {
    at = tail.lastIndexOf(USAGE, at - 1);
    if (at < 0) return null;
    const rest = tail.toString('utf8', at);
    // An event's payload ends with its line.
    const line = stream ? (rest.split(/[\r\n]/, 1)[0] ?? '') : rest;
    const found = memberOf(`{${line}`) ?? (stream ? memberOf(`{"response":{${line}`) : null);
    if (found !== null) return found;
  }
  return null;
}

function memberOf(text: string): unknown {
  try {
    const value = JSON.parse(text) as { usage?: unknown; response?: { usage?: unknown } };
    return value.usage ?? value.response?.usage ?? null;
  } catch {
    return null;
  }
}

/** OpenAI's chat and completions count prompt and completion, its responses and Anthropic input and output, rerank the total only. */
function tokensOf(usage: unknown, prompt: number | null): Tokens | null {
  const { prompt_tokens, completion_tokens, input_tokens, output_tokens, total_tokens } = usage as Record<
    string,
    unknown
  >;
  const input = countOf(prompt_tokens) ?? countOf(input_tokens) ?? prompt;
  const output = countOf(completion_tokens) ?? countOf(output_tokens);
  const total = countOf(total_tokens);
  // Input tokens alone are the usage at the start of a stream.
  if (output === null && total === null) return null;
  return { input: input ?? Math.max(0, (total ?? 0) - (output ?? 0)), output: output ?? 0, source: 'backend' };
}

const countOf = (value: unknown): number | null =>
  Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : null;
