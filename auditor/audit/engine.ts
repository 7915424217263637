// The auditor's own engine over HTTP: vLLM, or SGLang. Prompts go to it and to nobody else.
import { UsageError } from '../../verify/cli/input.ts';
import { readLimited } from '../../verify/common/limited.ts';
import { type Auditable, BEST } from './ids.ts';

/** How likely a token was where it stands, and the likeliest of that place, best first. */
export interface Row {
  readonly logprob: number;
  readonly best: ReadonlyMap<number, number>;
}

export interface Engine {
  readonly url: string;
  readonly model: string;
  /** The ids of the signed request's prompt, in this engine's template. @throws {Refused} */
  prompt(auditable: Pick<Auditable, 'request'>): Promise<readonly number[]>;
  /** The ids of an answer's text. @throws {Refused} */
  encode(text: string): Promise<readonly number[]>;
  /** @throws {Refused} */
  decode(ids: readonly number[]): Promise<string>;
  /** One prefill: a row for each id from `from` on, which is not 0. @throws {Refused} */
  score(ids: readonly number[], from: number): Promise<readonly Row[]>;
}

/** The engine refuses this answer, such as one that is longer than its context. */
export class Refused extends Error {
  override readonly name = 'Refused';
}

type Json = Readonly<Record<string, unknown>>;

const TIMEOUT_MS = 600_000;
const MAX_BYTES = 1024 * 1024 * 1024;

