// POST /v1/chat/completions: the answer whole, or as it is made.
import { eventStream, identity, usage } from './answer.ts';
import { idsOf, takeTurns } from './choices.ts';
import type { Engine } from './engine.ts';
import { type FinishReason, readPrompt } from './generate.ts';
import { chatLogprobs, promptLogprobs, type TokenLogprob } from './logprobs.ts';
import { chatPrompt } from './prompt.ts';
import { type ChatRequest, type Sampling, sampling } from './request.ts';

/** Of an answer whose length the caller leaves open and that does not end by itself. */
const MAX_ANSWER_TOKENS = 512;

export interface ChatJob {
  readonly engine: Engine;
  readonly request: ChatRequest;
  readonly sampling: Sampling;
  readonly prompt: readonly number[];
  readonly signal: AbortSignal;
}

/** @param stop ends the work that `signal` watches over */
export async function chat(
  engine: Engine,
  request: ChatRequest,
  signal: AbortSignal,
  stop: (reason: unknown) => void,
): Promise<Response> {
  const job = await chatJob(engine, request, signal);
  return request.stream ? eventStream(chunks(job), stop) : Response.json(await whole(job));
}

export async function chatJob(engine: Engine, request: ChatRequest, signal: AbortSignal): Promise<ChatJob> {
  return {
    engine,
    request,
    sampling: sampling(request, engine, {
      max_tokens: request.max_completion_tokens ?? request.max_tokens ?? MAX_ANSWER_TOKENS,
      top_logprobs: request.logprobs ? (request.top_logprobs ?? 0) : null,
    }),
    prompt: await chatPrompt(engine, request.messages, signal),
    signal,
  };
}

export async function* chatEvents({ engine, request, sampling, prompt, signal }: ChatJob) {
  const length = request.n ?? 1;
  if (engine.llama !== null) return yield* engine.llama.choices(Array(length).fill(prompt), sampling, signal);
  const read = await readPrompt(engine.model, prompt, null, signal);
  const choices = Array.from({ length }, (_, index) => ({ index, prompt: read }));
  yield* takeTurns(engine.model, choices, sampling, signal);
}

async function whole(job: ChatJob): Promise<object> {
  const { vocabulary } = job.engine.model;
  const choices = Array.from({ length: job.request.n ?? 1 }, () => ({
    text: '',
    logprobs: [] as TokenLogprob[],
    token_ids: [] as number[],
    finish_reason: 'length' as FinishReason,
  }));
  const { return_token_ids, prompt_logprobs = null } = job.request;
  let completion_tokens = 0;
  for await (const event of chatEvents(job)) {
    const choice = choices[event.index];
    if (choice === undefined) continue;
    if (event.type === 'piece') {
      choice.text += event.piece.text;
      choice.token_ids.push(...idsOf(event));
      if (job.request.logprobs) choice.logprobs.push(...chatLogprobs(vocabulary, event.piece.tokens));
    } else {
      choice.token_ids.push(...idsOf(event));
      choice.finish_reason = event.ending.finish_reason;
      completion_tokens += event.ending.completion_tokens;
    }
  }
  const { id, ...rest } = identity(job.engine, 'chatcmpl');
  return {
    id,
    object: 'chat.completion',
    ...rest,
    ...(return_token_ids ? { prompt_token_ids: job.prompt } : {}),
    ...(prompt_logprobs === null ? {} : { prompt_logprobs: await judged(job, prompt_logprobs) }),
    choices: choices.map(({ text, logprobs, token_ids, finish_reason }, index) => ({
      index,
      message: { role: 'assistant', content: text, refusal: null },
      logprobs: job.request.logprobs ? { content: logprobs, refusal: null } : null,
      finish_reason,
      ...(return_token_ids ? { token_ids } : {}),
    })),
    usage: usage(job.prompt.length, completion_tokens),
  };
}

async function judged({ engine: { model }, prompt, signal }: ChatJob, top_logprobs: number) {
  const { picks } = await readPrompt(model, prompt, top_logprobs, signal);
  return promptLogprobs(model.vocabulary, picks ?? []);
}

async function* chunks(job: ChatJob): AsyncGenerator<object> {
  const { id, ...rest } = identity(job.engine, 'chatcmpl');
  const with_usage = job.request.stream_options?.include_usage === true;
  const { return_token_ids } = job.request;
  const chunk = (choices: object[], last?: object) => ({
    id,
    object: 'chat.completion.chunk',
    ...rest,
    choices,
    ...(with_usage ? { usage: last ?? null } : {}),
  });
  const choice = (
    index: number,
    delta: object,
    finish_reason: FinishReason | null = null,
    logprobs: object | null = null,
    token_ids: readonly number[] | null = null,
  ) => chunk([{ index, delta, logprobs, finish_reason, ...(return_token_ids ? { token_ids } : {}) }]);

  for (let index = 0; index < (job.request.n ?? 1); index++)
    yield {
      ...choice(index, { role: 'assistant', content: '', refusal: null }),
      ...(return_token_ids && index === 0 ? { prompt_token_ids: job.prompt } : {}),
    };
  let completion_tokens = 0;
  for await (const event of chatEvents(job)) {
    if (event.type === 'piece') {
      const { text, tokens } = event.piece;
      const logprobs = job.request.logprobs
        ? { content: chatLogprobs(job.engine.model.vocabulary, tokens), refusal: null }
        : null;
      yield choice(event.index, { content: text }, null, logprobs, idsOf(event));
    } else {
      completion_tokens += event.ending.completion_tokens;
      yield choice(event.index, {}, event.ending.finish_reason, null, idsOf(event));
    }
  }
  if (with_usage) yield chunk([], usage(job.prompt.length, completion_tokens));
}
