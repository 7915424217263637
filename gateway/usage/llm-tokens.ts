// Reads the LLM token counts of a response from the backend's body: of a whole answer from its member `usage`, of a stream from each
// event that has one.
import { isObject, topLevelMembers } from '../../proto/json.ts';
import { EventScanner } from '../../proto/stream/sse.ts';
import { ChunkBuffer, EMPTY, MANY_BYTES } from '../base/bytes.ts';

const DATA = 'data:';
const USAGE = '"usage"';

/** The LLM tokens of the prompt and of the response. */
export interface Tokens {
  readonly input: number;
  readonly output: number;
  /**
   * `backend`: its own count. `events`: the number of events of a stream without a count. `estimate`: by bytes, or what was reserved, for
   * a key with a budget. `unknown`: there is no count.
   */
  readonly source: 'backend' | 'events' | 'estimate' | 'unknown';
}

export const NO_TOKENS: Tokens = { input: 0, output: 0, source: 'unknown' };

/** Counts bytes that are kept. Returns false where there is no memory for them. */
export type Hold = (bytes: number) => boolean;

/**
 * Keeps a whole answer, or the unfinished line of a stream, while it is relayed. One that is larger than `max_bytes`, or than `hold` allows,
 * is not read.
 */
export class TokenReader {
  readonly #stream: boolean;
  readonly #max_bytes: number;
  readonly #hold: Hold;
  #kept = new ChunkBuffer();
  /** Bytes of the answer or line so far, kept or not. */
  #bytes = 0;
  /** Bytes that may be kept. A small answer or line always is. */
  #held_bytes = MANY_BYTES;
  readonly #scanner = new EventScanner();
  #counts: Counts = {};

  constructor(stream: boolean, max_bytes: number, hold: Hold = () => true) {
    this.#stream = stream;
    this.#max_bytes = max_bytes;
    this.#hold = hold;
  }

  add(chunk: Buffer): void {
    if (!this.#stream) return this.#keep(chunk);
    const rest = this.#scanner.scan(chunk, (from, to) => this.#endLine(chunk.subarray(from, to)));
    if (rest < chunk.length) this.#keep(Buffer.from(chunk.subarray(rest)));
  }

  #keep(bytes: Buffer): void {
    this.#bytes += bytes.length;
    if (this.#fits()) return this.#kept.add(bytes);
    this.#bytes = Number.POSITIVE_INFINITY;
    this.#kept = new ChunkBuffer();
  }

  #fits(): boolean {
    const more = this.#bytes - this.#held_bytes;
    if (this.#bytes > this.#max_bytes || (more > 0 && !this.#hold(more))) return false;
    this.#held_bytes += Math.max(0, more);
    return true;
  }

  #endLine(rest: Buffer): void {
    if (this.#bytes === 0) this.#readLine(rest);
    else {
      this.#keep(rest);
      this.#readLine(this.#kept.whole());
      this.#kept = new ChunkBuffer();
      this.#bytes = 0;
    }
  }

  #readLine(line: Buffer): void {
    if (!line.includes(USAGE) || line.toString('latin1', 0, DATA.length) !== DATA) return;
    const event = orNull(() => JSON.parse(line.toString('utf8', DATA.length)));
    addCounts(this.#counts, memberOf(event, 'usage') ?? memberOf(memberOf(event, 'response'), 'usage'));
    // Anthropic's first event counts the prompt, and as output what is not its answer's.
    addCounts(this.#counts, memberOf(memberOf(event, 'message'), 'usage'), INPUT);
  }

  /** Reads what is kept, and releases it. Call it once. */
  tokens(): Tokens {
    if (!this.#stream)
      addCounts(
        this.#counts,
        orNull(() => usageIn(this.#kept.whole())),
      );
    else if (this.#bytes > 0) this.#endLine(EMPTY);
    this.#kept = new ChunkBuffer();
    return tokensOf(this.#counts, this.#stream ? this.#scanner.events : null);
  }
}

/** Anthropic does not count cached tokens among `input_tokens`. */
const INPUT = ['input_tokens', 'cache_read_input_tokens', 'cache_creation_input_tokens'] as const;
const COUNTS = [...INPUT, 'output_tokens', 'prompt_tokens', 'completion_tokens', 'total_tokens'] as const;
type Counts = Partial<Record<(typeof COUNTS)[number], number>>;

/** Takes the counts of a `usage`, each of which replaces an earlier one. */
function addCounts(counts: Counts, usage: unknown, names: readonly (keyof Counts)[] = COUNTS): void {
  for (const name of names) {
    const count = memberOf(usage, name);
    if (Number.isSafeInteger(count) && (count as number) >= 0) counts[name] = count as number;
  }
}

const memberOf = (value: unknown, name: string): unknown => (isObject(value) ? value[name] : undefined);

/** Returns null where `read` throws, because the text is no JSON. */
function orNull(read: () => unknown): unknown {
  try {
    return read();
  } catch {
    return null;
  }
}

/** The member `usage` of a JSON object, whose other members are not parsed. A count is ASCII, and latin1 decodes faster than UTF-8. */
function usageIn(body: Buffer): unknown {
  const text = body.includes(USAGE) ? body.toString('latin1') : '{}';
  const { valueStart = 0, valueEnd = 0 } = topLevelMembers(text).findLast(({ key }) => key === 'usage') ?? {};
  return JSON.parse(text.slice(valueStart, valueEnd));
}

/** OpenAI's chat and completions count prompt and completion, its responses and Anthropic input and output, rerank the total only. */
function tokensOf(counts: Counts, events: number | null): Tokens {
  const { prompt_tokens, input_tokens, cache_read_input_tokens = 0, cache_creation_input_tokens = 0 } = counts;
  const cached = prompt_tokens === undefined ? cache_read_input_tokens + cache_creation_input_tokens : 0;
  const output = counts.completion_tokens ?? counts.output_tokens ?? 0;
  const input = cached + (prompt_tokens ?? input_tokens ?? Math.max(0, (counts.total_tokens ?? 0) - output));
  // At the start of a stream the usage has only input tokens.
  if (['completion_tokens', 'output_tokens', 'total_tokens'].some((name) => name in counts))
    return { input, output, source: 'backend' };
  return events === null ? NO_TOKENS : { input, output: events, source: 'events' };
}