/** Reaches the engine, and tries all that will be asked of it. @throws {UsageError} */
export async function openEngine(option: string, url: string, named: string | null): Promise<Engine> {
  const base = url.replace(/\/+$/, '').replace(/\/v1$/, '');
  const unusable = (what: string, next: string | null = null) => new UsageError(`${option} ${url}: ${what}`, next);

  async function call(path: string, body?: object): Promise<Json> {
    const response = await fetch(base + path, {
      ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
      headers: { 'content-type': 'application/json' },
      redirect: 'error',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    }).catch(() => null);
    const bytes = response === null ? null : await readLimited(response, MAX_BYTES).catch(() => null);
    if (response === null || bytes === null) throw unusable('cannot be reached, or broke off');
    if (response.status === 400 || response.status === 413 || response.status === 422)
      throw new Refused(`${path} answered ${response.status}`);
    if (response.status !== 200) throw unusable(`${path} answered ${response.status}`);
    try {
      return JSON.parse(new TextDecoder().decode(bytes)) as Json;
    } catch {
      // Python writes NaN and Infinity, which are no JSON.
      throw unusable(`${path} answered what is no JSON, such as NaN`, BROKEN);
    }
  }

  const { data } = await call('/v1/models').catch((error) => {
    throw error instanceof Refused ? unusable(error.message) : error;
  });
  const [first] = (Array.isArray(data) ? data : []) as { id?: unknown; owned_by?: unknown }[];
  const model = named ?? first?.id;
  if (typeof model !== 'string') throw unusable('/v1/models names no model', 'name it with --model NAME');

  const ids = async (path: string, body: object): Promise<readonly number[]> => {
    const { tokens } = await call(path, { model, ...body });
    if (Array.isArray(tokens) && tokens.length === 0) throw new Refused('an empty text');
    if (!isIds(tokens)) throw unusable(`${path} answered no tokens`, NEEDED);
    return tokens;
  };
  const common = {
    url,
    model,
    encode: (text: string) => ids('/tokenize', { prompt: text, add_special_tokens: false }),
    async decode(tokens: readonly number[]) {
      const { prompt, text } = await call('/detokenize', { model, tokens });
      const decoded = prompt ?? text;
      if (typeof decoded !== 'string') throw unusable('/detokenize answered no text', NEEDED);
      return decoded;
    },
  };
  const textPrompt = ({ prompt, add_special_tokens = true }: Json) => {
    const one = Array.isArray(prompt) && prompt.length === 1 && typeof prompt[0] !== 'number' ? prompt[0] : prompt;
    return isIds(one) ? one : ids('/tokenize', { prompt: one, add_special_tokens });
  };
  const engine: Engine = first?.owned_by === 'sglang' ? sglang() : vllm();
  await probe();
  return engine;

  function vllm(): Engine {
    return {
      ...common,
      async prompt({ request }) {
        const { messages, chat_template_kwargs } = request;
        if (messages === undefined) return textPrompt(request);
        return ids('/tokenize', { messages, chat_template_kwargs, add_generation_prompt: true });
      },
      async score(prompt, from) {
        // vLLM refuses to generate nothing.
        const asked = { model, prompt, max_tokens: 1, temperature: 0, prompt_logprobs: BEST };
        const { choices } = await call('/v1/completions', asked);
        const rows = ((choices as Json[] | undefined)?.[0]?.prompt_logprobs ?? []) as Record<string, Json>[];
        return prompt.slice(from).map((id, i) => {
          const row = Object.entries(rows[from + i] ?? {});
          return rowOf(
            id,
            row.map(([token, { logprob }]) => [Number(token), logprob]),
          );
        });
      },
    };
  }

  function sglang(): Engine {
    return {
      ...common,
      async prompt({ request }) {
        if (request.messages === undefined) return textPrompt(request);
        const { messages, chat_template_kwargs } = request;
        const asked = { model, messages, chat_template_kwargs, max_tokens: 1, return_prompt_token_ids: true };
        const { prompt_token_ids, choices } = await call('/v1/chat/completions', asked);
        const found = prompt_token_ids ?? (choices as Json[] | undefined)?.[0]?.prompt_token_ids;
        if (!isIds(found)) throw unusable('/v1/chat/completions answered no prompt_token_ids', NEEDED);
        return found;
      },
      async score(input_ids, from) {
        const { meta_info } = await call('/generate', {
          input_ids,
          sampling_params: { max_new_tokens: 1, temperature: 0 },
          return_logprob: true,
          logprob_start_len: 0,
          top_logprobs_num: BEST,
        });
        type Entry = readonly [logprob: unknown, id: number];
        const { input_token_logprobs: own = [], input_top_logprobs: top = [] } = (meta_info ?? {}) as {
          input_token_logprobs?: readonly Entry[];
          input_top_logprobs?: readonly (readonly Entry[] | null)[];
        };
        return input_ids.slice(from).map((id, i) => {
          const [logprob] = own[from + i] ?? [];
          return rowOf(id, [...(top[from + i] ?? []).map(([value, token]) => [token, value] as const), [id, logprob]]);
        });
      },
    };
  }

  /** @throws {UsageError} for rows that are missing, too short, or no numbers */
  function rowOf(id: number, entries: readonly (readonly [token: number, logprob: unknown])[]): Row {
    const all = new Map<number, number>();
    for (const [token, logprob] of entries) {
      if (typeof logprob !== 'number' || !Number.isFinite(logprob))
        throw unusable('a log-probability is no finite number', BROKEN);
      all.set(token, logprob);
    }
    const own = all.get(id);
    if (own === undefined || all.size < BEST) throw unusable('it gives no 20 log-probabilities a token', CAPPED);
    return { logprob: own, best: new Map([...all].sort(([, a], [, b]) => b - a).slice(0, BEST)) };
  }

  /** Every answer would fail on what is missing here. */
  async function probe(): Promise<void> {
    try {
      const hello = await common.encode('Hello, hello, hello');
      if (hello.length < 2) throw unusable('/tokenize answered too few tokens', NEEDED);
      await common.decode(hello);
      await engine.score(hello, 1);
    } catch (error) {
      throw error instanceof Refused ? unusable(error.message, `${NEEDED}; ${CAPPED}`) : error;
    }
  }
}

const NEEDED = 'the audit needs /tokenize, /detokenize and log-probabilities of the prompt: vLLM and SGLang have them';
const CAPPED = 'start vLLM with --max-logprobs 20 or more';
const BROKEN = 'look at the engine: log-probabilities of its weights are broken, and no verdict is possible';

const isIds = (value: unknown): value is readonly number[] =>
  Array.isArray(value) && value.length > 0 && value.every((id) => Number.isSafeInteger(id));
