// Reads how many tokens an answer took, from the last bytes of the backend's body.

/** Where a backend writes `usage`, at most so many bytes follow it: the rest of the last object, and `data: [DONE]`. */
const TAIL_BYTES = 8 * 1024;
const FIRST_BYTES = 256;
/** Events of one answer, or members of that name, that are looked at. */
const MAX_TRIES = 8;
const USAGE = Buffer.from('"usage":');
const EVENT_STREAM = /^text\/event-stream\b/i;

/** Tokens in (the prompt's) and out (the answer's). */
export interface Tokens {
  readonly input: number;
  readonly output: number;
  /** `backend`: its own count. `chunks`: a stream without one, counted by its pieces, the prompt unknown. `unknown`: nothing was said. */
  readonly source: 'backend' | 'chunks' | 'unknown';
}

export const NO_TOKENS: Tokens = { input: 0, output: 0, source: 'unknown' };

/** Keeps the end of an answer while it goes by. */
export class TokenReader {
  /** Twice what is kept at most, so that it is moved to the front rarely. */
  #buffer = Buffer.alloc(0);
  #length = 0;

  add(chunk: Buffer): void {
    const bytes = chunk.subarray(-TAIL_BYTES);
    if (this.#length + bytes.length > this.#buffer.length) this.#makeRoom(bytes.length);
    bytes.copy(this.#buffer, this.#length);
    this.#length += bytes.length;
  }

  #makeRoom(bytes: number): void {
    const kept = this.#buffer.subarray(Math.max(0, this.#length + bytes - TAIL_BYTES), this.#length);
    const size = Math.min(2 * TAIL_BYTES, Math.max(FIRST_BYTES, 2 * (kept.length + bytes)));
    if (size > this.#buffer.length) {
      const larger = Buffer.alloc(size);
      kept.copy(larger);
      this.#buffer = larger;
    } else kept.copy(this.#buffer);
    this.#length = kept.length;
  }

  /** @param chunks pieces in which the answer came */
  tokens(contentType: string | undefined, chunks: number): Tokens {
    const stream = contentType !== undefined && EVENT_STREAM.test(contentType);
    const usage = usageIn(this.#buffer.subarray(Math.max(0, this.#length - TAIL_BYTES), this.#length), stream);
    this.#buffer = Buffer.alloc(0);
    this.#length = 0;
    const tokens = usage === null ? null : tokensOf(usage);
    if (tokens !== null) return tokens;
    return stream ? { input: 0, output: chunks, source: 'chunks' } : NO_TOKENS;
  }
}

/**
 * The last `usage` that is a member of the body or of one of its events. The text from it to the end, behind an opening brace, is JSON
 * again exactly where it was a member at the top: one deeper inside leaves a brace too many, and in a text its quotes would be escaped. An
 * event of /v1/responses holds it one level deeper, in `response`.
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

/** OpenAI's chat and completions say prompt and completion, its responses and Anthropic's messages input and output, rerank the total alone. */
function tokensOf(usage: unknown): Tokens | null {
  const { prompt_tokens, completion_tokens, input_tokens, output_tokens, total_tokens } = usage as Record<
    string,
    unknown
  >;
  const input = countOf(prompt_tokens) ?? countOf(input_tokens);
  const output = countOf(completion_tokens) ?? countOf(output_tokens);
  const total = countOf(total_tokens);
  if (input === null && output === null && total === null) return null;
  return { input: input ?? Math.max(0, (total ?? 0) - (output ?? 0)), output: output ?? 0, source: 'backend' };
}

const countOf = (value: unknown): number | null =>
  Number.isSafeInteger(value) && (value as number) >= 0 ? (value as number) : null;
