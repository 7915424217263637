// POST /v1/completions: the text that follows one or more prompts, whole or as it is made.
import { eventStream, identity, usage } from './answer.ts';
import { type Choice, idsOf, takeTurns } from './choices.ts';
import type { Engine } from './engine.ts';
import { type FinishReason, readPrompt } from './generate.ts';
import type { Llama } from './llama.ts';
import { type CompletionLogprobs, createCompletionLogprobs, join, promptLogprobs } from './logprobs.ts';
import { Problem } from './problem.ts';
import { textPrompts } from './prompt.ts';
import { type CompletionRequest, MAX_CHOICES, type Sampling, sampling } from './request.ts';
import { decode } from './tokenizer.ts';

/** OpenAI's default. */
const MAX_TEXT_TOKENS = 16;

interface Job {
  readonly engine: Engine;
  readonly request: CompletionRequest;
  readonly sampling: Sampling;
  readonly prompts: readonly (readonly number[])[];
  readonly signal: AbortSignal;
}

/** A part of one choice: text and, when asked, its log-probabilities; or its end. */
interface Part {
  readonly index: number;
  readonly text: string;
  readonly logprobs: CompletionLogprobs | null;
  readonly finish_reason: FinishReason | null;
  readonly completion_tokens: number;
  readonly token_ids: readonly number[];
  /** vLLM's members about the prompt, in the first part of a choice. */
  readonly prompt: object;
}

const NONE = { logprobs: null, finish_reason: null, completion_tokens: 0, token_ids: [], prompt: {} };

/** @param stop ends the work that `signal` watches over */
export async function completions(
  engine: Engine,
  request: CompletionRequest,
  signal: AbortSignal,
  stop: (reason: unknown) => void,
): Promise<Response> {
  const prompts = await textPrompts(engine, request.prompt ?? '', 'prompt', signal);
  if (prompts.length * (request.n ?? 1) > MAX_CHOICES)
    throw new Problem(400, `At most ${MAX_CHOICES} choices can be made at once.`, {
      param: 'n',
      code: 'invalid_value',
    });
  const job: Job = {
    engine,
    request,
    sampling: sampling(request, engine, {
      max_tokens: request.max_tokens ?? MAX_TEXT_TOKENS,
      top_logprobs: request.logprobs ?? null,
    }),
    prompts,
    signal,
  };
  return request.stream ? eventStream(chunks(job), stop) : Response.json(await whole(job));
}

async function* parts(job: Job): AsyncGenerator<Part> {
  const { engine, request, sampling, prompts, signal } = job;
  if (engine.llama !== null) return yield* llamaParts(job, engine.llama);
  const { vocabulary } = engine.model;
  const n = request.n ?? 1;
  const wanted = request.logprobs ?? null;
  const choices: (Choice & { readonly shaper: ReturnType<typeof createCompletionLogprobs> })[] = [];
  for (const prompt of prompts) {
    const { prompt_logprobs = null } = request;
    const read = await readPrompt(engine.model, prompt, prompt_logprobs ?? (request.echo ? wanted : null), signal);
    const about = {
      ...(request.return_token_ids ? { prompt_token_ids: prompt } : {}),
      ...(prompt_logprobs !== null && read.picks !== null
        ? { prompt_logprobs: promptLogprobs(vocabulary, read.picks) }
        : {}),
    };
    for (let i = 0; i < n; i++) {
      const index = choices.length;
      const shaper = createCompletionLogprobs(vocabulary);
      choices.push({ index, prompt: read, shaper });
      if (!request.echo) {
        if (Object.keys(about).length > 0) yield { ...NONE, index, text: '', prompt: about };
        continue;
      }
      const picks = wanted === null ? null : read.picks;
      const logprobs =
        picks === null ? null : shaper.shape(prompt.map((token, at) => ({ token, pick: picks[at] ?? null })));
      yield { ...NONE, index, text: decode(vocabulary, prompt), logprobs, prompt: about };
    }
  }
  for await (const event of takeTurns(engine.model, choices, sampling, signal)) {
    const { index } = event;
    if (event.type === 'ending') {
      yield { ...NONE, index, text: '', ...event.ending, token_ids: idsOf(event) };
    } else {
      const { text, tokens } = event.piece;
      const shaper = choices[index]?.shaper;
      const logprobs =
        wanted === null || shaper === undefined
          ? null
          : shaper.shape(tokens.map((pick) => ({ token: pick.token, pick })));
      yield { ...NONE, index, text, logprobs, token_ids: idsOf(event) };
    }
  }
}

async function* llamaParts({ request, sampling, prompts, signal }: Job, llama: Llama): AsyncGenerator<Part> {
  const all = prompts.flatMap((prompt) => Array<typeof prompt>(request.n ?? 1).fill(prompt));
  if (request.echo) for (const [index, prompt] of all.entries()) yield { ...NONE, index, text: llama.decode(prompt) };
  for await (const event of llama.choices(all, sampling, signal)) {
    const { index } = event;
    const token_ids = idsOf(event);
    if (event.type === 'piece') yield { ...NONE, index, text: event.piece.text, token_ids };
    else yield { ...NONE, index, text: '', ...event.ending, token_ids };
  }
}

function promptTokens(prompts: readonly (readonly number[])[]): number {
  return prompts.reduce((sum, prompt) => sum + prompt.length, 0);
}

async function whole(job: Job): Promise<object> {
  const empty = (): CompletionLogprobs => ({ tokens: [], token_logprobs: [], top_logprobs: [], text_offset: [] });
  const choices = Array.from({ length: job.prompts.length * (job.request.n ?? 1) }, (_, index) => ({
    text: '',
    index,
    logprobs: typeof job.request.logprobs === 'number' ? empty() : null,
    finish_reason: 'length' as FinishReason,
    ...(job.request.return_token_ids ? { token_ids: [] as number[] } : {}),
  }));
  let completion_tokens = 0;
  for await (const part of parts(job)) {
    const choice = choices[part.index];
    if (choice === undefined) continue;
    choice.text += part.text;
    if (choice.logprobs !== null && part.logprobs !== null) join(choice.logprobs, part.logprobs);
    choice.token_ids?.push(...part.token_ids);
    Object.assign(choice, part.prompt);
    if (part.finish_reason !== null) choice.finish_reason = part.finish_reason;
    completion_tokens += part.completion_tokens;
  }
  const { id, ...rest } = identity(job.engine, 'cmpl');
  return {
    id,
    object: 'text_completion',
    ...rest,
    choices,
    usage: usage(promptTokens(job.prompts), completion_tokens),
  };
}

async function* chunks(job: Job): AsyncGenerator<object> {
  const { id, ...rest } = identity(job.engine, 'cmpl');
  const with_usage = job.request.stream_options?.include_usage === true;
  const chunk = (choices: object[], last?: object) => ({
    id,
    object: 'text_completion',
    ...rest,
    choices,
    ...(with_usage ? { usage: last ?? null } : {}),
  });
  let completion_tokens = 0;
  for await (const part of parts(job)) {
    completion_tokens += part.completion_tokens;
    const { text, index, logprobs, finish_reason, token_ids, prompt } = part;
    const ids = job.request.return_token_ids ? { token_ids } : {};
    yield chunk([{ text, index, logprobs, finish_reason, ...ids, ...prompt }]);
  }
  if (with_usage) yield chunk([], usage(promptTokens(job.prompts), completion_tokens));
}
